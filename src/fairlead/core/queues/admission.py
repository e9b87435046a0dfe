"""Admission: whether a submit is taken while tasks flood in, or who refuses it, with which remedy and for how long.

Two tiers say how many tasks may wait before fewer are taken: above the first only critical and high ones, above the
second only those of callers that an allow list names, whom neither tier holds back. Rates say how many tasks a key or
a tenant may submit, and a server sheds what it cannot work off.

Several servers keep one rate together by a budget. A period is cut into twenty slots. What was granted in the last
twenty, the current one among them, is at most the rate's count, and what was granted in the last twenty-one at most 5 %
more. Any period of that length, wherever it begins, touches twenty-one slots at most, so it never has more than 5 % too
many; and who submits evenly at the rate is not refused. A server is granted a portion for the current slot, and uses it
up without asking again. What it has left when the slot is over it gives back with its next request, so nothing that was
granted is ever used in another slot.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from fairlead.core.errors import AdmissionRefused, InvalidSettings
from fairlead.core.instant import HOUR, LATEST, MINUTE, SECOND, Instant, Span
from fairlead.core.queues.limits import Rate
from fairlead.core.task import Priority
from fairlead.core.validation import bad_setting, check_count, check_text, check_type, shown

KEY: Final = "key:"
TENANT: Final = "tenant:"
"""What the names on an allow list begin with."""

_PERIODS: Final = {SECOND: "second", MINUTE: "minute", HOUR: "hour"}
_URGENT_PAUSE: Final = 5
_LISTED_PAUSE: Final = 10
_SHED_PAUSE: Final = 1
_SHOWN: Final = 64


class AdmissionRule(StrEnum):
    """What a submit was refused by."""

    URGENT_ONLY = "urgent_only"
    LISTED_ONLY = "listed_only"
    KEY_RATE = "key_rate"
    TENANT_RATE = "tenant_rate"
    OVERLOADED = "overloaded"


def check_tiers(urgent_above: int | None, listed_above: int | None) -> None:
    """Refuse a first tier that is above the second."""
    if urgent_above is not None and listed_above is not None and urgent_above > listed_above:
        raise InvalidSettings(
            f"urgent_above {urgent_above:,} is more than listed_above {listed_above:,}, which refuses more; "
            f"lower the first or raise the second"
        )


def check_rates(rates: object) -> tuple[Rate, ...]:
    """Rates of a second, minute or hour, at most one of each."""
    said: tuple[Rate, ...] = check_type("rates", rates, tuple, "write a tuple of rates", bad_setting)
    periods = [check_type("rates", rate, Rate, "write Rate.parse('100/m')", bad_setting).period for rate in said]
    if not set(periods) <= set(_PERIODS) or len(set(periods)) < len(periods):
        written = ", ".join(str(rate) for rate in said)
        raise InvalidSettings(
            f"the rates {shown(written)} cannot be kept: submits are counted per second (s), minute (m) and hour (h); "
            f"give each at most once, such as 100/m, 1000/h"
        )
    return said


class Tiers(Struct, frozen=True, gc=False):
    """How many tasks may wait before fewer are taken; None for no such tier."""

    urgent_above: int | None = None
    """From so many on only critical and high tasks are taken."""
    listed_above: int | None = None
    """From so many on only tasks of those on the allow list are taken."""

    def __post_init__(self) -> None:
        for name in ("urgent_above", "listed_above"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), 1, LATEST, bad_setting)
        check_tiers(self.urgent_above, self.listed_above)

    def __bool__(self) -> bool:
        return self.urgent_above is not None or self.listed_above is not None

    def bound_of(self, priority: Priority, *, listed: bool) -> int | None:
        """How many tasks may wait before one of this priority is refused; None if it never is."""
        if listed:
            return None
        if priority <= Priority.HIGH or self.urgent_above is None:
            return self.listed_above
        return self.urgent_above


class AdmissionSettings(Struct, frozen=True, kw_only=True):
    """What one server holds submits to, over all queues; nothing unless said."""

    tiers: Tiers = Tiers()
    """Over the tasks that wait in all queues."""
    rates: tuple[Rate, ...] = ()
    """How many tasks one key may submit, and all submitters of one tenant together, over all servers of a store."""
    in_flight: int | None = None
    """How many submits a server works on at once; it answers more with 503."""

    def __post_init__(self) -> None:
        check_type("tiers", self.tiers, Tiers, "write Tiers(…)", bad_setting)
        check_rates(self.rates)
        if self.in_flight is not None:
            check_count("in_flight", self.in_flight, 1, LATEST, bad_setting)

    def __bool__(self) -> bool:
        return bool(self.tiers or self.rates or self.in_flight is not None)


STANDARD: Final = AdmissionSettings(
    tiers=Tiers(50_000, 100_000), rates=(Rate(100, MINUTE), Rate(1_000, HOUR)), in_flight=500
)
"""What one setting turns on."""


def check_allow_list(name: str, listed: object) -> tuple[str, ...]:
    """The names on an allow list, each of a key or a tenant."""
    for each in check_type(name, listed, tuple, "write a tuple of names", bad_setting):
        kind = next((kind for kind in (KEY, TENANT) if type(each) is str and each.startswith(kind)), None)
        if kind is None or len(each) == len(kind):
            raise InvalidSettings(
                f"{name} has {shown(each)}, which names no key or tenant; write key:NAME or tenant:NAME"
            )
        check_text(name, each[len(kind) :], refuse=bad_setting)
    return listed  # type: ignore[return-value]


def is_listed(listed: Collection[str], key: str | None, tenant: str | None) -> bool:
    """Whether an allow list names a caller's key or the tenant of the task."""
    return bool(listed) and (
        (key is not None and f"{KEY}{key}" in listed) or (tenant is not None and f"{TENANT}{tenant}" in listed)
    )


