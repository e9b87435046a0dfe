"""Searching: a query in two parts, what a store's filter can tell and what is looked at here.

A call looks at a bounded number of tasks, so that none runs for ever: a page may have fewer tasks than asked for, or
none, and its cursor still leads further.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from fairlead.core.errors import InvalidTask
from fairlead.core.identity import TaskId, WorkerId, parse_task_id
from fairlead.core.instant import Instant
from fairlead.core.query import Kind, Query, Term, Within, priorities_of, states_of
from fairlead.core.query_match import Matcher, bounds, matcher
from fairlead.core.task import Task
from fairlead.storage.protocol import Lagging, Store
from fairlead.storage.values import Filter

MOST_LOOKED: Final = 10_000
"""How many tasks one page of a search looks at."""
CHUNK: Final = 1_000
"""How many tasks are read at once."""
MOST_COUNTED: Final = 300_000
"""How many tasks are looked at to count them."""
_LEAST: Final = 100


class Found(Struct, frozen=True):
    """One page of a search."""

    tasks: list[Task]
    cursor: TaskId | None
    """Where to go on: the last task looked at; None when there is no more."""
    looked: int = 0
    """How many tasks were looked at for it."""


class Count(Struct, frozen=True):
    """How many tasks there are."""

    number: int
    exact: bool = True
    """Whether there are no more: counting ends after so many were looked at."""


class Plan(Struct, frozen=True, kw_only=True):
    """How a search is done."""

    matching: Filter | None
    """What the store looks for; None when no task can match."""
    rest: Matcher | None = None
    """What is left to decide for each task."""
    ids: tuple[TaskId, ...] | None = None
    """The only tasks that can match, if the query names them."""

    def also(self, condition: Matcher) -> Plan:
        """The plan with one more condition."""
        rest = self.rest
        if rest is None:
            return replace(self, rest=condition)
        return replace(self, rest=lambda task: rest(task) and condition(task))

    def admits(self, task: Task) -> bool:
        """Whether a task is one of those looked for."""
        return self.matching is not None and self.matching.admits(task) and (self.rest is None or self.rest(task))


def plan(query: Query, now: Instant, within: Filter | None = None) -> Plan:
    """How to search for what a query means, of what a filter admits; relative moments count from now."""
    fields: dict[str, Any] = asdict(within or Filter())
    left: list[Term] = []
    ids: tuple[TaskId, ...] | None = None
    for term in query.terms:
        if term.field == "state":
            states = states_of(term) & fields["states"] if fields["states"] else states_of(term)
            if not states:
                return Plan(matching=None)
            fields["states"] = states
        elif term.field == "id" and ids is None and not term.negated and term.words:
            ids = tuple(dict.fromkeys(task_id for word in term.words if (task_id := _id(word))))
        elif not _native(fields, term, now):
            left.append(term)
    matching = None if ids == () else Filter(**fields)
    return Plan(matching=matching, rest=matcher(Query(tuple(left)), now) if left else None, ids=ids)


def _native(fields: dict[str, Any], term: Term, now: Instant) -> bool:
    """Have the store's filter ask for what a term does, if it can."""
    if term.kind is Kind.MOMENT and term.field == "created" and not term.negated and len(term.values) == 1:
        (within,) = term.values
        if isinstance(within, Within):
            _narrow(fields, within, now)
            return True
    value: Any = None
    if term.field in ("queue", "type", "tag", "worker") and not term.negated and len(term.words) == 1:
        (value,) = term.words
        value = WorkerId(value) if term.field == "worker" else value
    elif term.field == "priority" and len(priorities := priorities_of(term)) == 1:
        (value,) = priorities
    if value is None or fields[term.field] not in (None, value):
        return False
    fields[term.field] = value
    return True


def _narrow(fields: dict[str, Any], within: Within, now: Instant) -> None:
    least, most = bounds(within, now)
    if least is not None:
        fields["created_from"] = max(int(least), fields["created_from"] or 0, 0)
    if most is not None:
        before = max(int(most) + 1, 0)
        known = fields["created_before"]
        fields["created_before"] = before if known is None else min(before, known)


