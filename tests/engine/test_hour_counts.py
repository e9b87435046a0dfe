"""What was counted within the last hour, by queue and priority, over all processes, on every store."""

from __future__ import annotations

import pytest

from fairlead.admin.sweeper import Sweeper
from fairlead.core.events import Completed, Failed
from fairlead.core.instant import HOUR, MINUTE, SECOND
from fairlead.core.task import Priority, State, Task
from fairlead.engine.metrics import throughput
from fairlead.engine.metrics.throughput import OTHER_QUEUES, HourCounts, HourRow, ThroughputMeter, hour_of
from fairlead.engine.stats import Stats
from fairlead.storage.protocol import Store
from tests.engine.building import BOOM, Bench
from tests.unit.building import a_spec, a_task

LINE = Priority.MEDIUM


@pytest.fixture
def bench(any_store: Store) -> Bench:
    return Bench(store=any_store, batching=False)


def hour(stats: Stats, queue: str = "default", priority: Priority = LINE) -> HourCounts:
    return stats.queues[queue].lines[priority].hour


async def run(bench: Bench, waits: int, takes: int, fails: bool = False, **wish: object) -> Task:
    """Have a task wait and run for so many seconds, and end."""
    await bench.submit(**wish)
    bench.clock.advance(waits * SECOND)
    (task,) = await bench.claim()
    bench.clock.advance(takes * SECOND)
    return await bench.settle(task, Failed(failure=BOOM, after=0) if fails else Completed())


async def test_waits_and_durations_are_those_of_last_attempts_of_what_ended(bench: Bench) -> None:
    await run(bench, waits=2, takes=10)
    await run(bench, waits=4, takes=20, fails=True, max_retries=0)
    await run(bench, waits=1, takes=7, priority=Priority.HIGH)
    # The first attempt is followed by another, and the wait before that one begins anew.
    await run(bench, waits=100, takes=100, fails=True, max_retries=1)
    bench.clock.advance(3 * SECOND)
    (again,) = await bench.claim()
    bench.clock.advance(30 * SECOND)
    await bench.settle(again, Completed())

    stats = await bench.engine.stats()

    assert hour(stats) == HourCounts(ended=3, waited=9 * SECOND, took=60 * SECOND)
    assert hour(stats, priority=Priority.HIGH) == HourCounts(ended=1, waited=SECOND, took=7 * SECOND)
    assert hour(stats, priority=Priority.LOW) == HourCounts()


async def test_a_task_that_was_cancelled_before_it_ran_has_no_duration(bench: Bench) -> None:
    task = await bench.submit()
    await bench.engine.cancel(task.id)
    assert hour(await bench.engine.stats()) == HourCounts()


async def test_promotions_are_counted_by_the_priority_that_tasks_have(bench: Bench) -> None:
    await bench.submit(priority=Priority.LOW)
    await bench.submit(priority=LINE)
    bench.clock.advance(11 * MINUTE)
    await bench.claim(2)
    stats = await bench.engine.stats()
    assert hour(stats, priority=Priority.LOW) == HourCounts(promoted=1)
    assert hour(stats) == HourCounts()


async def test_recoveries_are_what_waits_again_after_its_worker_was_lost(bench: Bench) -> None:
    await bench.executing()
    await bench.executing(max_crashes=0)
    asked = await bench.executing()
    await bench.engine.cancel(asked.id)
    bench.clock.advance(MINUTE)
    await bench.engine.sweep()
    assert hour(await bench.engine.stats()).recovered == 1


async def test_all_processes_count_together_also_those_that_have_ended(bench: Bench, any_store: Store) -> None:
    other = Bench(store=any_store, batching=False, clock=bench.clock, seed=2)
    await run(bench, waits=1, takes=1)
    await run(other, waits=3, takes=5)
    assert hour(await bench.engine.stats()).ended == hour(await other.engine.stats()).ended == 1
    await Sweeper(other.engine).tidy()
    del other
    for _ in range(5):
        assert hour(await bench.engine.stats()) == HourCounts(ended=2, waited=4 * SECOND, took=6 * SECOND)
        bench.clock.advance(10 * MINUTE)
        await Sweeper(bench.engine).tidy()
    bench.clock.advance(10 * MINUTE)
    assert hour(await bench.engine.stats()) == HourCounts()


