"""How long tasks have waited: percentiles that are counted, never read off tasks, on every store."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.instant import DAY, MILLISECOND, MINUTE, SECOND, Span
from fairlead.core.task import Priority
from fairlead.engine import queue_ages as counting
from fairlead.engine.queue_ages import AgePercentiles, QueueAges, queue_ages, rank_of
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.memory import MemoryStore
from fairlead.storage.protocol import Store
from fairlead.storage.values import Stretch
from tests.engine.building import Bench


def true_age(ages: Sequence[Span], percent: int) -> Span:
    """The least age that so many of a hundred tasks have not exceeded."""
    return sorted(ages)[max(1, math.ceil(percent * len(ages) / 100)) - 1]


def check(found: AgePercentiles, ages: Sequence[Span]) -> None:
    """Percentiles are never too low, and too high by a hundredth at most."""
    for age, percent in ((found.p50, 50), (found.p95, 95)):
        truth = true_age(ages, percent)
        assert truth <= age <= truth + max(MILLISECOND, truth // 100 + 1), (percent, age, truth)


async def test_ages_are_those_of_the_tasks_by_queue_and_priority_and_in_all(any_store: Store) -> None:
    bench = Bench(store=any_store)
    luck = random.Random(7)
    waits: list[tuple[str, Priority, int]] = []
    for _ in range(60):
        queue, priority = luck.choice(["a", "b"]), luck.choice([Priority.HIGH, Priority.LOW])
        await bench.submit(queue=queue, priority=priority, type=luck.choice(["x", "y"]))
        waits.append((queue, priority, bench.clock.now()))
        bench.clock.advance(luck.choice([0, MILLISECOND, SECOND, 5 * MINUTE]))
    await bench.submit(queue="a", delay=DAY)
    now = bench.clock.now()

    found = await bench.engine.ages()

    assert set(found.by_queue) == {(queue, priority) for queue, priority, _ in waits}
    for (queue, priority), ages in found.by_queue.items():
        check(ages, [now - at for name, each, at in waits if (name, each) == (queue, priority)])
    for priority, ages in found.overall.items():
        check(ages, [now - at for _, each, at in waits if each is priority])
    own = await bench.engine.ages({"b"})
    check(own.overall[Priority.LOW], [now - at for name, each, at in waits if (name, each) == ("b", Priority.LOW)])
    assert {queue for queue, _ in own.by_queue} == {"b"}


async def test_where_nothing_waits_there_are_no_ages(any_store: Store) -> None:
    bench = Bench(store=any_store)
    await bench.submit(delay=DAY)
    await bench.executing()
    assert await bench.engine.ages() == QueueAges(by_queue={}, overall={})


async def test_tasks_that_wait_since_one_moment_have_one_age(any_store: Store) -> None:
    bench = Bench(store=any_store)
    for _ in range(30):
        await bench.submit()
    bench.clock.advance(DAY)
    assert (await bench.engine.ages()).overall == {Priority.MEDIUM: AgePercentiles(p50=DAY, p95=DAY)}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, DAY)), min_size=1, max_size=40))
def test_ages_are_right_however_waits_are_spread(tasks: list[tuple[int, Span]]) -> None:
    bench = Bench(batching=False)
    begun = bench.clock.now()
    for lane, at in sorted(tasks, key=lambda each: each[1]):
        bench.clock.advance(begun + at - bench.clock.now())
        run_inline(bench.submit(type=f"t{lane}"))
    now = bench.clock.now()
    found = run_inline(queue_ages(bench.store, now))
    check(found.overall[Priority.MEDIUM], [now - begun - at for _, at in tasks])


@given(st.integers(1, 10_000))
def test_a_percentile_is_the_wait_of_a_task(total: int) -> None:
    assert 0 <= rank_of(95, total) <= rank_of(50, total) < total
    assert rank_of(100, total) == 0


async def test_a_clock_that_is_a_little_behind_finds_tasks_that_have_waited_for_nothing(bench: Bench) -> None:
    for _ in range(3):
        await bench.submit()
    found = await queue_ages(bench.store, bench.clock.now() - SECOND // 2)
    assert found.overall == {Priority.MEDIUM: AgePercentiles(p50=0, p95=0)}


async def test_tasks_in_very_many_lanes_are_not_counted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "MOST_LANES", 3)
    for lane in range(4):
        await bench.submit(type=f"t{lane}")
    assert (await bench.engine.ages()).overall, "the only task of a lane needs no counting"
    for lane in range(4):
        await bench.submit(type=f"t{lane}")
    assert await bench.engine.ages() == QueueAges()


async def test_of_tasks_that_are_claimed_while_they_are_counted_nothing_is_told() -> None:
    class Emptied(MemoryStore):
        async def count(self, stretches: Sequence[Stretch], most: int | None = None) -> list[int]:
            while await bench.claim(10):
                pass
            return await super().count(stretches, most)

    bench = Bench(store=Emptied())
    for _ in range(3):
        await bench.submit()
    assert (await bench.engine.ages()).overall == {}


async def test_how_much_is_counted_does_not_grow_with_the_tasks_that_wait() -> None:
    class Counted(MemoryStore):
        stretches = 0

        async def count(self, stretches: Sequence[Stretch], most: int | None = None) -> list[int]:
            self.stretches += len(stretches)
            return await super().count(stretches, most)

    for size in (10, 1_000):
        store = Counted()
        bench = Bench(store=store)
        for _ in range(size):
            await bench.submit()
            bench.clock.advance(DAY // size)
        await bench.engine.ages()
        assert store.stretches < 200
