"""Budgets: how many tasks somebody has submitted, counted so that several servers keep one rate together.

A period is cut into twenty slots. What was granted in the last twenty, the current one among them, is at most the
rate's count, and what was granted in the last twenty-one at most 5 % more. Any period of that length, wherever it
begins, touches twenty-one slots at most, so it never has more than 5 % too many; and who submits evenly at the rate is
not refused.

A server is granted a portion for the current slot, and uses it up without asking again. What it has left when the
slot is over it gives back with its next request, so nothing that was granted is ever used in another slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from fairlead.core.instant import SECOND, Instant, Span
from fairlead.core.queues.limits import Rate

SLOTS: Final = 20
"""Into how many slots a period is cut; one of them more is the 5 % by which a rate may be exceeded."""
PORTIONS: Final = 20
"""The share of a rate that one server is granted at once is at most one of so many."""
_NEARLY: Final = 4
"""When little is left, a server is granted at most one of so many parts of it at once, so that others get some too."""


class SlotCount(Struct, frozen=True, array_like=True, gc=False):
    """How much was granted in one slot."""

    slot: int
    granted: int


class RateBudget(Struct, frozen=True, array_like=True):
    """What was granted to one submitter, by the length of the period in microseconds."""

    periods: dict[int, tuple[SlotCount, ...]] = {}

    def is_over(self, now: Instant) -> bool:
        """Whether nothing of it counts any more, by any rate."""
        return not any(_counting(slots, slot_of(period, now)) for period, slots in self.periods.items())


class PortionRequest(Struct, frozen=True):
    """What a server asks for by one rate."""

    rate: Rate
    wanted: int
    """How many tasks are to be submitted right now."""
    held: int = 0
    """How many more it may submit without asking."""
    ahead: int = 0
    """How many others it may soon be asked for."""
    unused_slot: int = 0
    unused: int = 0
    """What it was granted in a slot that is over, and did not use."""


class PortionGrant(Struct, frozen=True):
    """What a server is granted by one rate, for one slot."""

    slot: int
    granted: int


def slot_of(period: Span, now: Instant) -> int:
    """The number of the slot in which a moment is."""
    return now // (period // SLOTS)


def granted(
    budget: RateBudget, requests: Sequence[PortionRequest], now: Instant
) -> tuple[RateBudget, list[PortionGrant]]:
    """What a server is granted for some tasks, which must keep all of these rates, and the budget after that.

    No rate grants more for them than the others let through: it would only be kept from others.
    """
    counted = [_counted(budget, each, slot_of(each.rate.period, now)) for each in requests]
    rooms = [
        _room(each.rate, counts, slot_of(each.rate.period, now))
        for each, counts in zip(requests, counted, strict=True)
    ]  # fmt: skip
    through = min(each.held + room for each, room in zip(requests, rooms, strict=True))
    periods = dict(budget.periods)
    grants = []
    for each, counts, room in zip(requests, counted, rooms, strict=True):
        current = slot_of(each.rate.period, now)
        number = max(0, min(each.wanted, through) - each.held)
        if number and through > each.wanted:
            most = min(max(1, each.rate.count // PORTIONS), max(1, room // _NEARLY))
            number = min(room, max(number, min(number + each.ahead, most)))
        if number:
            counts[current] = counts.get(current, 0) + number
        periods[each.rate.period] = tuple(SlotCount(slot, count) for slot, count in sorted(counts.items()) if count)
        grants.append(PortionGrant(current, number))
    return RateBudget(periods), grants


def _counted(budget: RateBudget, request: PortionRequest, current: int) -> dict[int, int]:
    """What counts in each slot, less what the server gives back."""
    counts = {each.slot: each.granted for each in _counting(budget.periods.get(request.rate.period, ()), current)}
    if request.unused and request.unused_slot in counts:
        counts[request.unused_slot] = max(0, counts[request.unused_slot] - request.unused)
    return counts


def opens_after(budget: RateBudget, rate: Rate, now: Instant) -> Span:
    """How long until one more task may be granted by a rate, if nothing is given back; 0 for now."""
    current = slot_of(rate.period, now)
    counts = {each.slot: each.granted for each in _counting(budget.periods.get(rate.period, ()), current)}
    slot = current
    # Whatever counts now has left by then, even what a clock that is ahead has granted.
    last = max([current, *counts]) + SLOTS + 1
    while slot < last and _room(rate, counts, slot) < 1:
        slot += 1
    return 0 if slot == current else slot * (rate.period // SLOTS) - now


def whole_seconds(span: Span) -> int:
    """How many seconds to wait, rounded up, and at least one."""
    return max(1, -(-span // SECOND))


def _room(rate: Rate, counts: dict[int, int], current: int) -> int:
    recent = sum(count for slot, count in counts.items() if slot > current - SLOTS)
    wide = sum(count for slot, count in counts.items() if slot >= current - SLOTS)
    return max(0, min(rate.count - recent, rate.count + rate.count // SLOTS - wide))


def _counting(slots: Sequence[SlotCount], current: int) -> list[SlotCount]:
    """Those that still count; what is further ahead than a whole period was granted by a clock that has gone back."""
    return [each for each in slots if current - SLOTS <= each.slot <= current + SLOTS]
