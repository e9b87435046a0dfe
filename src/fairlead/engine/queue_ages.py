"""How long the tasks have waited that wait: percentiles, found by counting stretches of lanes, looking at no task.

What is sought is the moment at which the wait of the task in the middle began. The time since the oldest is cut into
parts, the tasks of each are counted, the part that has the sought one is cut again, and so on until it is short enough.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from msgspec import Struct

from fairlead.core.instant import MILLISECOND, SECOND, Instant, Span
from fairlead.core.queues.promotion import FIRST_ID, Place
from fairlead.core.task import Priority, State
from fairlead.engine.runtime.loop_turns import Turn
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