async def test_what_is_reported_again_is_counted_once(bench: Bench, any_store: Store) -> None:
    other = Bench(store=any_store, batching=False, clock=bench.clock, seed=2)
    await run(bench, waits=1, takes=1)
    for _ in range(3):
        await Sweeper(bench.engine).tidy()
        bench.clock.advance(2 * MINUTE)
    assert hour(await bench.engine.stats()).ended == hour(await other.engine.stats()).ended == 1


async def test_the_reports_of_a_process_that_rests_end_within_the_hour(bench: Bench, any_store: Store) -> None:
    await run(bench, waits=1, takes=1)
    await Sweeper(bench.engine).tidy()
    (report,) = await any_store.scan("throughput")
    bench.clock.advance(2 * MINUTE)
    await Sweeper(bench.engine).tidy()
    await Sweeper(bench.engine).tidy()
    (again,) = await any_store.scan("throughput")
    assert again.version == report.version + 1, "it is stored no more often than it changes"
    bench.clock.advance(HOUR)
    await Sweeper(bench.engine).tidy()
    assert await any_store.scan("throughput") == []


def completed(queue: str, at: int, priority: Priority = LINE) -> Task:
    return a_task(State.COMPLETED, spec=a_spec(queue=queue), priority=priority, ready_at=at - 3, started_at=at - 2)


def test_what_is_older_than_a_minute_goes_on_counting_for_the_hour() -> None:
    meter = ThroughputMeter()
    begun = 1_000 * HOUR
    for minute in range(60):
        meter.count([completed("a", begun + minute * MINUTE)], begun + minute * MINUTE)
    now = begun + 59 * MINUTE
    assert hour_of(meter.hour(now), now) == {"a": {LINE: HourCounts(ended=60, waited=60, took=120)}}
    assert meter.total(now).completed == 1
    later = now + 30 * MINUTE
    assert hour_of(meter.hour(later), later)["a"][LINE].ended == 30
    assert meter.hour(now + HOUR) == []


def test_a_clock_that_goes_back_and_forth_makes_no_number_negative_and_keeps_no_rows() -> None:
    meter = ThroughputMeter()
    begun = 1_000 * HOUR
    for step in (0, -2 * HOUR, 5 * HOUR, -HOUR, 0):
        meter.count([completed("a", begun), completed("a", begun + step)], begun + step)
    counts = hour_of(meter.hour(begun), begun)["a"][LINE]
    # What a clock has left behind by hours may be forgotten; it is never counted twice.
    assert 2 <= counts.ended <= 4 and counts.waited >= 0 and counts.took >= 0
    assert len(meter.hour(begun)) <= 12


def test_a_process_keeps_and_reports_a_bounded_number_of_queues_and_counts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "_MOST_ROWS", 50)
    monkeypatch.setattr(throughput, "_MOST_REPORTED", 96)
    meter = ThroughputMeter()
    at = 1_000 * HOUR
    for _ in range(3):
        meter.count([completed("busy", at)], at)
    for number in range(200):
        meter.count([completed(f"q{number}", at)], at)
    assert len(meter.hour(at)) <= 3
    later = at + 2 * MINUTE
    meter.count([completed("late", later)], later)
    rows = meter.hour(later)
    counts = hour_of(rows, later)
    assert len(meter._hour) <= 50 + 1 and sum(row.ended for row in rows) == 204
    assert OTHER_QUEUES in counts and counts["busy"][LINE].ended == 3


def test_a_row_of_a_priority_that_nobody_knows_is_passed_over() -> None:
    now = 1_000 * HOUR
    rows = [HourRow("a", 9, now // (5 * MINUTE), ended=1), HourRow("a", 2, now // (5 * MINUTE), ended=1)]
    assert hour_of(rows, now) == {"a": {LINE: HourCounts(ended=1)}}
