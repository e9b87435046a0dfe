"""Dead letters, grouped: how many there are of each type, and of each error whatever ids it names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fairlead.core.dead_letters import ErrorGroup, Groups, TypeCount, fingerprint_of, pattern_of
from fairlead.core.instant import Instant
from fairlead.core.query.query import DEAD, EVERYTHING, Query
from fairlead.core.settings import Settings
from fairlead.core.task import Failure, Task
from fairlead.engine.runtime.clock import Clock
from fairlead.engine.search import COUNT_SECONDS, MOST_LOOKED, MOST_SECONDS, SearchBudget, Searcher, plan
from fairlead.storage.values import Filter

MOST_GROUPED: Final = 500_000
"""How many dead letters are looked at, the newest first."""


class DeadLetters:
    """The dead letters of one store."""

    def __init__(self, searcher: Searcher, settings: Settings, clock: Clock) -> None:
        self._searcher = searcher
        self._settings = settings
        self._clock = clock

    async def total(self, query: Query = EVERYTHING, *, within: Filter | None = None) -> int | None:
        """How many dead letters a query means, of those that a filter admits; None if that takes longer than a page.

        All of a queue or a type are told by the tally. Others are counted by looking at them, as a search does.
        """
        sought = plan(query.and_(DEAD), self._clock.now(), within)
        count = await self._searcher.count(sought, SearchBudget(MOST_LOOKED, MOST_SECONDS))
        return count.number if count.exact else None

    async def groups(self, query: Query = EVERYTHING, *, within: Filter | None = None) -> Groups:
        """Group the dead letters that a query means, of those that a filter admits."""
        now = self._clock.now()
        sums: dict[tuple[str, str], _Sum] = {}
        total = 0
        complete = True
        budget = SearchBudget(MOST_GROUPED, COUNT_SECONDS)
        async for found in self._searcher.all(plan(query.and_(DEAD), now, within), budget=budget):
            total += len(found.tasks)
            await self._searcher.work(_add, sums, found.tasks)
            complete = found.cursor is None
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


def _add(sums: dict[tuple[str, str], _Sum], tasks: Sequence[Task]) -> None:
    """Put dead letters into their groups."""
    for task in tasks:
        failure = task.status.failure or Failure(type=task.status.reason)
        key = (task.spec.type, fingerprint_of(failure))
        known = sums.get(key)
        if known is None:
            sums[key] = _Sum(task, failure)
        else:
            known.add(task)


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
