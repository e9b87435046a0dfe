"""What happened, told once.

Logs, metrics, event streams and tests' waits all listen to the same occurrences. Core and stores never log.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from fairlead.core.instant import Instant
from fairlead.core.task import Reason, State, Task


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
    REMOVED = "removed"
    REFUSED = "refused"
    """A settle under a lost lease; the task stands as it was."""


class Occurrence(Struct, frozen=True):
    """Something happened to a task, which stands as shown after it."""

    happening: Happening
    at: Instant
    task: Task


Observer: TypeAlias = Callable[[Occurrence], None]
"""Told of every occurrence, in the thread where it happened. Must be quick and must not raise."""


def happening_of(task: Task) -> Happening:
    """What happened to a task that has just come to its state."""
    match task.state:
        case State.QUEUED | State.SCHEDULED:
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
