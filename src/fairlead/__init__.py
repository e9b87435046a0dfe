"""fairlead: a priority task queue that never starves a task, never loses one, and can say why each one waits."""

from __future__ import annotations

from fairlead._version import __version__

TYPE_CHECKING = False
"""As typing has it. Not even that is imported here: a worker's keeper of leases does with next to nothing."""

if TYPE_CHECKING:
    from typing import Any

    from fairlead.app.app import Fairlead
    from fairlead.app.flow import chain, group
    from fairlead.app.handle import TaskHandle
    from fairlead.app.options import (
        DAY,
        HOUR,
        MINUTE,
        SECOND,
        Backoff,
        CircuitSettings,
        Defaults,
        DelayCeilings,
        HeadStart,
        PriorityDefaults,
        Promote,
        Retention,
        RetryRule,
        Rules,
        Settings,
    )
    from fairlead.app.task_info import TaskInfo
    from fairlead.core.errors import (
        AdmissionRefused,
        FairleadError,
        InvalidSettings,
        InvalidTask,
        LeaseLost,
        PayloadTooLarge,
        QueueFull,
        StoreError,
        StoreFull,
        StoreMismatch,
        StoreReadOnly,
        StoreUnavailable,
        TaskFailed,
        TaskNotFound,
        WrongState,
    )
    from fairlead.core.queues.order import Strict, Weighted
    from fairlead.core.retry import Reject, Retry, Snooze, SoftTimeout
    from fairlead.core.settings import CEILINGS_BY_PRIORITY
    from fairlead.core.submission import Submission
    from fairlead.core.task import Failure, Priority, State
    from fairlead.engine.metrics.collector import Metrics
    from fairlead.worker.context import TaskContext, current_task
    from fairlead.worker.providers import Depends
    from fairlead.worker.resources import Middleware
    from fairlead.worker.sentry import Sentry

_HOMES = {
    "core.errors": (
        "AdmissionRefused",
        "FairleadError",
        "InvalidSettings",
        "InvalidTask",
        "LeaseLost",
        "PayloadTooLarge",
        "QueueFull",
        "StoreError",
        "StoreFull",
        "StoreMismatch",
        "StoreReadOnly",
        "StoreUnavailable",
        "TaskFailed",
        "TaskNotFound",
        "WrongState",
    ),
    "core.queues.order": ("Strict", "Weighted"),
    "core.retry": ("Reject", "Retry", "Snooze", "SoftTimeout"),
    "core.settings": ("CEILINGS_BY_PRIORITY",),
    "core.submission": ("Submission",),
    "core.task": ("Failure", "Priority", "State"),
    "engine.metrics.collector": ("Metrics",),
    "app.app": ("Fairlead",),
    "app.flow": ("chain", "group"),
    "app.handle": ("TaskHandle",),
    "app.options": (
        "DAY",
        "HOUR",
        "MINUTE",
        "SECOND",
        "Backoff",
        "CircuitSettings",
        "Defaults",
        "DelayCeilings",
        "HeadStart",
        "PriorityDefaults",
        "Promote",
        "Retention",
        "RetryRule",
        "Rules",
        "Settings",
    ),
    "app.task_info": ("TaskInfo",),
    "worker.context": ("TaskContext", "current_task"),
    "worker.providers": ("Depends",),
    "worker.resources": ("Middleware",),
    "worker.sentry": ("Sentry",),
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
    "CEILINGS_BY_PRIORITY",
    "DAY",
    "HOUR",
    "MINUTE",
    "SECOND",
    "AdmissionRefused",
    "Backoff",
    "CircuitSettings",
    "Defaults",
    "DelayCeilings",
    "Depends",
    "Failure",
    "Fairlead",
    "FairleadError",
    "HeadStart",
    "InvalidSettings",
    "InvalidTask",
    "LeaseLost",
    "Metrics",
    "Middleware",
    "PayloadTooLarge",
    "Priority",
    "PriorityDefaults",
    "Promote",
    "QueueFull",
    "Reject",
    "Retention",
    "Retry",
    "RetryRule",
    "Rules",
    "Sentry",
    "Settings",
    "Snooze",
    "SoftTimeout",
    "State",
    "StoreError",
    "StoreFull",
    "StoreMismatch",
    "StoreReadOnly",
    "StoreUnavailable",
    "Strict",
    "Submission",
    "TaskContext",
    "TaskFailed",
    "TaskHandle",
    "TaskInfo",
    "TaskNotFound",
    "Weighted",
    "WrongState",
    "__version__",
    "chain",
    "current_task",
    "group",
]
