"""Workers are known while they live, shown as dead when they are not heard of, and forgotten in the end."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.admin.sweeper import Sweeper
from fairlead.core.errors import WorkerNotFound
from fairlead.core.events import Completed, Failed
from fairlead.core.identity import WorkerId
from fairlead.core.instant import HOUR, MINUTE, SECOND
from fairlead.engine.events.types import EventType, WorkerEvent
from fairlead.engine.metrics.throughput import Throughput
from fairlead.engine.runtime.clock import ManualClock
from fairlead.engine.stats import WorkerStats
from fairlead.engine.worker_records import WorkerRecord, WorkerState
from fairlead.storage.protocol import Store
from tests.engine.building import BOOM, Bench

ONE, TWO = WorkerId("one"), WorkerId("two")


@pytest.fixture
def bench(any_store: Store) -> Bench:
    # Without batching, an operation has told what it has to tell when it returns.
    return Bench(store=any_store, batching=False)


async def join(bench: Bench, worker: WorkerId = ONE, **how: Any) -> WorkerRecord:
    wish: dict[str, Any] = {"queues": ["default"], "capacity": 4} | how
    return await bench.engine.worker_records.register(worker, **wish)


async def states(bench: Bench) -> dict[WorkerId, WorkerState]:
    return {worker.id: worker.state for worker in await bench.engine.worker_records.workers()}


async def told(bench: Bench) -> list[tuple[EventType, WorkerId]]:
    events = [one.event for one in await bench.engine.feed.read(None)]
    return [(event.type, event.data.worker_id) for event in events if isinstance(event, WorkerEvent)]


async def test_a_worker_that_joined_is_known_as_it_said(bench: Bench) -> None:
    given = await join(
        bench,
        queues=["b", "a"],
        capabilities={"gpu", "eu"},
        types={"x"},
        host="h",
        pid=7,
        version="1.2",
        name="the first",
    )

    assert await bench.engine.worker_records.workers() == [given]
    assert given == WorkerRecord(
        id=ONE,
        name="the first",
        host="h",
        pid=7,
        version="1.2",
        queues=("b", "a"),
        capabilities=("eu", "gpu"),
        types=("x",),
        capacity=4,
        since=bench.clock.now(),
        seen_at=bench.clock.now(),
        lease=bench.engine.settings.lease,
        heartbeat=bench.engine.settings.heartbeat,
    )


async def test_a_beat_says_that_it_lives_and_how_busy_it_is(bench: Bench) -> None:
    joined = await join(bench)
    bench.clock.advance(10 * SECOND)
    await bench.engine.worker_records.beat(ONE, running=3)

    (worker,) = await bench.engine.worker_records.workers()
    assert (worker.running, worker.state) == (3, WorkerState.ACTIVE)
    assert (worker.since, worker.seen_at) == (joined.since, joined.since + 10 * SECOND)


async def test_a_worker_may_speak_through_any_process(any_store: Store) -> None:
    clock = ManualClock()
    first, second = (Bench(store=any_store, clock=clock, batching=False) for _ in range(2))
    await join(first)
    for bench, running in ((second, 1), (first, 2), (first, 3), (second, 4)):
        await bench.engine.worker_records.beat(ONE, running=running)
        (worker,) = await first.engine.worker_records.workers()
        assert worker.running == running
    assert await second.engine.worker_records.leave(ONE)

    with pytest.raises(WorkerNotFound):
        await first.engine.worker_records.beat(ONE, running=0)
    assert await states(first) == {}


async def test_a_worker_that_left_is_gone(bench: Bench) -> None:
    await join(bench, ONE)
    await join(bench, TWO)

    assert await bench.engine.worker_records.leave(ONE) is True
    assert await bench.engine.worker_records.leave(ONE) is False
    assert await states(bench) == {TWO: WorkerState.ACTIVE}


async def test_an_unknown_worker_must_join_first(bench: Bench) -> None:
    with pytest.raises(WorkerNotFound):
        await bench.engine.worker_records.beat(ONE, running=0)
    with pytest.raises(WorkerNotFound):
        await bench.engine.worker_records.ask_drain(ONE)


async def test_a_worker_hears_at_its_next_beat_that_it_is_to_drain(any_store: Store) -> None:
    clock = ManualClock()
    bench, operator = (Bench(store=any_store, clock=clock, batching=False) for _ in range(2))
    await join(bench, ONE)
    await join(bench, TWO)
    assert await bench.engine.worker_records.beat(ONE, running=1) is False
    await operator.engine.worker_records.ask_drain(ONE)

    assert await bench.engine.worker_records.beat(TWO, running=1) is False
    assert await bench.engine.worker_records.beat(ONE, running=1) is True
    assert await bench.engine.worker_records.beat(ONE, running=1, draining=True) is True
    assert await states(bench) == {ONE: WorkerState.DRAINING, TWO: WorkerState.ACTIVE}


async def test_a_worker_that_left_leaves_no_request_behind(bench: Bench) -> None:
    await join(bench)
    await bench.engine.worker_records.ask_drain(ONE)
    await bench.engine.worker_records.leave(ONE)

    await join(bench)
    assert await bench.engine.worker_records.beat(ONE, running=0) is False


async def test_a_worker_that_is_not_heard_of_is_dead_and_lives_again_when_it_is(bench: Bench) -> None:
    await join(bench)
    bench.clock.advance(30 * SECOND)
    assert await states(bench) == {ONE: WorkerState.ACTIVE}
    bench.clock.advance(1)
    assert await states(bench) == {ONE: WorkerState.DEAD}
    await bench.engine.worker_records.sweep()
    assert await states(bench) == {ONE: WorkerState.DEAD}

    await bench.engine.worker_records.beat(ONE, running=0)
    assert await states(bench) == {ONE: WorkerState.ACTIVE}


async def test_a_dead_worker_is_forgotten_after_an_hour(bench: Bench) -> None:
    await join(bench)
    await bench.engine.worker_records.ask_drain(ONE)
    bench.clock.advance(HOUR)
    await Sweeper(bench.engine).tidy()
    assert await states(bench) == {ONE: WorkerState.DEAD}
    bench.clock.advance(1)
    await Sweeper(bench.engine).tidy()
    await Sweeper(bench.engine).tidy()

    assert await states(bench) == {}
    assert await bench.store.scan("drain") == []
    with pytest.raises(WorkerNotFound):
        await bench.engine.worker_records.beat(ONE, running=0)


async def test_what_becomes_of_workers_is_told_once(any_store: Store) -> None:
    clock = ManualClock()
    bench, other = (Bench(store=any_store, clock=clock, batching=False) for _ in range(2))
    await bench.engine.feed.want()
    await join(bench, ONE)
    await join(bench, TWO)
    await bench.engine.worker_records.beat(ONE, running=1, draining=True)
    await bench.engine.worker_records.beat(ONE, running=1, draining=True)
    await bench.engine.worker_records.leave(ONE)
    clock.advance(31 * SECOND)
    await bench.engine.worker_records.sweep()
    await other.engine.worker_records.sweep()
    await bench.engine.worker_records.beat(TWO, running=0)

    assert await told(bench) == [
        (EventType.JOINED, ONE),
        (EventType.JOINED, TWO),
        (EventType.DRAINING, ONE),
        (EventType.LEFT, ONE),
        (EventType.LOST, TWO),
        (EventType.JOINED, TWO),
    ]


async def test_stats_count_the_workers_and_the_room_of_those_that_live(bench: Bench) -> None:
    await join(bench, WorkerId("dead"), capacity=100)
    bench.clock.advance(31 * SECOND)
    await join(bench, ONE, capacity=4)
    await join(bench, TWO, capacity=2)
    await bench.engine.worker_records.beat(ONE, running=3)
    await bench.engine.worker_records.beat(TWO, running=1, draining=True)

    stats = await bench.engine.stats()

    assert stats.workers == WorkerStats(active=1, draining=1, dead=1, total_capacity=6, used_capacity=4)


async def test_throughput_is_the_sum_of_what_live_processes_report(any_store: Store) -> None:
    clock = ManualClock()
    first, second = (Bench(store=any_store, clock=clock, seed=seed, batching=False) for seed in (1, 2))
    for bench in (first, second):
        await bench.settle(await bench.executing(), Completed())
    await first.settle(await first.executing(max_retries=0), Failed(failure=BOOM))
    await first.settle(await first.executing(), Failed(failure=BOOM, retriable=False))
    await first.settle(await first.executing(), Failed(failure=BOOM))
    assert (await first.engine.stats()).throughput == Throughput()
    for bench in (first, second):
        await Sweeper(bench.engine).tidy()

    assert (await first.engine.stats()).throughput == Throughput(completed=2, failed=2)

    clock.advance(31 * SECOND)
    await Sweeper(second.engine).tidy()
    assert (await first.engine.stats()).throughput == Throughput(completed=1)

    clock.advance(MINUTE)
    await Sweeper(second.engine).tidy()
    assert (await first.engine.stats()).throughput == Throughput()
    clock.advance(HOUR)
    await Sweeper(second.engine).tidy()
    assert await any_store.scan("throughput") == []


async def test_a_worker_shows_what_it_did_within_the_last_minute(bench: Bench) -> None:
    worker = WorkerId("worker-1")
    await join(bench, worker)
    await bench.settle(await bench.executing(), Completed())
    bench.clock.advance(40 * SECOND)
    await bench.settle(await bench.executing(), Completed())
    await bench.settle(await bench.executing(max_retries=0), Failed(failure=BOOM))
    await bench.engine.worker_records.beat(worker, running=0)
    (now,) = await bench.engine.worker_records.workers()
    bench.clock.advance(40 * SECOND)
    await bench.engine.worker_records.beat(worker, running=0)
    (later,) = await bench.engine.worker_records.workers()

    assert (now.completed, now.failed) == (2, 1)
    assert (later.completed, later.failed) == (1, 1)


async def test_a_record_that_cannot_be_read_is_left_alone(bench: Bench) -> None:
    await bench.store.put("worker", "from the future", b"?")
    await join(bench)
    await bench.engine.worker_records.sweep()

    assert await states(bench) == {ONE: WorkerState.ACTIVE}
