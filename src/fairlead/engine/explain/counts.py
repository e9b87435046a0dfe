"""Counting what is ahead of a task, at a cost that has a bound whatever is ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from fairlead.core.instant import LATEST, Instant
from fairlead.core.queues.promotion import BEFORE_ALL
from fairlead.core.task import Lane, State
from fairlead.storage.protocol import Store
from fairlead.storage.values import LaneTally, Stretch

MOST_READ: Final = 20_000
"""How many entries are read for one explanation, at most."""
_READ_FOR_ONE: Final = 2
"""How many entries a store may read for each that it counts (F5)."""
_FIRST_LOOK: Final = 4
"""Which part of them is for the first look, in which every stretch is counted; the rest is for those with more."""


class StretchCounts(Struct, frozen=True):
    """How many tasks are in stretches."""

    numbers: list[int]
    guessed: frozenset[int] = frozenset()
    """The positions of those that were not counted to the end: it is told how many there are if a lane's tasks came
    evenly."""


async def counted(
    store: Store, stretches: Sequence[Stretch], lanes: Sequence[LaneTally], now: Instant, most_read: int = MOST_READ
) -> StretchCounts:
    """How many tasks are in these stretches of these lanes.

    A lane's stretches follow each other. The last one that has all the rest of a lane needs no counting.
    """
    known = {tally.lane: tally for tally in lanes}
    numbers: dict[int, int] = {}
    open_ended = [at for at, each in enumerate(stretches) if _ends(stretches, at, known)]
    wanted = [at for at in range(len(stretches)) if at not in set(open_ended)]
    budget = most_read // _READ_FOR_ONE
    looked = wanted[: budget // _FIRST_LOOK]
    more = wanted[len(looked) :]
    for share in (budget // _FIRST_LOOK, budget - budget // _FIRST_LOOK):
        if not looked:
            break
        most = max(1, share // len(looked))
        found = await store.count([stretches[at] for at in looked], most)
        numbers.update(zip(looked, found, strict=True))
        looked = [at for at, count in zip(looked, found, strict=True) if count >= most]
        if share // max(1, len(looked)) <= most:
            break
    more += looked
    for at in more:
        numbers[at] = max(numbers.get(at, 0), _even(stretches[at], known.get(stretches[at].lane), now))
    for at in open_ended:
        numbers[at] = _rest(stretches, at, known, numbers)
    return StretchCounts([numbers[at] for at in range(len(stretches))], frozenset(more))


def _ends(stretches: Sequence[Stretch], at: int, known: Mapping[Lane, LaneTally]) -> bool:
    """Whether a stretch is what is left of a lane behind the stretches before it."""
    each = stretches[at]
    if each.end.ready_at < LATEST or each.lane not in known:
        return False
    while stretches[at].start != BEFORE_ALL:
        at -= 1
        if at < 0 or stretches[at].lane != each.lane or stretches[at].end != stretches[at + 1].start:
            return False
    return True


def _rest(stretches: Sequence[Stretch], at: int, known: Mapping[Lane, LaneTally], numbers: Mapping[int, int]) -> int:
    rest = known[stretches[at].lane].counts.get(State.QUEUED, 0)
    while stretches[at].start != BEFORE_ALL:
        at -= 1
        rest -= numbers[at]
    return max(0, rest)


def _even(stretch: Stretch, tally: LaneTally | None, now: Instant) -> int:
    """How many there are if those of the lane have come evenly since the first of them did."""
    if tally is None or tally.oldest_ready is None:
        return 0
    depth, oldest = tally.counts.get(State.QUEUED, 0), tally.oldest_ready
    span = max(1, now - oldest)
    within = min(stretch.end.ready_at, now) - max(stretch.start.ready_at, oldest)
    return max(0, min(depth, depth * within // span))
