"""Dead letters as they are counted: by type, and by error whatever ids its message names."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
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


class Groups(Struct, frozen=True, kw_only=True):
    """The dead letters, grouped; what there is most of comes first."""

    as_of: Instant
    total: int
    complete: bool
    """Whether all were looked at; otherwise these are the newest."""
    types: list[TypeCount]
    groups: list[ErrorGroup]
