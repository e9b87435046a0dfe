"""A task as a program reads it: moments as datetimes, its result as its function says."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from fairlead.core.instant import Instant
from fairlead.core.task import Failure, Priority, State, Task

R = TypeVar("R")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def moment(at: Instant) -> datetime:
    """An instant as a datetime, in UTC."""
    return _EPOCH + timedelta(microseconds=at)


class TaskInfo(Struct, Generic[R], frozen=True, kw_only=True):
    """How a task stood when it was looked at, decoded. Moments are datetimes in UTC."""

    id: str
    """Its id, as submit returned it."""
    type: str
    """The name of its task type."""
    queue: str
    """The queue it was submitted to."""
    status: State
    """Where it is in its life."""
    reason: str
    """Why it came to that: `submitted`, `completed`, `retries_used_up` and so on."""
    priority: Priority
    """How urgent it is, without what its wait adds."""
    parameters: dict[str, Any]
    """The arguments as they were stored: what JSON can hold, by the names of the parameters."""
    result: R | None
    """What the handler returned, as its annotation says; None until it has completed."""
    error: Failure | None
    """What went wrong in the last attempt that failed: `type`, `message` and `traceback`."""
    progress: float | None
    """How far it is, from 0 to 100, if its handler has said so."""
    progress_message: str
    """What its handler said of that."""
    created_at: datetime
    """When it was submitted."""
    due_at: datetime | None
    """When it is due, while it is scheduled."""
    expires_at: datetime | None
    """After this moment it is not started any more."""
    queued_at: datetime | None
    """When its wait began, the last time that it was queued."""
    started_at: datetime | None
    """When its last attempt began."""
    ended_at: datetime | None
    """When it ended, in whatever way."""
    attempts: int
    """How often it was claimed."""
    retries: int
    """How many of its retries are spent."""
    max_retries: int
    """How many it has."""
    crashes: int
    """How many of its attempts were lost with their process."""
    timeout: timedelta
    """How long the current or next attempt may take."""
    worker: str | None
    """The worker that runs it."""
    cancel_asked: bool
    """Whether its worker is to stop it."""
    requires: tuple[str, ...]
    """What a worker must be able to do to take it."""
    tags: tuple[str, ...]
    """Words to find it by."""
    tenant: str | None
    """On whose behalf it runs."""
    idempotency_key: str | None
    """The key under which a second submit gives this task."""
    concurrency_key: str | None
    """Tasks of one queue that share it run one at a time."""
    fair_key: str | None
    """Whose turns it takes in a queue that fair keys share."""
    trace_id: str
    """The trace that it belongs to; its own id, if it has none."""
    after: tuple[str, ...]
    """The tasks that it waits for, or has waited for."""


def info_of(task: Task, result_of: Callable[[Task], Any]) -> TaskInfo[Any]:
    """What is known of a task; `result_of` is asked for the result of one that has completed."""
    spec, status = task.spec, task.status
    scheduled = status.state is State.SCHEDULED
    return TaskInfo(
        id=spec.id,
        type=spec.type,
        queue=spec.queue,
        status=status.state,
        reason=status.reason.value,
        priority=status.priority,
        parameters=msgspec.json.decode(spec.parameters),
        result=result_of(task) if status.state is State.COMPLETED else None,
        error=status.failure,
        progress=None if status.progress is None else status.progress.percent,
        progress_message="" if status.progress is None else status.progress.message,
        created_at=moment(spec.created_at),
        due_at=moment(status.ready_at) if scheduled and not status.waits else None,
        expires_at=None if status.expires_at is None else moment(status.expires_at),
        queued_at=None if scheduled else moment(status.ready_at),
        started_at=None if status.started_at is None else moment(status.started_at),
        ended_at=None if status.ended_at is None else moment(status.ended_at),
        attempts=status.attempts,
        retries=status.retries,
        max_retries=spec.max_retries,
        crashes=status.crashes,
        timeout=timedelta(microseconds=status.timeout),
        worker=None if status.lease is None else status.lease.worker,
        cancel_asked=status.cancel_asked,
        requires=spec.requires,
        tags=spec.tags,
        tenant=spec.tenant,
        idempotency_key=spec.key,
        concurrency_key=spec.concurrency_key,
        fair_key=spec.fair_key,
        trace_id=spec.trace_id,
        after=() if spec.after is None else spec.after.tasks,
    )
