"""What goes in and what comes out of the local queue: plain dicts, and the values they stand for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NotRequired, TypedDict

from fairlead.core.errors import InvalidTask
from fairlead.core.instant import seconds
from fairlead.core.retry import Backoff
from fairlead.core.task import Failure
from fairlead.core.validation import shown, span_of
from fairlead.local.task import STATUS, HeapHealth, Task, TaskPriority, TaskStatus
from fairlead.storage.values import Tally

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
    for field in said:
        if field not in _BACKOFF_FIELDS:
            raise InvalidTask("backoff", f"backoff field {shown(field)} is unknown; {_BACKOFF}")
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
