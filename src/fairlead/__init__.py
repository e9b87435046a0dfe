"""fairlead: a priority task queue that never starves a task, never loses one, and can say why each one waits."""

from __future__ import annotations

from fairlead._version import __version__

TYPE_CHECKING = False
"""As typing has it. Not even that is imported here: a worker's keeper of leases does with next to nothing."""

if TYPE_CHECKING:
    from typing import Any

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
    from fairlead.engine.metrics import Metrics
    from fairlead.sdk.app import Fairlead
    from fairlead.sdk.flow import chain, group
    from fairlead.sdk.handle import TaskHandle
    from fairlead.worker.context import TaskContext, current_task

_HOMES = {
    "core.circuit": ("CircuitSettings",),
    "core.errors": (
        "FairleadError",
        "InvalidSettings",
        "InvalidTask",
        "LeaseLost",
        "PayloadTooLarge",
        "QueueFull",
        "Reject",
        "Retry",
        "StoreError",
        "StoreFull",
        "StoreMismatch",
        "StoreReadOnly",
        "StoreUnavailable",
        "TaskFailed",
        "TaskNotFound",
        "WrongState",
    ),
    "core.retry": ("Backoff", "RetryRule"),
    "core.settings": ("Settings",),
    "core.task": ("Priority", "State"),
    "engine.metrics": ("Metrics",),
    "sdk.app": ("Fairlead",),
    "sdk.flow": ("chain", "group"),
    "sdk.handle": ("TaskHandle",),
    "worker.context": ("TaskContext", "current_task"),
}
"""Where each name comes from, which is imported when it is first asked for."""


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            import importlib

            value = globals()[name] = getattr(importlib.import_module(f"fairlead.{home}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


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