def refusal_above(
    tiers: Tiers, waiting: int, priority: Priority, *, listed: bool, queue: str | None = None
) -> AdmissionRefused | None:
    """Why a task is not taken while so many wait, in this queue or in all; None if it is."""
    bound = tiers.bound_of(priority, listed=listed)
    if bound is None or waiting < bound:
        return None
    where = "over all queues" if queue is None else f"in queue {queue!r}"
    if (most := tiers.listed_above) is not None and waiting >= most:
        return AdmissionRefused(
            f"{waiting:,} tasks wait {where}: from {most:,} on only those of keys and tenants on the allow list are "
            f"taken; try again in {_LISTED_PAUSE} s, or add workers",
            AdmissionRule.LISTED_ONLY,
            _LISTED_PAUSE,
        )
    return AdmissionRefused(
        f"{waiting:,} tasks wait {where}: from {bound:,} on only critical and high ones are taken, and this one is "
        f"{priority.word}; try again in {_URGENT_PAUSE} s, or add workers",
        AdmissionRule.URGENT_ONLY,
        _URGENT_PAUSE,
    )


def refusal_over(rate: Rate, *, tenant: str | None, seconds: int) -> AdmissionRefused:
    """Why a task is not taken of a key, or of a tenant, that has submitted as many as it may."""
    whose = "the key" if tenant is None else f"tenant {shown(tenant[:_SHOWN])}"
    return AdmissionRefused(
        f"{whose} has submitted as many tasks as it may, {rate.count:,} in a {_PERIODS[rate.period]} over all servers; "
        f"try again in {seconds:,} s",
        AdmissionRule.KEY_RATE if tenant is None else AdmissionRule.TENANT_RATE,
        seconds,
    )


def refusal_in_flight(in_flight: int) -> AdmissionRefused:
    """Why a server takes no submit while it works on as many as it may."""
    return AdmissionRefused(
        f"the server works on {in_flight:,} submits, as many as it may at once, so nothing was stored; "
        f"try again in {_SHED_PAUSE} s, or ask another server",
        AdmissionRule.OVERLOADED,
        _SHED_PAUSE,
    )


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
