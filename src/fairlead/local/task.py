"""A task of the in-process queue, its status and its priority, and how they are told: values and plain dicts."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NotRequired, TypedDict
from uuid import uuid4

from msgspec import Struct, field

from fairlead.core.errors import FairleadError, InvalidTask, QueueFull, TaskNotFound, WrongState
from fairlead.core.instant import Instant, seconds
from fairlead.core.retry import Backoff
from fairlead.core.submission import DEFAULT_QUEUE
from fairlead.core.task import Failure, Priority, State
from fairlead.core.validation import member_of, shown, span_of
from fairlead.storage.memory.alarm_heap import wants_compacting
from fairlead.storage.values import Tally


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


AT_ONCE: Final = Backoff(initial=0, jitter=0.0)
"""What failed is pending again without a wait."""

_BACKOFF_FIELDS: Final = ("initial_seconds", "factor", "max_seconds", "jitter")
_BACKOFF: Final = f"write a Backoff, or a dict with any of {', '.join(_BACKOFF_FIELDS)}"


class SubmitAnswer(TypedDict):
    """The answer to a submit: the new task, or why there is none."""

    status: str
    """`pending`, or `rejected` when the queue is full."""
    task_id: NotRequired[str]
    priority: NotRequired[str]
    error: NotRequired[str]


class NextTask(TypedDict):
    """A task as its worker gets it."""

    task_id: str
    payload: Any
    priority: str
    retry_count: int
    max_retries: int
    retry_policy: dict[Any, Any] | None


class CompleteAnswer(TypedDict, total=False):
    """The answer to who says how an attempt ended: how it did, or why that was not heard."""

    task_id: str
    status: str
    """How the attempt ended: `completed` or `failed`."""
    retried: bool
    """Whether the task is pending again."""
    error: str


class TaskReport(TypedDict):
    """A task as it stands. Moments are texts in ISO 8601, UTC."""

    task_id: str
    status: str
    priority: str
    created_at: str | None
    started_at: str | None
    completed_at: str | None
    error_message: str | None
    retry_count: int
    max_retries: int
    worker_id: str | None
    age_seconds: float
    time_in_progress: float | None


class CancelAnswer(TypedDict):
    """The answer to a cancel."""

    task_id: str
    cancelled: bool
    message: str


class RequeueAnswer(TypedDict):
    """The answer to a requeue."""

    task_id: str
    requeued: bool
    reset_retries: bool
    message: str


class StuckAnswer(TypedDict):
    """What became of the tasks that were stuck."""

    stuck_tasks_found: int
    tasks_requeued: int
    task_ids: list[str]
    """Those that were requeued."""


class Statistics(TypedDict):
    """How the queue stands."""

    total_tasks: int
    pending: int
    in_progress: int
    completed: int
    failed: int
    cancelled: int
    pending_by_priority: dict[str, int]
    heap_size: int
    """Entries in the index of pending tasks, stale ones included."""
    heap_efficiency: float
    """The share of them that is valid."""
    last_cleanup: str | None
    last_heap_rebuild: str | None


class MaintenanceReport(TypedDict):
    """What one round of maintenance did."""

    tasks_removed: int
    """Ended tasks whose retention was over."""
    heap_entries_removed: int
    """Stale entries of the index of pending tasks."""
    tasks_remaining: int
    heap_size: int


def next_task(task: Task) -> NextTask:
    """A task as its worker gets it."""
    return {
        "task_id": task.task_id,
        "payload": task.payload,
        "priority": task.priority.name,
        "retry_count": task.retry_count,
        "max_retries": task.max_retries,
        "retry_policy": task.retry_policy,
    }


def report_of(task: Task) -> TaskReport:
    """A task as who asks for it sees it."""
    return {
        "task_id": task.task_id,
        "status": task.status.value,
        "priority": task.priority.name,
        "created_at": iso(task.created_at),
        "started_at": iso(task.started_at),
        "completed_at": iso(task.completed_at),
        "error_message": task.error_message,
        "retry_count": task.retry_count,
        "max_retries": task.max_retries,
        "worker_id": task.worker_id,
        "age_seconds": task.age_seconds,
        "time_in_progress": task.time_in_progress,
    }


def statistics_of(tally: Tally, health: HeapHealth, cleaned_at: datetime | None) -> Statistics:
    """How a queue stands, from what its store counts."""
    by_status: Counter[TaskStatus] = Counter()
    pending = {priority.name: 0 for priority in reversed(TaskPriority)}
    for lane in tally.lanes:
        for state, count in lane.counts.items():
            by_status[STATUS[state]] += count
            if state.waiting:
                pending[lane.lane.priority.name] += count
    return {
        "total_tasks": by_status.total(),
        "pending": by_status[TaskStatus.PENDING],
        "in_progress": by_status[TaskStatus.IN_PROGRESS],
        "completed": by_status[TaskStatus.COMPLETED],
        "failed": by_status[TaskStatus.FAILED],
        "cancelled": by_status[TaskStatus.CANCELLED],
        "pending_by_priority": pending,
        "heap_size": health.total_entries,
        "heap_efficiency": health.efficiency,
        "last_cleanup": iso(cleaned_at),
        "last_heap_rebuild": iso(health.last_rebuild),
    }


def iso(moment: datetime | None) -> str | None:
    """A moment as text, always to the microsecond, so that texts sort like moments."""
    return None if moment is None else moment.isoformat(timespec="microseconds")


def backoff_of(said: Backoff | Mapping[str, float] | None) -> Backoff:
    """How long a failed task waits: not at all, unless somebody says so."""
    if said is None:
        return AT_ONCE
    if isinstance(said, Backoff):
        return said
    if not isinstance(said, Mapping):
        raise InvalidTask("backoff", f"backoff {shown(said)} is not a dict; {_BACKOFF}")
    for key in said:
        if key not in _BACKOFF_FIELDS:
            raise InvalidTask("backoff", f"backoff field {shown(key)} is unknown; {_BACKOFF}")
    default = Backoff()
    return Backoff(
        initial=span_of("initial_seconds", said.get("initial_seconds", seconds(default.initial))),
        factor=said.get("factor", default.factor),
        ceiling=span_of("max_seconds", said.get("max_seconds", seconds(default.ceiling))),
        jitter=said.get("jitter", default.jitter),
    )


def policy_of(said: object) -> dict[Any, Any] | None:
    """What a worker is to know of retries; it is not looked into."""
    if said is None or isinstance(said, dict):
        return said
    remedy = "write backoff= for a wait that the queue sees to" if isinstance(said, Backoff) else "write a dict or None"
    raise InvalidTask("retry_policy", f"retry_policy {shown(said)} is not a dict; {remedy}")


def failure_of(error: object) -> Failure:
    """What went wrong, as the core keeps it; its message is empty when nothing was said."""
    kind = type(error).__name__ if isinstance(error, BaseException) else "Error"
    # A message may hold what no encoding can: the bytes of a file name, for one.
    try:
        message = "" if error is None else str(error)
    except Exception as raised:
        message = f"its str() raised {type(raised).__name__}"
    if not message and isinstance(error, BaseException):
        message = kind
    return Failure(type=kind, message=message.encode("utf-8", "backslashreplace").decode())
