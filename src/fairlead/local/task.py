"""The values of the in-process queue: a task, its status and its priority, how its index stands, and what it raises."""

from __future__ import annotations

import enum
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import uuid4

from msgspec import Struct, field

from fairlead.core.errors import FairleadError, InvalidTask, QueueFull, TaskNotFound, WrongState
from fairlead.core.instant import Instant
from fairlead.core.submission import DEFAULT_QUEUE
from fairlead.core.task import Priority, State
from fairlead.core.validation import member_of, shown
from fairlead.storage.memory.alarm_heap import wants_compacting


class QueueFullError(QueueFull):
    """As many tasks are pending as the queue may hold; nothing was stored."""

    def __init__(self, depth: int, bound: int) -> None:
        FairleadError.__init__(
            self,
            f"the queue is full: {depth:,} tasks are pending and max_queue_size is {bound:,}; "
            f"submit later, take tasks from it, or raise max_queue_size",
        )
        self.queue = DEFAULT_QUEUE
        self.depth = depth
        self.bound = bound


class TaskNotFoundError(TaskNotFound):
    """No task has this id: it was never in the queue, or it has ended and was removed."""

    def __init__(self, task_id: object) -> None:
        super().__init__(task_id if isinstance(task_id, str) else shown(task_id))


class InvalidStateTransitionError(WrongState):
    """The task's status does not allow what was asked."""

    def __init__(self, task_id: str, status: str, wanted: str, remedy: str) -> None:
        FairleadError.__init__(self, f"task {task_id} is {status}, so it cannot become {wanted}; {remedy}")
        self.task_id = task_id
        self.state = status
        self.event = wanted


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TaskPriority(enum.IntEnum):
    """How urgent a task is: the greater, the more urgent."""

    LOW = 1
    MEDIUM = 2
    HIGH = 3
    CRITICAL = 4


class TaskStatus(enum.StrEnum):
    """How a task stands."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


STATUS: Final = {
    State.SCHEDULED: TaskStatus.PENDING,
    State.QUEUED: TaskStatus.PENDING,
    State.EXECUTING: TaskStatus.IN_PROGRESS,
    State.COMPLETED: TaskStatus.COMPLETED,
    State.FAILED: TaskStatus.FAILED,
    State.DEAD_LETTER: TaskStatus.FAILED,
    State.CANCELLED: TaskStatus.CANCELLED,
}


def _new_id() -> str:
    return uuid4().hex


class Task(Struct, frozen=True):
    """A task: what to submit, and how it stood when the queue was asked for it. It never changes by itself."""

    payload: Any = None
    """Any object; it is neither copied nor encoded."""
    priority: TaskPriority = TaskPriority.MEDIUM
    max_retries: int = 3
    """How many failures end it: 3 means three attempts."""
    retry_policy: dict[Any, Any] | None = None
    """What its worker is to know of retries; the queue carries it and does not look into it."""
    task_id: str = field(default_factory=_new_id)

    # From here on, what the queue says of it.
    status: TaskStatus = TaskStatus.PENDING
    created_at: datetime | None = None
    """When it was submitted; None before that."""
    started_at: datetime | None = None
    """When its present or its last attempt began."""
    completed_at: datetime | None = None
    """When it ended, however it did."""
    error_message: str | None = None
    retry_count: int = 0
    """How many attempts have failed."""
    worker_id: str | None = None
    """Who has it, or had it when it ended."""
    age_seconds: float = 0.0
    """How long ago it was submitted, by a clock that nobody sets."""
    time_in_progress: float | None = None
    """How long its holder has had it, in seconds, by a clock that nobody sets."""
    attempts: int = 0
    """How often it was taken; requeuing counts, too."""
    ready_at: datetime | None = None
    """When its wait began; in the future while a retry waits for its backoff."""
    lease: str | None = None
    """What its holder shows to be heard, and nobody else; new each time the task is taken."""
    cancel_requested: bool = False
    """Whether its holder was asked to stop."""


class HeapHealth(Struct, frozen=True):
    """How the index of pending tasks stands."""

    total_entries: int = 0
    valid_entries: int = 0
    invalid_entries: int = 0
    """Entries of tasks that have moved on; skipped when they surface, and removed when the index is rebuilt."""
    last_rebuild: datetime | None = None

    @property
    def efficiency(self) -> float:
        """The share of entries that are valid."""
        return self.valid_entries / self.total_entries if self.total_entries else 1.0

    @property
    def should_rebuild(self) -> bool:
        """Whether fewer than half of the entries are valid, and there are at least 100 of them."""
        return wants_compacting(self.total_entries, self.valid_entries)


def priority_of(said: object) -> TaskPriority:
    """The priority that somebody means: a member, a word in any case, or a number from 1 to 4.

    Members of other enums and booleans are never taken for their numbers.
    """
    if type(said) is TaskPriority:
        return said
    if type(said) is int and TaskPriority.LOW <= said <= TaskPriority.CRITICAL:
        return TaskPriority(said)
    if type(said) is Priority:
        return TaskPriority[said.name]
    if isinstance(said, str):
        try:
            return TaskPriority[Priority.parse(str.lower(said)).name]
        except InvalidTask:
            pass
    words = ", ".join(priority.word for priority in Priority)
    message = f"priority {shown(said)} is unknown; use one of {words}, or a number from 1 (low) to 4 (critical)"
    raise InvalidTask("priority", message)


def status_of(said: object) -> TaskStatus:
    """The status that somebody means: a member, or its word."""
    return member_of("status", said, TaskStatus)


def moment_of(at: Instant | None) -> datetime | None:
    """A moment as Python has it, in UTC."""
    return None if at is None else _EPOCH + timedelta(microseconds=at)
