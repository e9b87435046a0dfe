"""What goes in and what comes out of the local queue: plain dicts, and the core's values they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NotRequired, TypedDict

from fairlead.core.errors import InvalidTask
from fairlead.core.instant import seconds
from fairlead.core.retry import Backoff
from fairlead.core.task import Failure, State, Task
from fairlead.core.validation import shown, span_of

STATUS: Final = {
    State.SCHEDULED: "pending",
    State.QUEUED: "pending",
    State.EXECUTING: "in_progress",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.DEAD_LETTER: "failed",
    State.CANCELLED: "cancelled",
}

_POLICY_FIELDS: Final = ("initial_seconds", "factor", "max_seconds", "jitter")
_POLICY: Final = f"write a Backoff, or a dict with any of {', '.join(_POLICY_FIELDS)}"


class SubmitAnswer(TypedDict):
    """The answer to a submit: the new task, or why there is none."""

    status: str
    """`pending`, or `rejected` when the queue is full."""
    task_id: NotRequired[str]
    error: NotRequired[str]


class TaskView(TypedDict):
    """A task as it stands. Moments are seconds since 1970."""

    task_id: str
    status: str
    payload: Any
    priority: str
    attempts: int
    retries: int
    max_retries: int
    created_at: float
    ready_at: float
    """When its wait began; in the future while a retry waits for its backoff."""
    started_at: float | None
    ended_at: float | None
    worker_id: str | None
    lease: str | None
    """What the holder shows to `complete_task`; new each time the task is taken."""
    cancel_requested: bool
    error: str | None


class Statistics(TypedDict):
    """How the queue stands."""

    total: int
    by_status: dict[str, int]
    pending_by_priority: dict[str, int]
    max_queue_size: int
    heap_size: int
    """Entries in the index of ready tasks, stale ones included."""
    heap_efficiency: float
    """The share of them that is live; below one half the index is compacted."""
    last_cleanup: float | None


class MaintenanceReport(TypedDict):
    """What one round of upkeep did."""

    removed: int
    """Ended tasks whose retention was over."""
    made_ready: int
    """Retries that had come due."""
    remaining: int


def view_of(task: Task, payload: object) -> TaskView:
    """A task as callers see it."""
    spec, status = task.spec, task.status
    return {
        "task_id": spec.id,
        "status": STATUS[status.state],
        "payload": payload,
        "priority": status.priority.word,
        "attempts": status.attempts,
        "retries": status.retries,
        "max_retries": spec.max_retries,
        "created_at": seconds(spec.created_at),
        "ready_at": seconds(status.ready_at),
        "started_at": None if status.started_at is None else seconds(status.started_at),
        "ended_at": None if status.ended_at is None else seconds(status.ended_at),
        "worker_id": None if status.lease is None else status.lease.worker,
        "lease": None if status.lease is None else status.lease.token,
        "cancel_requested": status.cancel_asked,
        "error": None if status.failure is None else status.failure.message,
    }


def backoff_of(policy: Backoff | Mapping[str, float] | None) -> Backoff | None:
    """The backoff that a retry policy describes; None for the default."""
    if policy is None or isinstance(policy, Backoff):
        return policy
    if not isinstance(policy, Mapping):
        raise InvalidTask("retry_policy", f"retry_policy {shown(policy)} is not a dict; {_POLICY}")
    for field in policy:
        if field not in _POLICY_FIELDS:
            raise InvalidTask("retry_policy", f"retry_policy field {shown(field)} is unknown; {_POLICY}")
    default = Backoff()
    return Backoff(
        initial=span_of("initial_seconds", policy.get("initial_seconds", seconds(default.initial))),
        factor=policy.get("factor", default.factor),
        ceiling=span_of("max_seconds", policy.get("max_seconds", seconds(default.ceiling))),
        jitter=policy.get("jitter", default.jitter),
    )


def failure_of(error: str | BaseException | None) -> Failure:
    """What went wrong, as the core keeps it."""
    kind = type(error).__name__ if isinstance(error, BaseException) else "Error"
    # A message may hold what no encoding can: the bytes of a file name, for one.
    try:
        message = "no reason was given" if error is None or error == "" else str(error)
    except Exception as raised:
        message = f"its str() raised {type(raised).__name__}"
    return Failure(type=kind, message=message.encode("utf-8", "backslashreplace").decode())
