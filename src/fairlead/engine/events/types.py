"""Events: what happened, told once in this process, and what the feed tells of it to all processes.

Logs, metrics, event streams and tests' waits all listen to the same occurrences. Core and stores never log.

An event of the feed is of a task, a worker, a queue or a circuit. It says what happened and to whom, never what a task
carries: no parameters, no results. The `data` of an event is what its JSON has, field by field.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from fairlead.core.health.quarantine import Fault, Quarantined
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.instant import MILLISECOND, Instant
from fairlead.core.task import QUEUED, Failure, Priority, Progress, Reason, State, Task
from fairlead.core.transitions import last_attempt
from fairlead.engine.runtime.telemetry import Logger
from fairlead.storage.protocol import Store

log = Logger("fairlead.quarantine")
tenancy_log = Logger("fairlead.tenancy")


class Happening(enum.StrEnum):
    """The kinds of occurrence."""

    SUBMITTED = "submitted"
    STARTED = "started"
    PROMOTED = "promoted"
    """Claimed earlier than its own priority would have been, because of its age."""
    READY = "ready"
    RETRYING = "retrying"
    HANDED_BACK = "handed_back"
    COMPLETED = "completed"
    FAILED = "failed"
    DEAD_LETTER = "dead_letter"
    CANCEL_ASKED = "cancel_asked"
    CANCELLED = "cancelled"
    REPLAYED = "replayed"
    PRIORITIZED = "prioritized"
    """It waits on, in another lane."""
    REMOVED = "removed"
    FOREIGN = "foreign"
    """Claimed by a worker of another tenant, and returned unseen: it waits as if it had never been taken."""
    REFUSED = "refused"
    """A settle under a lost lease; the task stands as it was."""


class Occurrence(Struct, frozen=True):
    """Something happened to a task, which stands as shown after it."""

    happening: Happening
    at: Instant
    task: Task


class Watcher:
    """Told of all tasks of an operation at once: for what must keep up with every task that there is.

    It is called in the thread where it happened, must be quick and must not raise. What it does not override is of no
    interest to it.
    """

    follows_workers = False
    """Whether it is told in a worker that has its tasks from a server, too: what the server does there."""

    def moved(self, tasks: Sequence[Task], at: Instant) -> None:
        """Tasks have come to their states; `happening_of` says how."""

    def promoted(self, task: Task, treated_as: Priority, at: Instant) -> None:
        """A task was claimed earlier than its own priority would have been."""

    def noted(self, occurrence: Occurrence) -> None:
        """A task was removed or returned unseen, or a settle refused."""

    def lost(self, worker: WorkerId) -> None:
        """A worker was not heard of for one lease length: told once, by whoever noticed."""

    def set_aside(self, found: Quarantined) -> None:
        """A record or a task could not be decoded: it was set aside, or is of a newer version."""

    def around(self, store: Store) -> Store:
        """The store that the engine should use in place of this one."""
        return store


Observer: TypeAlias = Callable[[Occurrence], None] | Watcher
"""Told of every occurrence, in the thread where it happened. Must be quick and must not raise."""


def happening_of(task: Task) -> Happening:
    """What happened to a task that has just come to its state."""
    status = task.status
    # Whatever is submitted comes by here, and most of it waits for its first attempt.
    if status.state is QUEUED and not status.history:
        return _BACK_IN_LINE.get(status.reason, Happening.RETRYING)
    match status.state:
        case State.QUEUED | State.SCHEDULED:
            # It waits for the reason that it had before: only its past tells of this.
            if status.history and status.history[-1].reason is Reason.PRIORITIZED:
                return Happening.PRIORITIZED
            return _BACK_IN_LINE.get(status.reason, Happening.RETRYING)
        case State.EXECUTING:
            return Happening.CANCEL_ASKED if status.cancel_asked else Happening.STARTED
        case State.COMPLETED:
            return Happening.COMPLETED
        case State.FAILED:
            return Happening.FAILED
        case State.DEAD_LETTER:
            return Happening.DEAD_LETTER
        case State.CANCELLED:
            return Happening.CANCELLED


_BACK_IN_LINE = {
    Reason.SUBMITTED: Happening.SUBMITTED,
    Reason.DUE: Happening.READY,
    Reason.DEPENDENT: Happening.SUBMITTED,
    Reason.RELEASED: Happening.READY,
    Reason.HANDED_BACK: Happening.HANDED_BACK,
    Reason.REPLAYED: Happening.REPLAYED,
}


def tell_foreign(task: Task) -> None:
    """Say in the log that a queue that is bound to a tenant holds another's task: only a person can end that."""
    tenancy_log.warning(
        "task %s in queue %s does not belong to the tenant of the queue: a worker of that tenant returned it "
        "without reading it; cancel it, or unbind the queue with `fairlead queues set %s --tenant default`",
        task.id,
        task.spec.queue,
        task.spec.queue,
    )


def tell_set_aside(found: Quarantined) -> None:
    """Say in the log what cannot be decoded: whoever runs this process has to know, whatever else listens."""
    if found.fault is Fault.NEWER:
        log.warning("%s was written by a newer version of fairlead and is skipped; update this process", found.key)
    else:
        log.error(
            "%s is damaged and was moved to quarantine: %s; see `fairlead quarantine show %s`",
            found.key,
            found.error,
            found.key,
        )


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
    """The progress that a worker has reported."""

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
    """The task's tenant; a listener whose key is bound to a tenant gets only events of that tenant. The same goes for
    workers and queues."""
    duration_ms: int | None = None
    """How long the attempt that ended took, in milliseconds."""


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
    """The task type whose circuit changed its state, and the counts that decided it."""

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
