"""What the feed tells: events of tasks, workers, queues and circuits, as any process may read them.

They say what happened and to whom, never what a task carries: no parameters, no results. The `data` of an event is
what its JSON has, field by field.
"""

from __future__ import annotations

import enum
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.instant import MILLISECOND, Instant
from fairlead.core.task import Failure, Progress, Reason, State, Task
from fairlead.core.transitions import last_attempt
from fairlead.engine.events.observers import Happening

_MESSAGE_LIMIT: Final = 500


class EventType(enum.StrEnum):
    """What an event tells of."""

    SUBMITTED = "task.submitted"
    """Also a task that is replayed: its reason says so."""
    STARTED = "task.started"
    PROGRESS = "task.progress"
    RETRYING = "task.retrying"
    """Also a task that is handed back: its reason says so."""
    COMPLETED = "task.completed"
    FAILED = "task.failed"
    DEAD_LETTER = "task.dead_letter"
    CANCELLED = "task.cancelled"
    PROMOTED = "task.promoted"
    JOINED = "worker.joined"
    LEFT = "worker.left"
    DRAINING = "worker.draining"
    LOST = "worker.lost"
    PAUSED = "worker.paused"
    """Someone has it claim no more, until it is resumed."""
    RESUMED = "worker.resumed"
    QUEUE_PAUSED = "queue.paused"
    QUEUE_RESUMED = "queue.resumed"
    QUEUE_CHANGED = "queue.changed"
    """Its bound, its order of service or its defaults."""
    TYPE_PAUSED = "task_type.paused"
    TYPE_RESUMED = "task_type.resumed"
    CIRCUIT_OPENED = "circuit.opened"
    """So many attempts of a task type failed that its tasks wait."""
    CIRCUIT_HALF_OPEN = "circuit.half_open"
    CIRCUIT_CLOSED = "circuit.closed"
    SKIPPED = "feed.skipped"


TYPES: Final = {
    Happening.SUBMITTED: EventType.SUBMITTED,
    Happening.REPLAYED: EventType.SUBMITTED,
    Happening.STARTED: EventType.STARTED,
    Happening.PROMOTED: EventType.PROMOTED,
    Happening.RETRYING: EventType.RETRYING,
    Happening.HANDED_BACK: EventType.RETRYING,
    Happening.COMPLETED: EventType.COMPLETED,
    Happening.FAILED: EventType.FAILED,
    Happening.DEAD_LETTER: EventType.DEAD_LETTER,
    Happening.CANCELLED: EventType.CANCELLED,
}
"""The occurrences that are told; the others are steps in between."""

_AFTER_ATTEMPT: Final = frozenset(
    {EventType.RETRYING, EventType.COMPLETED, EventType.FAILED, EventType.DEAD_LETTER, EventType.CANCELLED}
)
_WITH_ERROR: Final = frozenset({EventType.RETRYING, EventType.FAILED, EventType.DEAD_LETTER, EventType.CANCELLED})


class ErrorData(Struct, frozen=True, gc=False):
    """What went wrong, without the traceback."""

    type: str
    message: str


class ProgressData(Struct, frozen=True, gc=False):
    """How far an attempt says it is."""

    percent: float
    message: str


class TaskData(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task as it stands after the event."""

    task_id: TaskId
    task_type: str
    queue: str
    priority: str
    status: State
    attempt: int = 0
    worker_id: WorkerId | None = None
    """Who holds the task, or whose attempt has ended."""
    reason: Reason | None = None
    error: ErrorData | None = None
    progress: ProgressData | None = None
    tenant: str | None = None
    """The task's; whose key is bound to a tenant hears of its own tasks only. Likewise those of workers and queues."""
    duration_ms: int | None = None
    """How long the attempt took that has ended, in milliseconds."""


class WorkerData(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker as it stands after the event."""

    worker_id: WorkerId
    name: str
    host: str
    capacity: int
    running: int
    tenant: str | None = None


class QueueData(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which queue, or which task type, was changed by someone."""

    queue: str | None = None
    task_type: str | None = None
    tenant: str | None = None


class CircuitData(Struct, frozen=True, kw_only=True):
    """The task type whose circuit has turned, and what it was judged by."""

    task_type: str
    outcomes: int
    """How many attempts had ended within the window when it opened; 0 once it is closed."""
    failures: int
    """How many of them had failed."""


class SkippedData(Struct, frozen=True):
    """How many events were dropped, because more happened than one process publishes."""

    count: int


class TaskEvent(Struct, frozen=True, array_like=True, tag_field="of", tag="task"):
    """Something happened to a task."""

    type: EventType
    at: Instant
    data: TaskData


class WorkerEvent(Struct, frozen=True, array_like=True, tag_field="of", tag="worker"):
    """Something happened to a worker."""

    type: EventType
    at: Instant
    data: WorkerData


class QueueEvent(Struct, frozen=True, array_like=True, tag_field="of", tag="queue"):
    """Someone changed a queue, or how a task type is served."""

    type: EventType
    at: Instant
    data: QueueData


class CircuitEvent(Struct, frozen=True, array_like=True, tag_field="of", tag="circuit"):
    """The circuit of a task type has turned."""

    type: EventType
    at: Instant
    data: CircuitData


class SkippedEvent(Struct, frozen=True, array_like=True, tag_field="of", tag="skipped"):
    """Something is missing here."""

    type: EventType
    at: Instant
    data: SkippedData


FeedEvent: TypeAlias = TaskEvent | WorkerEvent | QueueEvent | CircuitEvent | SkippedEvent

encode_event: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(FeedEvent).decode


def decode_event(value: bytes) -> FeedEvent | None:
    """The event in a value of the feed; None for one of a later version, which this one does not know.

    One that is damaged is left out likewise: the feed is a view, and soon forgets it.
    """
    try:
        event: FeedEvent = _decode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return event


def task_event(event_type: EventType, at: Instant, task: Task, progress: Progress | None = None) -> TaskEvent:
    """The event of a task that stands like this after it."""
    spec, status = task.spec, task.status
    took = last_attempt(task, at) if event_type in _AFTER_ATTEMPT else None
    return TaskEvent(
        event_type,
        at,
        TaskData(
            task_id=spec.id,
            task_type=spec.type,
            queue=spec.queue,
            priority=status.priority.word,
            status=status.state,
            attempt=status.attempts,
            worker_id=worker_of(task),
            reason=None if status.state is State.EXECUTING else status.reason,
            error=_error(status.failure) if event_type in _WITH_ERROR else None,
            tenant=spec.tenant,
            progress=None if progress is None else ProgressData(progress.percent, progress.message[:_MESSAGE_LIMIT]),
            duration_ms=None if took is None else took // MILLISECOND,
        ),
    )


def worker_of(task: Task) -> WorkerId | None:
    """Who holds a task, or whose attempt was the last thing that happened to it."""
    status = task.status
    if status.lease is not None:
        return status.lease.worker
    return status.history[-1].worker if status.history else None


def _error(failure: Failure | None) -> ErrorData | None:
    return None if failure is None else ErrorData(failure.type, failure.message[:_MESSAGE_LIMIT])
