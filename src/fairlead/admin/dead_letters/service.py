"""Dead letters, grouped: how many there are of each type, and of each error whatever ids it names."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from fairlead.core.fingerprint import fingerprint_of, pattern_of
from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.query import EVERYTHING, Query, term
from fairlead.core.settings import Settings
from fairlead.core.task import Failure, State, Task
from fairlead.engine.clock import Clock
from fairlead.engine.searching import Searcher, plan
from fairlead.storage.values import Filter

DEAD: Final = term("state", State.DEAD_LETTER)
"""The condition that a task is a dead letter."""
MOST_GROUPED: Final = 500_000
"""How many dead letters are looked at, the newest first."""


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


class DeadLetters:
    """The dead letters of one store."""

    def __init__(self, searcher: Searcher, settings: Settings, clock: Clock) -> None:
        self._searcher = searcher
        self._settings = settings
        self._clock = clock

    async def groups(self, query: Query = EVERYTHING, *, within: Filter | None = None) -> Groups:
        """Group the dead letters that a query means, of those that a filter admits."""
        now = self._clock.now()
        sums: dict[tuple[str, str], _Sum] = {}
        total = 0
        complete = True
        looked = 0
        async for found in self._searcher.all(plan(query.and_(DEAD), now, within)):
            total += len(found.tasks)
            looked += found.looked
            for task in found.tasks:
                failure = task.status.failure or Failure(type=task.status.reason)
                key = (task.spec.type, fingerprint_of(failure))
                known = sums.get(key)
                if known is None:
                    sums[key] = _Sum(task, failure)
                else:
                    known.add(task)
            if looked >= MOST_GROUPED and found.cursor is not None:
                complete = False
                break
        groups = [each.group(kind, fingerprint) for (kind, fingerprint), each in sums.items()]
        counts: dict[str, int] = {}
        for group in groups:
            counts[group.type] = counts.get(group.type, 0) + group.count
        return Groups(
            as_of=now,
            total=total,
            complete=complete,
            types=sorted(
                (
                    TypeCount(type=kind, count=count, alert_at=self._settings.alert_at(kind))
                    for kind, count in counts.items()
                ),
                key=lambda each: (-each.count, each.type),
            ),
            groups=sorted(groups, key=lambda group: (-group.count, group.type, group.fingerprint)),
        )


class _Sum:
    """A group while it is counted."""

    __slots__ = ("_count", "_example", "_failure", "_first", "_last")

    def __init__(self, task: Task, failure: Failure) -> None:
        self._count = 1
        self._example = task
        self._failure = failure
        self._first = self._last = _ended(task)

    def add(self, task: Task) -> None:
        self._count += 1
        ended = _ended(task)
        if ended < self._first:
            self._first = ended
        elif ended > self._last:
            self._last = ended
            self._example = task
            self._failure = task.status.failure or self._failure

    def group(self, kind: str, fingerprint: str) -> ErrorGroup:
        return ErrorGroup(
            type=kind,
            fingerprint=fingerprint,
            error=self._failure.type,
            pattern=pattern_of(self._failure.message),
            count=self._count,
            first_seen=self._first,
            last_seen=self._last,
            example=self._example.id,
            message=self._failure.message,
        )


def _ended(task: Task) -> Instant:
    ended = task.status.ended_at
    return task.spec.created_at if ended is None else ended
