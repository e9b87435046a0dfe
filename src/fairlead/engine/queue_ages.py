"""How long the tasks have waited that wait, and which may starve: stretches of lanes are counted, no task is looked at.

For a percentile, what is sought is the moment at which the wait of that task began. The time since the oldest is cut
into parts, the tasks of each are counted, the part that has the sought one is cut again, and so on until it is short
enough. At risk of starving are those that have waited for more than half of what their queue's order allows.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from msgspec import Struct

from fairlead.core.errors import StoreError
from fairlead.core.instant import MILLISECOND, SECOND, Instant, Span
from fairlead.core.queues.order import Policy
from fairlead.core.queues.promotion import BEFORE_ALL, FIRST_ID, Place, starvation_bound, steady_table
from fairlead.core.task import Priority, State
from fairlead.engine.runtime.clock import Clock
from fairlead.engine.runtime.event_loop import Turn
from fairlead.storage.protocol import Store
from fairlead.storage.values import LaneTally, Stretch

MOST_LANES: Final = 2_000
"""In how many lanes tasks are counted at most; those with a single task need no counting."""

_PARTS: Final = 4
_ROUNDS: Final = 40
_AT_ONCE: Final = 2_000
"""How many stretches are counted in one call to the store."""
_SKEW: Final[Span] = SECOND
"""How far the clock of who counts may be behind that by which tasks wait."""

_Line: TypeAlias = tuple[str, Priority]


class AgePercentiles(Struct, frozen=True, kw_only=True):
    """How long half of the tasks, and 95 of 100, have waited at the most; rounded up by a hundredth or less."""

    p50: Span
    p95: Span


class QueueAges(Struct, frozen=True, kw_only=True):
    """How long the tasks have waited that wait."""

    by_queue: Mapping[_Line, AgePercentiles] = {}
    """By queue and priority, where any wait."""
    overall: Mapping[Priority, AgePercentiles] = {}
    """By priority, over all queues that were counted."""


def rank_of(percent: int, total: int) -> int:
    """Which of so many tasks, by their wait from 0 for the oldest, has waited as long as a percentile says."""
    return total - max(1, -(-percent * total // 100))


class _Search:
    """The search for the moment at which the wait of one task began."""

    __slots__ = ("_before", "_lanes", "_oldest", "_rank", "_singles", "high", "lost", "low")

    def __init__(self, lanes: Sequence[LaneTally], percent: int, low: Instant, high: Instant) -> None:
        depths = [each.counts[State.QUEUED] for each in lanes]
        # The only task of a lane is its oldest, and needs no counting.
        self._singles = [each.oldest_ready for each, depth in zip(lanes, depths, strict=True) if depth == 1]
        self._lanes = [each.lane for each, depth in zip(lanes, depths, strict=True) if depth > 1]
        self._rank = rank_of(percent, sum(depths))
        self._before = 0
        self._oldest = min((each.oldest_ready for each in lanes if each.oldest_ready is not None), default=low)
        self.low = low
        """The sought moment is at this one or later."""
        self.high = high
        """And before this one."""
        self.lost = False
        """Whether there is nothing to be found any more: all were claimed meanwhile."""

    def over(self, now: Instant) -> bool:
        """Whether it is known well enough."""
        return self.lost or self.high - self.low <= max(MILLISECOND, (now - self.high) // 100)

    def age(self, now: Instant) -> Span:
        """How long the task has waited at the most: never longer than the oldest."""
        return max(0, now - max(self.low, self._oldest))

    def edges(self) -> list[Instant]:
        width = self.high - self.low
        return sorted({self.low + width * part // _PARTS for part in range(_PARTS + 1)})

    def stretches(self) -> list[Stretch]:
        """What to count, lane by lane."""
        places = [Place(edge, FIRST_ID) for edge in self.edges()]
        return [Stretch(lane, start, end) for lane in self._lanes for start, end in pairwise(places)]

    def narrow(self, counts: Mapping[Stretch, int]) -> None:
        """Go on in the part that has the sought task; tasks that were claimed meanwhile count no more."""
        parts = list(pairwise(self.edges()))
        by_lane = [
            [counts[Stretch(lane, Place(start, FIRST_ID), Place(end, FIRST_ID))] for start, end in parts]
            for lane in self._lanes
        ]
        singles = [sum(at is not None and start <= at < end for at in self._singles) for start, end in parts]
        totals = [sum(column) for column in zip(*by_lane, singles, strict=True)]
        if not any(totals):
            self.lost = True
            return
        chosen = last = 0
        before = self._before
        for chosen, total in enumerate(totals):
            if total:
                last = chosen
            if before + total > self._rank:
                break
            before += total
        else:
            chosen = last
            before = self._before + sum(totals[:chosen])
        self._before = before
        self.low, self.high = parts[chosen]
        self._lanes = [lane for lane, column in zip(self._lanes, by_lane, strict=True) if column[chosen]]
        self._singles = [at for at in self._singles if at is not None and self.low <= at < self.high]


async def queue_ages(
    store: Store, now: Instant, queues: Collection[str] | None = None, *, batching: bool = False
) -> QueueAges:
    """How long the tasks of some queues have waited, or of all; nothing is told if they are in too many lanes."""
    tally = await store.tally()
    ready = [
        each for each in tally.lanes if each.counts.get(State.QUEUED) and (queues is None or each.lane.queue in queues)
    ]
    if sum(each.counts[State.QUEUED] > 1 for each in ready) > MOST_LANES:
        return QueueAges()
    groups: dict[_Line | Priority, list[LaneTally]] = {}
    for each in ready:
        groups.setdefault((each.lane.queue, each.lane.priority), []).append(each)
        groups.setdefault(each.lane.priority, []).append(each)
    low = min((each.oldest_ready for each in ready if each.oldest_ready is not None), default=now)
    high = max(now, low) + _SKEW
    searches = {
        (group, percent): _Search(lanes, percent, low, high) for group, lanes in groups.items() for percent in (50, 95)
    }
    await _run(store, list(searches.values()), now, batching=batching)
    found = {
        group: AgePercentiles(p50=searches[group, 50].age(now), p95=searches[group, 95].age(now))
        for group in groups
        if not (searches[group, 50].lost or searches[group, 95].lost)
    }
    return QueueAges(
        by_queue={group: ages for group, ages in found.items() if isinstance(group, tuple)},
        overall={group: ages for group, ages in found.items() if isinstance(group, Priority)},
    )


async def _run(store: Store, searches: Sequence[_Search], now: Instant, *, batching: bool) -> None:
    """Narrow all searches together; what several of them count is counted once."""
    for _ in range(_ROUNDS):
        under_way = [search for search in searches if not search.over(now)]
        if not under_way:
            return
        turn = Turn(len(under_way), looped=batching)
        wanted: dict[Stretch, int] = {}
        for search in under_way:
            wanted.update(dict.fromkeys(search.stretches(), 0))
            if turn.is_over:
                await turn.next()
        stretches = list(wanted)
        for start in range(0, len(stretches), _AT_ONCE):
            some = stretches[start : start + _AT_ONCE]
            wanted.update(zip(some, await store.count(some), strict=True))
        for search in under_way:
            search.narrow(wanted)
            if turn.is_over:
                await turn.next()


AtRisk: TypeAlias = Mapping[tuple[str, Priority], int]
"""How many tasks are at risk, by queue and priority; what is not there has none."""

MOST_LANES_AT_RISK: Final = 1_000
"""In how many lanes tasks are counted at once; beyond that, those whose first task has waited longest."""
INTERVAL: Final[Span] = 10 * SECOND
"""How long a count is used before it is made anew."""
_SHARE: Final = 20
"""The time that counting may take, as a part of all time: where counting is slow, it is done more seldom."""


class StarvationCount:
    """The tasks of one store that are at risk, counted when somebody asks, and seldom."""

    def __init__(self, store: Store, clock: Clock, policy_of: Callable[[str], Policy]) -> None:
        """`policy_of` tells the order of service of a queue."""
        self._store = store
        self._clock = clock
        self._policy_of = policy_of
        self._counted: AtRisk = {}
        self._next: Span = 0

    async def count(self, oldest: Mapping[tuple[str, Priority], Span]) -> AtRisk:
        """How many tasks are at risk, given the longest wait by queue and priority: mostly that shows it to be none."""
        if not any(age > half for (queue, priority), age in oldest.items() if (half := self._half(queue, priority))):
            return {}
        start = self._clock.monotonic()
        if start >= self._next:
            # What takes too long for the store is not counted, and costs nobody the rest of the page.
            with contextlib.suppress(StoreError):
                self._counted = await self._look()
            end = self._clock.monotonic()
            self._next = end + max(INTERVAL, _SHARE * (end - start))
        return self._counted

    async def _look(self) -> AtRisk:
        tally, now = await self._store.tally(), self._clock.now()
        lanes = [(half, each) for each in tally.lanes if (half := self._half_passed(each, now))]
        lanes.sort(key=lambda found: found[1].oldest_ready or 0)
        chosen = lanes[:MOST_LANES_AT_RISK]
        counts = await self._store.count(
            [Stretch(each.lane, BEFORE_ALL, Place(now - half, FIRST_ID)) for half, each in chosen]
        )
        at_risk: Counter[tuple[str, Priority]] = Counter()
        for (_, each), count in zip(chosen, counts, strict=True):
            at_risk[each.lane.queue, each.lane.priority] += count
        return at_risk

    def _half_passed(self, line: LaneTally, now: Instant) -> Span | None:
        """Half of the bound of a lane, if its first task has waited for longer."""
        half = self._half(line.lane.queue, line.lane.priority)
        return half if half and line.oldest_ready is not None and now - line.oldest_ready > half else None

    def _half(self, queue: str, priority: Priority) -> Span | None:
        """Half of what a task may wait; None where the order says nothing of it, or does not let it wait."""
        return _halves(self._policy_of(queue))[priority]


@functools.lru_cache(256)
def _halves(policy: Policy) -> list[Span | None]:
    table = steady_table(policy)
    bounds = [None if table is None else starvation_bound(table, priority) for priority in Priority]
    return [bound // 2 if bound else None for bound in bounds]
