"""Rates that several processes keep together, each with portions that the store grants it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.instant import HOUR, MINUTE, SECOND
from fairlead.core.queues.limits import Rate
from fairlead.engine.runtime.clock import ManualClock
from fairlead.engine.shared_rates import KINDS, SharedRates, read_budget
from fairlead.storage.memory import MemoryStore


class DawdlingStore(MemoryStore):
    """A store whose answers come when others have been busy for a while."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        for _ in range(self._chance.randrange(4)):
            await asyncio.sleep(0)
        version = await super().put(kind, name, value, expected=expected)
        for _ in range(self._chance.randrange(4)):
            await asyncio.sleep(0)
        return version


@given(st.integers(0, 10**6), st.sampled_from([Rate(7, SECOND), Rate(20, MINUTE), Rate(100, MINUTE)]))
async def test_processes_never_pass_a_rate_together_by_more_than_five_percent(seed: int, rate: Rate) -> None:
    chance = random.Random(seed)
    store, clock, rates = DawdlingStore(chance), ManualClock(), (rate, Rate(3 * rate.count, HOUR))
    processes = [SharedRates(store, clock, rates) for _ in range(chance.randrange(1, 7))]
    accepted: Counter[int] = Counter()

    async def submit() -> None:
        taken = await chance.choice(processes).take("a", chance.choice([1, 1, 2, rate.count]))
        if chance.random() < 0.2:
            taken.give_back(taken.number)
        else:
            accepted[clock.now()] += taken.number

    steps = [0, 1, rate.period // 40, rate.period // 20, rate.period // 3, rate.period * 39 // 40, rate.period]
    for _ in range(30):
        await asyncio.gather(*(submit() for _ in range(chance.randrange(1, 12))))
        clock.advance(chance.choice(steps))
    for each in rates:
        for start in accepted:
            within = sum(number for at, number in accepted.items() if start <= at < start + each.period)
            assert within <= each.count * 1.05, str(each)


class SteppingStore(MemoryStore):
    """A store that takes 200 ms to put a record."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._own_clock = clock

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        await asyncio.sleep(0)
        self._own_clock.advance(SECOND // 5)
        return await super().put(kind, name, value, expected=expected)


async def test_a_store_that_takes_longer_than_a_slot_refuses_nobody_for_it() -> None:
    clock = ManualClock()
    rates = SharedRates(SteppingStore(clock), clock, (Rate(40, SECOND),))
    taken = await asyncio.gather(*(rates.take("a", 1) for _ in range(30)))
    assert [each.number for each in taken] == [1] * 30
    assert rates.asked <= 20, "those who wait are asked for together"


async def test_records_that_count_no_more_are_removed() -> None:
    store, clock = MemoryStore(), ManualClock()
    shares = [SharedRates(store, clock, (Rate(10, MINUTE),)) for _ in range(2)]
    for at in range(200):
        await shares[0].take(str(at), 1)
    clock.advance(HOUR)
    for at in range(200, 300):
        # Each finds a record that it does not know of, and so reads those of its kind.
        await shares[0].take(str(at), 1)
        await shares[1].take(str(at), 1)
    left = [each for kind in KINDS for each in await store.scan(kind)]
    live = [each for each in left if (budget := read_budget(each)) and not budget.is_over(clock.now())]
    assert len(live) == 100 and len(left) < 200


async def test_a_process_remembers_a_bounded_number_of_submitters() -> None:
    store, clock = MemoryStore(), ManualClock()
    rates = SharedRates(store, clock, (Rate(2, MINUTE),), most=3)
    for at in range(10):
        assert (await rates.take(str(at), 1)).number == 1
    assert len(rates) == 3
    assert (await rates.take("0", 5)).number == 1, "what was forgotten here is known to the store"


async def test_a_slot_that_ends_takes_what_was_not_used_back() -> None:
    store, clock = MemoryStore(), ManualClock()
    rates = SharedRates(store, clock, (Rate(100, MINUTE),))
    for _ in range(7):
        await rates.take("a", 1)
    clock.advance(10 * SECOND)
    taken = await rates.take("a", 1)
    taken.give_back()
    assert (await rates.take("a", 1)).number == 1
    (record,) = [each for kind in KINDS for each in await store.scan(kind)]
    budget = read_budget(record)
    assert budget is not None
    held = sum(each.granted for each in budget.periods[MINUTE])
    assert held <= 8 + 5, "what is held ahead is one portion at most"
