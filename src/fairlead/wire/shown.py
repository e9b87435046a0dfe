"""Tasks: how they are shown, over HTTP and by `--json` of the command line. Fields are added, never changed."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from fairlead.core.instant import SECOND, Instant
from fairlead.core.order import Table, treated_as
from fairlead.core.task import Failure, Progress, State, Task
from fairlead.core.trace import trace_id_of, traceparent_in
from fairlead.wire.history import Transition, transitions
from fairlead.wire.moments import iso, maybe_iso


class TaskError(Struct, kw_only=True):
    """What went wrong in an attempt."""

    type: str
    message: str
    traceback: str | None
    """Shown with the whole task only."""


class TaskProgress(Struct, kw_only=True):
    """How far an attempt says it is."""

    percent: float
    message: str
    at: str


class TaskBrief(Struct, kw_only=True):
    """A task without what can be large."""

    task_id: str
    task_type: str
    queue: str
    status: str
    """`scheduled`, `queued`, `executing`, `completed`, `failed`, `dead_letter` or `cancelled`."""
    reason: str
    """Why it came to its status."""
    priority: str
    effective_priority: str
    """What it is treated as because of its wait; once it is claimed, what it was treated as then."""
    required_capabilities: list[str]
    tags: list[str]
    created_at: str
    run_at: str | None
    """When it is due, while it is scheduled."""
    queued_at: str | None
    """When its wait began, the last time that it was queued."""
    started_at: str | None
    completed_at: str | None
    """When it ended, in whatever way."""
    attempts: int
    """How often it was claimed."""
    retry_count: int
    max_retries: int
    crash_count: int
    max_crashes: int
    timeout_seconds: float
    """How long the current or next attempt may take."""
    assigned_worker_id: str | None
    lease_until: str | None
    cancel_requested: bool
    idempotency_key: str | None
    tenant: str | None
    trace_id: str | None
    """The trace that it belongs to: the one in its traceparent, or the id that its submitter gave."""
    traceparent: str | None
    """What leads to the span of its submit, if that was traced."""
    concurrency_key: str | None
    """Tasks of one queue that share it run one at a time, or as many at once as the queue says."""
    progress: TaskProgress | None
    error: TaskError | None
    pending: int = 0
    """How many of the tasks that it waits for have not ended."""
    unmet: int = 0
    """How many of them ended other than completed."""
    on_failure: str | None = None
    """What becomes of it when one of them does: `cancel` or `run_anyway`; null if it waits for none."""


class TaskWhole(TaskBrief, kw_only=True):
    """A task with everything."""

    parameters: Raw
    """As its submitter wrote them."""
    result: Raw
    """As its worker wrote it; null if there is none."""
    after: list[str] = []
    """The tasks that must have ended before it may run."""
    history: list[Transition] | UnsetType = UNSET
    """Every transition, the oldest first. Over HTTP, only if it is asked for."""


def brief(task: Task, table: Table, now: Instant) -> TaskBrief:
    """A task without what can be large, in an order of service with this table."""
    return TaskBrief(**_fields(task, table, now), error=_error(task.status.failure, whole=False))


def whole(task: Task, table: Table, now: Instant, *, history: bool = True) -> TaskWhole:
    """A task with everything."""
    return TaskWhole(
        **_fields(task, table, now),
        error=_error(task.status.failure, whole=True),
        parameters=Raw(task.spec.parameters),
        result=Raw(b"null" if task.status.result is None else task.status.result),
        after=[] if task.spec.after is None else list(task.spec.after.tasks),
        history=transitions(task) if history else UNSET,
    )


def with_field(shape: TaskBrief, **more: Any) -> dict[str, Any]:
    """A shape with a field more."""
    return {**msgspec.structs.asdict(shape), **more}


def _fields(task: Task, table: Table, now: Instant) -> dict[str, Any]:
    spec, status = task.spec, task.status
    scheduled = status.state is State.SCHEDULED
    return {
        "task_id": spec.id,
        "task_type": spec.type,
        "queue": spec.queue,
        "status": status.state.value,
        "reason": status.reason.value,
        "priority": status.priority.word,
        "effective_priority": treated_as(table, task, now).word,
        "required_capabilities": list(spec.requires),
        "tags": list(spec.tags),
        "created_at": iso(spec.created_at),
        "run_at": iso(status.ready_at) if scheduled else None,
        "queued_at": None if scheduled else iso(status.ready_at),
        "started_at": maybe_iso(status.started_at),
        "completed_at": maybe_iso(status.ended_at),
        "attempts": status.attempts,
        "retry_count": status.retries,
        "max_retries": spec.max_retries,
        "crash_count": status.crashes,
        "max_crashes": spec.max_crashes,
        "timeout_seconds": status.timeout / SECOND,
        "assigned_worker_id": status.lease.worker if status.lease else None,
        "lease_until": iso(status.lease.until) if status.lease else None,
        "cancel_requested": status.cancel_asked,
        "idempotency_key": spec.idempotency_key,
        "tenant": spec.tenant,
        "trace_id": trace_id_of(spec.trace),
        "traceparent": traceparent_in(spec.trace),
        "concurrency_key": spec.concurrency_key,
        "progress": _progress(status.progress),
        "pending": status.pending,
        "unmet": status.unmet,
        "on_failure": None if spec.after is None else spec.after.on_failure.value,
    }


def _error(failure: Failure | None, *, whole: bool) -> TaskError | None:
    if failure is None:
        return None
    return TaskError(type=failure.type, message=failure.message, traceback=failure.traceback if whole else None)


def _progress(progress: Progress | None) -> TaskProgress | None:
    if progress is None:
        return None
    return TaskProgress(percent=progress.percent, message=progress.message, at=iso(progress.at))
