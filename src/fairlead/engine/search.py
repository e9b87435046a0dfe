"""Searching: a query in two parts, what a store's filter can tell and what is looked at here.

A call looks at a bounded number of tasks and for a bounded time, so that none runs for ever: a page may have fewer
tasks than asked for, or none, and its cursor still leads further. Tasks are looked at in a thread: some are large.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

from msgspec import Struct
from msgspec.structs import asdict, replace

from fairlead.core.errors import InvalidTask
from fairlead.core.identity import TaskId, WorkerId, parse_task_id
from fairlead.core.instant import Instant
from fairlead.core.query.match import Matcher, bounds, matcher
from fairlead.core.query.query import Kind, Query, Term, Within, priorities_of, states_of
from fairlead.core.task import Task
from fairlead.storage.protocol import Lagging, Store
from fairlead.storage.values import Filter

MOST_LOOKED: Final = 10_000
"""How many tasks one page of a search looks at."""
CHUNK: Final = 1_000
"""How many tasks are read at once."""
MOST_COUNTED: Final = 300_000
"""How many tasks are looked at to count them."""
MOST_SECONDS: Final = 1.0
"""For how long one page looks at tasks."""
COUNT_SECONDS: Final = 3.0
"""For how long tasks are looked at to count or to group them."""
_LEAST: Final = 100

Answer = TypeVar("Answer")
Arguments = TypeVarTuple("Arguments")


class SearchBudget:
    """What an answer may cost: how many tasks are looked at for it, and how long that takes."""

    def __init__(self, tasks: int, seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._left = tasks
        self._monotonic = monotonic
        self._end = monotonic() + seconds

    def spend(self, tasks: int = 1) -> bool:
        """Take note of tasks that were looked at; whether others may be."""
        self._left -= tasks
        return not self.is_spent

    @property
    def is_spent(self) -> bool:
        """Whether no further task may be looked at."""
        return self._left <= 0 or self._monotonic() >= self._end


class Found(Struct, frozen=True):
    """One page of a search."""

    tasks: list[Task]
    cursor: TaskId | None
    """Where to go on: the last task looked at; None when there is no more."""


class TaskCount(Struct, frozen=True):
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

    async def page(
        self,
        plan: Plan,
        *,
        limit: int,
        newest_first: bool = True,
        after: TaskId | None = None,
        budget: SearchBudget | None = None,
    ) -> Found:
        """One page of what a plan looks for, beyond the task `after`."""
        if plan.matching is None or limit <= 0:
            return Found([], None)
        if plan.ids is not None:
            return await self._named(plan, plan.ids, limit, newest_first, after)
        budget = budget or SearchBudget(MOST_LOOKED, MOST_SECONDS)
        if plan.rest is None:
            found = await self._find(plan.matching, limit=limit + 1, newest_first=newest_first, after=after)
            budget.spend(len(found))
            return Found(found[:limit], found[limit - 1].id if len(found) > limit else None)
        found, size = [], min(max(limit + 1, _LEAST), CHUNK)
        while True:
            tasks = await self._find(plan.matching, limit=size, newest_first=newest_first, after=after)
            # One more than wanted tells whether there is a next page.
            matches, looked = await self.work(_sift, tasks, plan, limit + 1 - len(found), budget)
            found += matches
            if len(found) > limit:
                return Found(found[:limit], found[limit - 1].id)
            if looked == len(tasks) < size:
                return Found(found, None)
            after = tasks[looked - 1].id
            if len(found) == limit or budget.is_spent:
                return Found(found, after)
            size = min(2 * size, CHUNK)

    async def all(
        self, plan: Plan, *, newest_first: bool = True, budget: SearchBudget | None = None
    ) -> AsyncIterator[Found]:
        """All that a plan looks for, in pages, of which one may be empty; the last has a cursor if the budget ended."""
        after: TaskId | None = None
        while True:
            found = await self.page(plan, limit=CHUNK, newest_first=newest_first, after=after, budget=budget)
            yield found
            if found.cursor is None or (budget is not None and budget.is_spent):
                return
            after = found.cursor
            await self._breathe()

    async def count(self, plan: Plan, budget: SearchBudget | None = None) -> TaskCount:
        """How many tasks a plan looks for; at least, if there are very many to look at."""
        if plan.matching is None:
            return TaskCount(0)
        if plan.rest is None and plan.ids is None and not self._lags and _counted(plan.matching):
            return TaskCount(await self._tallied(plan.matching))
        number, exact = 0, True
        async for found in self.all(plan, budget=budget or SearchBudget(MOST_COUNTED, COUNT_SECONDS)):
            number += len(found.tasks)
            exact = found.cursor is None
        return TaskCount(number, exact)

    async def work(self, work: Callable[[Unpack[Arguments]], Answer], *arguments: *Arguments) -> Answer:
        """What some work gives that takes longer than an event loop may be held up."""
        return await asyncio.to_thread(work, *arguments) if self._batching else work(*arguments)

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


def _sift(tasks: Sequence[Task], plan: Plan, wanted: int, budget: SearchBudget) -> tuple[list[Task], int]:
    """Those of the tasks that a plan looks for, so many at most, and how many were looked at: one at least."""
    matches: list[Task] = []
    for looked, task in enumerate(tasks, start=1):
        if plan.rest is None or plan.rest(task):
            matches.append(task)
        if not budget.spend() or len(matches) == wanted:
            return matches, looked
    return matches, len(tasks)


def _counted(matching: Filter) -> bool:
    """Whether a tally can tell how many tasks a filter admits."""
    others = (matching.worker, matching.tag, matching.created_from, matching.created_before)
    return all(other is None for other in others)
