"""A worker is shown with what it runs, and a lost one with what became of its tasks."""

from __future__ import annotations

import pytest

from fairlead.admin.sweeper import Sweeper
from fairlead.core.errors import InvalidSettings, OperationRefused, WorkerNotFound
from fairlead.core.events import Completed
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.instant import HOUR, MINUTE, SECOND
from fairlead.core.task import State
from fairlead.engine import worker_tasks
from fairlead.engine.worker_records import FORGOTTEN_AFTER, WorkerState
from fairlead.engine.worker_tasks import MOST_SHOWN
from fairlead.storage.protocol import Store
from tests.engine.building import Bench

ONE, TWO = WorkerId("one"), WorkerId("two")


@pytest.fixture
def bench(any_store: Store) -> Bench:
    return Bench(store=any_store, batching=False)


async def join(bench: Bench, worker: WorkerId = ONE, name: str = "") -> None:
    await bench.engine.worker_records.register(worker, queues=["default"], capacity=4, name=name)


async def lose(bench: Bench, count: int = 1, worker: WorkerId = ONE) -> list[str]:
    """Let a worker claim tasks and never be heard of again; their ids."""
    for _ in range(count):
        await bench.submit()
    tasks = await bench.claim(count, worker)
    bench.clock.advance(MINUTE)
    await bench.engine.sweep()
    return [task.id for task in tasks]


async def test_a_worker_is_shown_with_what_it_runs(bench: Bench) -> None:
    await join(bench)
    await join(bench, TWO)
    for _ in range(3):
        await bench.submit()
    mine = await bench.claim(2, ONE)
    (others,) = await bench.claim(1, TWO)

    report = await bench.engine.workers.get(ONE)
    assert list(report.running) == mine
    assert (report.worker.state, report.drain_asked, report.lost) == (WorkerState.ACTIVE, False, ())
    assert (await bench.engine.workers.get(TWO)).running == (others,)


async def test_a_worker_is_found_by_its_name_if_no_other_has_it(bench: Bench) -> None:
    await join(bench, ONE, "mail")
    assert (await bench.engine.workers.get("mail")).worker.id == ONE
    await join(bench, TWO, "mail")
    with pytest.raises(InvalidSettings, match="one, two"):
        await bench.engine.workers.get("mail")
    with pytest.raises(WorkerNotFound):
        await bench.engine.workers.get("nobody")


async def test_a_worker_is_asked_to_drain_by_name_from_anywhere(bench: Bench) -> None:
    await join(bench, ONE, "mail")
    other = Bench(store=bench.store, clock=bench.clock, batching=False)
    assert (await other.engine.workers.drain("mail")).id == ONE
    assert (await other.engine.workers.get(ONE)).drain_asked
    assert await bench.engine.worker_records.beat(ONE, running=0)
    with pytest.raises(WorkerNotFound):
        await other.engine.workers.drain("nobody")


async def test_a_dead_worker_is_forgotten_and_no_other(bench: Bench) -> None:
    await join(bench, ONE, "mail")
    with pytest.raises(OperationRefused, match=f"worker {ONE} is active; drain it"):
        await bench.engine.workers.forget("mail")
    bench.clock.advance(bench.engine.settings.lease + SECOND)
    await bench.engine.worker_records.sweep()
    assert (await bench.engine.workers.forget("mail")).state is WorkerState.DEAD
    assert await bench.engine.workers.all() == []
    with pytest.raises(WorkerNotFound):
        await bench.engine.workers.forget("mail")


async def test_a_lost_worker_holds_its_tasks_until_their_leases_are_swept(bench: Bench) -> None:
    await join(bench)
    await bench.submit()
    (held,) = await bench.claim(1, ONE)
    bench.clock.advance(MINUTE)

    report = await bench.engine.workers.get(ONE)
    assert report.worker.state is WorkerState.DEAD
    assert report.running == (held,)
    assert report.lost == ()


async def test_a_lost_worker_is_shown_with_what_became_of_its_tasks(bench: Bench) -> None:
    await join(bench)
    first, second = await lose(bench, 2)
    lost_at = bench.clock.now()
    bench.clock.advance(SECOND * 10)
    await bench.engine.sweep()
    for task in await bench.claim(5, TWO):
        if task.id == second:
            await bench.settle(task, Completed())

    report = await bench.engine.workers.get(ONE)
    assert report.running == ()
    assert report.lost_count == 2
    became = {lost.id: (lost.at, lost.task and lost.task.state) for lost in report.lost}
    assert became == {first: (lost_at, State.EXECUTING), second: (lost_at, State.COMPLETED)}
    await bench.engine.discard(TaskId(second))
    gone = {lost.id: lost.task for lost in (await bench.engine.workers.get(ONE)).lost}
    assert gone[TaskId(second)] is None


async def test_only_the_latest_are_kept_and_all_are_counted(bench: Bench) -> None:
    await join(bench)
    await lose(bench, MOST_SHOWN)
    latest = await lose(bench, 5)
    report = await bench.engine.workers.get(ONE)
    assert report.lost_count == MOST_SHOWN + 5
    assert len(report.lost) == MOST_SHOWN
    assert {lost.id for lost in report.lost[:5]} == set(latest)


async def test_what_was_noted_is_forgotten_with_the_worker(bench: Bench) -> None:
    await join(bench)
    await lose(bench)
    sweeper = Sweeper(bench.engine)
    await sweeper.tidy()
    assert [record.name for record in await bench.store.scan(worker_tasks.LOST)] == [ONE]
    bench.clock.advance(FORGOTTEN_AFTER + HOUR)
    await sweeper.tidy()
    assert await bench.store.scan(worker_tasks.LOST) == []


async def test_what_ends_by_itself_is_not_lost(bench: Bench) -> None:
    await join(bench)
    await bench.submit(delay=SECOND)
    bench.clock.advance(2 * SECOND)
    await bench.engine.sweep()
    assert await bench.store.scan(worker_tasks.LOST) == []
