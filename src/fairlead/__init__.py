"""fairlead: a priority task queue that never starves a task, never loses one, and can say why each one waits."""

from fairlead._version import __version__
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
from fairlead.core.retry import Backoff
from fairlead.core.settings import Settings
from fairlead.core.task import Priority, State
from fairlead.sdk.app import Fairlead
from fairlead.sdk.handle import TaskHandle
from fairlead.worker.context import TaskContext, current_task

__all__ = [
    "Backoff",
    "Fairlead",
    "FairleadError",
    "InvalidSettings",
    "InvalidTask",
    "LeaseLost",
    "PayloadTooLarge",
    "Priority",
    "QueueFull",
    "Reject",
    "Retry",
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
    "current_task",
]