def _id(word: str) -> TaskId | None:
    try:
        return parse_task_id(word)
    except InvalidTask:
        return None


class Searcher:
    """Searches one store."""

    def __init__(self, store: Store, *, batching: bool, current: bool = False) -> None:
        """With `current` it finds tasks as they stand, at any cost; else as soon as the store lists them so."""
        self._store = store
        self._batching = batching
        self._lags = isinstance(store, Lagging)
        self._find = store.find_current if current and isinstance(store, Lagging) else store.find

    async def page(self, plan: Plan, *, limit: int, newest_first: bool = True, after: TaskId | None = None) -> Found:
        """One page of what a plan looks for, beyond the task `after`."""
        if plan.matching is None or limit <= 0:
            return Found([], None)
        if plan.ids is not None:
            return await self._named(plan, plan.ids, limit, newest_first, after)
        if plan.rest is None:
            found = await self._find(plan.matching, limit=limit + 1, newest_first=newest_first, after=after)
            return Found(found[:limit], found[limit - 1].id if len(found) > limit else None, len(found))
        found, looked, size = [], 0, min(max(limit + 1, _LEAST), CHUNK)
        while looked < MOST_LOOKED:
            tasks = await self._find(plan.matching, limit=size, newest_first=newest_first, after=after)
            for task in tasks:
                if plan.rest(task):
                    if len(found) == limit:
                        return Found(found, found[-1].id, looked + len(tasks))
                    found.append(task)
            looked += len(tasks)
            if len(tasks) < size:
                return Found(found, None, looked)
            after = tasks[-1].id
            if len(found) == limit:
                break
            size = min(2 * size, CHUNK)
            await self._breathe()
        return Found(found, after, looked)

    async def all(self, plan: Plan, *, newest_first: bool = True) -> AsyncIterator[Found]:
        """All that a plan looks for, in pages; one may be empty."""
        after: TaskId | None = None
        while True:
            found = await self.page(plan, limit=CHUNK, newest_first=newest_first, after=after)
            yield found
            if found.cursor is None:
                return
            after = found.cursor
            await self._breathe()

    async def count(self, plan: Plan) -> Count:
        """How many tasks a plan looks for; at least, if there are very many to look at."""
        if plan.matching is None:
            return Count(0)
        if plan.rest is None and plan.ids is None and not self._lags and _counted(plan.matching):
            return Count(await self._tallied(plan.matching))
        number = looked = 0
        async for found in self.all(plan):
            number += len(found.tasks)
            looked += found.looked
            if looked >= MOST_COUNTED and found.cursor is not None:
                return Count(number, exact=False)
        return Count(number)

    async def _tallied(self, matching: Filter) -> int:
        tally = await self._store.tally()
        return sum(
            count
            for each in tally.lanes
            if matching.queue in (None, each.lane.queue)
            and matching.type in (None, each.lane.type)
            and matching.priority in (None, each.lane.priority)
            for state, count in each.counts.items()
            if not matching.states or state in matching.states
        )

    async def _named(
        self, plan: Plan, ids: tuple[TaskId, ...], limit: int, newest_first: bool, after: TaskId | None
    ) -> Found:
        tasks = [task for task in await self._store.get(ids) if task is not None and plan.admits(task)]
        tasks.sort(key=lambda task: task.id, reverse=newest_first)
        if after is not None:
            tasks = [task for task in tasks if (task.id < after if newest_first else task.id > after)]
        return Found(tasks[:limit], tasks[limit - 1].id if len(tasks) > limit else None)

    async def _breathe(self) -> None:
        """Let others have their turn; a store need not suspend at all."""
        if self._batching:
            await asyncio.sleep(0)


def _counted(matching: Filter) -> bool:
    """Whether a tally can tell how many tasks a filter admits."""
    others = (matching.worker, matching.tag, matching.created_from, matching.created_before)
    return all(other is None for other in others)
