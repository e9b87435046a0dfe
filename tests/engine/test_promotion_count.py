"""How many tasks were promoted today, on every store: counted by whoever claims, told by all."""

from __future__ import annotations

import pytest

from fairlead.core.instant import DAY, MINUTE
from fairlead.core.task import Priority
from fairlead.engine.metrics.throughput import PROMOTED as KIND
from fairlead.storage.protocol import Store
from tests.engine.building import Bench


@pytest.fixture
def bench(any_store: Store) -> Bench:
    return Bench(store=any_store, batching=False)


async def promoted(bench: Bench) -> int:
    return (await bench.engine.stats()).promoted_today


async def test_what_was_claimed_early_because_of_its_age_is_counted(bench: Bench) -> None:
    bench.clock.advance(DAY - bench.clock.now() % DAY)
    for priority in (Priority.LOW, Priority.LOW, Priority.CRITICAL):
        await bench.submit(priority=priority)
    bench.clock.advance(11 * MINUTE)
    await bench.submit(priority=Priority.LOW)
    await bench.claim(10)
    assert await promoted(bench) == 2


async def test_all_processes_count_together_and_a_new_day_begins_at_nothing(bench: Bench, any_store: Store) -> None:
    other = Bench(store=any_store, batching=False, clock=bench.clock)
    bench.clock.advance(DAY - bench.clock.now() % DAY)
    for _ in range(3):
        await bench.submit(priority=Priority.LOW)
    bench.clock.advance(11 * MINUTE)
    await bench.claim(1)
    await other.claim(2)
    assert (await promoted(bench), await promoted(other)) == (1, 2)
    await bench.engine.share_promotions()
    await other.engine.share_promotions()
    await other.engine.share_promotions()
    assert (await promoted(bench), await promoted(other)) == (3, 3)
    bench.clock.advance(DAY)
    assert await promoted(bench) == 0


async def test_days_long_past_are_forgotten(bench: Bench, any_store: Store) -> None:
    for _ in range(4):
        await bench.submit(priority=Priority.LOW)
        bench.clock.advance(DAY)
        await bench.claim(1)
        await bench.engine.share_promotions()
    assert len(await any_store.scan(KIND)) == 2
