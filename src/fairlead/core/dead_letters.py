"""Dead letters as they are counted: by type, and by error whatever ids its message names."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant, Span
from fairlead.core.query.query import Query, term
from fairlead.core.task import State

DEAD: Final = term("state", State.DEAD_LETTER)
"""The condition that a task is a dead letter."""


def dead_letters_of(query: Query) -> Query:
    """A query about dead letters, unless it says which states it is about."""
    return query if query.names("state") else query.and_(DEAD)


class ErrorGroup(Struct, frozen=True, kw_only=True):
    """Dead letters of one type whose errors are the same but for what varies."""

    type: str
    fingerprint: str
    error: str
    """The error's own type."""
    pattern: str
    """Its message, with what varies named instead."""
    count: int
    first_seen: Instant
    """When the first of them became a dead letter."""
    last_seen: Instant
    example: TaskId
    """The latest of them."""
    message: str
    """The message of that one."""


class TypeCount(Struct, frozen=True, kw_only=True):
    """How many dead letters of one type there are."""

    type: str
    count: int
    alert_at: int | None
    """From how many on they are reason for an alert; None for never."""

    @property
    def alert(self) -> bool:
        """Whether there are so many."""
        return self.alert_at is not None and self.count >= self.alert_at


class Burst(Struct, frozen=True, kw_only=True):
    """What was told of the dead letters of one task type, or of one queue, that has an alert threshold.

    They are a burst from the alert on until as many are dealt with, or none has been added for a while. A burst is told
    once. What is left of it does not count towards the next.
    """

    known: int = 0
    """How many there were that do not count towards the next alert."""
    seen: int = 0
    """How many there were at the last look."""
    grew_at: Span = 0
    told_at: Span | None = None
    under_way: bool = False

    def after(self, count: int, threshold: int, now: Span, pause: Span) -> Burst:
        """The same after a look at this moment of a steady clock; it is an alert if it was told of just then.

        No two alerts are less than a pause apart.
        """
        known, under_way = min(self.known, count), self.under_way
        grew_at = now if count > self.seen else self.grew_at
        if under_way and (count - known < threshold or now - grew_at >= pause):
            known, under_way = count, False
        rested = self.told_at is None or now - self.told_at >= pause
        if not under_way and rested and count - known >= threshold:
            return Burst(known=known, seen=count, grew_at=now, told_at=now, under_way=True)
        return Burst(known=known, seen=count, grew_at=grew_at, told_at=self.told_at, under_way=under_way)

    def is_over(self, now: Span, pause: Span) -> bool:
        """Whether nothing needs to be remembered of it."""
        rested = self.told_at is None or now - self.told_at >= pause
        return rested and not self.under_way and not self.known


class Groups(Struct, frozen=True, kw_only=True):
    """The dead letters, grouped; what there is most of comes first."""

    as_of: Instant
    total: int
    complete: bool
    """Whether all were looked at; otherwise these are the newest."""
    types: list[TypeCount]
    groups: list[ErrorGroup]
