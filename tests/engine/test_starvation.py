"""Tasks at risk of starving, on every store: those that have waited for more than half of what their order allows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fairlead.core.errors import StoreUnavailable
from fairlead.core.instant import HOUR, MINUTE, SECOND
from fairlead.core.queues.order import HeadStart, Policy, Promote, Strict, Weighted
from fairlead.core.queues.promotion import starvation_bound, steady_table
from fairlead.core.task import Priority
from fairlead.engine import queue_ages
from fairlead.engine.queue_ages import INTERVAL, AtRisk, StarvationCount
from fairlead.storage.memory import MemoryStore
from fairlead.storage.protocol import Store
from fairlead.storage.values import Stretch
from tests.engine.building import Bench

LOW, HIGH = Priority.LOW, Priority.HIGH


async def at_risk(bench: Bench, count: StarvationCount) -> AtRisk:
    stats = await bench.engine.stats()
    lines = [(name, *line) for name, each in stats.queues.items() for line in each.lines.items()]
    return await count.count({(name, priority): line.oldest_age for name, priority, line in lines})


def counting(bench: Bench, policy: Policy | None = None) -> StarvationCount:
    return StarvationCount(bench.store, bench.clock, lambda queue: policy or Promote())


async def test_tasks_are_at_risk_past_half_of_their_bound(any_store: Store) -> None:
    bench = Bench(store=any_store)
    count = counting(bench)
    assert await at_risk(bench, count) == {}
    for _ in range(3):
        await bench.submit(priority=LOW, type="a")
    await bench.submit(priority=LOW, type="b", queue="mail")
    await bench.submit(priority=Priority.CRITICAL)
    bench.clock.advance(30 * MINUTE)
    await bench.submit(priority=LOW, type="a")
    await bench.submit(priority=HIGH)
    assert await at_risk(bench, count) == {}, "not past half an hour yet"
    bench.clock.advance(SECOND)
    assert await at_risk(bench, count) == {("default", LOW): 3, ("mail", LOW): 1}
    bench.clock.advance(15 * MINUTE)
    assert (await at_risk(bench, count))["default", HIGH] == 1
    bench.clock.advance(16 * MINUTE)
    assert (await at_risk(bench, count))["default", LOW] == 4
    assert len(await bench.claim(10)) == 6
    bench.clock.advance(INTERVAL)
    assert await at_risk(bench, count) == {("mail", LOW): 1}


@pytest.mark.parametrize("policy", [Strict(), Weighted(), Promote(low=0, medium=0, high=0)])
async def test_no_task_is_at_risk_of_what_nobody_has_promised(policy: Policy) -> None:
    bench = Bench()
    for priority in Priority:
        await bench.submit(priority=priority)
    bench.clock.advance(1_000 * HOUR)
    assert await at_risk(bench, counting(bench, policy)) == {}


def test_the_bound_is_what_the_order_promises() -> None:
    for policy, bounds in (
        (Promote(), [0, 30 * MINUTE, 50 * MINUTE, HOUR]),
        (Strict(), [0, None, None, None]),
        (HeadStart(), [0, 30 * MINUTE, 50 * MINUTE, HOUR]),
    ):
        table = steady_table(policy)
        assert table is not None
        assert [starvation_bound(table, priority) for priority in Priority] == bounds


class Counting(MemoryStore):
    """Notes what it is asked to count, and may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.fails = False

    async def count(self, stretches: Sequence[Stretch], most: int | None = None) -> list[int]:
        self.asked.append(len(stretches))
        if self.fails:
            raise StoreUnavailable("away")
        return await super().count(stretches, most)


async def test_nothing_is_counted_while_none_is_at_risk_and_seldom_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_ages, "MOST_LANES_AT_RISK", 2)
    store = Counting()
    bench = Bench(store=store)
    count = counting(bench)
    for number in range(5):
        await bench.submit(priority=LOW, type=f"type-{number}")
        bench.clock.advance(SECOND)
    await at_risk(bench, count)
    assert store.asked == []
    bench.clock.advance(HOUR)
    for _ in range(4):
        assert await at_risk(bench, count) == {("default", LOW): 2}, "of so many lanes, those that have waited longest"
    assert store.asked == [2]
    store.fails = True
    bench.clock.advance(INTERVAL)
    for _ in range(4):
        assert await at_risk(bench, count) == {("default", LOW): 2}, "what was known before"
    assert store.asked == [2, 2], "a store that fails is not asked again at once"


async def test_where_counting_is_slow_it_is_done_more_seldom() -> None:
    class Slow(Counting):
        async def count(self, stretches: Sequence[Stretch], most: int | None = None) -> list[int]:
            bench.clock.advance(4 * SECOND)
            return await super().count(stretches, most)

    store = Slow()
    bench = Bench(store=store)
    count = counting(bench)
    await bench.submit(priority=LOW)
    bench.clock.advance(HOUR)
    start = bench.clock.now()
    while bench.clock.now() - start < 200 * SECOND:
        await at_risk(bench, count)
        bench.clock.advance(SECOND)
    assert len(store.asked) <= 3
