"""fairlead: a priority task queue that never starves a task, never loses one, and can say why each one waits."""

import importlib as _importlib
import typing as _typing

from fairlead._version import __version__
from fairlead.core.circuit import CircuitSettings
from fairlead.core.errors import (
    FairleadError,
    InvalidSettings,
    InvalidTask,
    LeaseLost,
    PayloadTooLarge,
    QueueFull,
    Reject,
    Retry,
    StoreError,
    StoreFull,
    StoreMismatch,
    StoreReadOnly,
    StoreUnavailable,
    TaskFailed,
    TaskNotFound,
    WrongState,
)
from fairlead.core.retry import Backoff, RetryRule
from fairlead.core.settings import Settings
from fairlead.core.task import Priority, State

if _typing.TYPE_CHECKING:
    from fairlead.engine.metrics import Metrics
    from fairlead.sdk.app import Fairlead
    from fairlead.sdk.flow import chain, group
    from fairlead.sdk.handle import TaskHandle
    from fairlead.worker.context import TaskContext, current_task

_LATER = {
    "Fairlead": "fairlead.sdk.app",
    "Metrics": "fairlead.engine.metrics",
    "TaskHandle": "fairlead.sdk.handle",
    "chain": "fairlead.sdk.flow",
    "group": "fairlead.sdk.flow",
    "TaskContext": "fairlead.worker.context",
    "current_task": "fairlead.worker.context",
}
"""What is imported when it is first asked for: a worker's keeper of leases, and many a command, never does."""


def __getattr__(name: str) -> _typing.Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(_importlib.import_module(_LATER[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


__all__ = [
    "Backoff",
    "CircuitSettings",
    "Fairlead",
    "FairleadError",
    "InvalidSettings",
    "InvalidTask",
    "LeaseLost",
    "Metrics",
    "PayloadTooLarge",
    "Priority",
    "QueueFull",
    "Reject",
    "Retry",
    "RetryRule",
    "Settings",
    "State",
    "StoreError",
    "StoreFull",
    "StoreMismatch",
    "StoreReadOnly",
    "StoreUnavailable",
    "TaskContext",
    "TaskFailed",
    "TaskHandle",
    "TaskNotFound",
    "WrongState",
    "__version__",
    "chain",
    "current_task",
    "group",
]
