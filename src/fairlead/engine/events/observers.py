"""What happened, told once.

Logs, metrics, event streams and tests' waits all listen to the same occurrences. Core and stores never log.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from fairlead.core.health.quarantine import Fault, Quarantined
from fairlead.core.identity import WorkerId
from fairlead.core.instant import Instant
from fairlead.core.task import Priority, Reason, State, Task
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
    match task.state:
        case State.QUEUED | State.SCHEDULED:
            # It waits for the reason that it had before: only its past tells of this.
            if task.status.history and task.status.history[-1].reason is Reason.PRIORITIZED:
                return Happening.PRIORITIZED
            return _BACK_IN_LINE.get(task.status.reason, Happening.RETRYING)
        case State.EXECUTING:
            return Happening.CANCEL_ASKED if task.status.cancel_asked else Happening.STARTED
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
