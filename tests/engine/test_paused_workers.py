"""A worker that somebody pauses finishes what it has and claims nothing, on every store, until it is resumed."""

from __future__ import annotations

import pytest

from fairlead.core.errors import WorkerNotFound
from fairlead.core.events import Completed
from fairlead.core.explain.explanation import CauseCode
from fairlead.core.identity import WorkerId
from fairlead.core.instant import SECOND
from fairlead.core.task import State
from fairlead.engine.events.types import EventType, WorkerEvent
from fairlead.engine.queue_cache import FRESH
from fairlead.engine.worker_records import FORGOTTEN_AFTER, WorkerState
from fairlead.storage.protocol import Store
from tests.engine.building import Bench

ONE, TWO = WorkerId("one"), WorkerId("two")


@pytest.fixture
def bench(any_store: Store) -> Bench:
    return Bench(store=any_store, batching=False)


async def join(bench: Bench, worker: WorkerId = ONE, name: str = "") -> None:
    await bench.engine.worker_records.register(worker, queues=["default"], capacity=4, name=name)


def elsewhere(bench: Bench) -> Bench:
    """Another process on the same store."""
    return Bench(store=bench.store, clock=bench.clock, batching=False)


async def test_a_paused_worker_gets_nothing_and_others_do(bench: Bench) -> None:
    await join(bench)
    await join(bench, TWO)
    await bench.submit()
    await bench.engine.workers.pause(ONE)
    assert await bench.claim(worker=ONE) == []
    assert len(await bench.claim(worker=TWO)) == 1


async def test_what_it_holds_goes_on_to_its_end(bench: Bench) -> None:
    await join(bench)
    await bench.submit()
    (task,) = await bench.claim(worker=ONE)
    await bench.engine.workers.pause(ONE)
    assert list((await bench.engine.workers.get(ONE)).running) == [task]
    assert (await bench.settle(task, Completed())).state is State.COMPLETED


async def test_a_resumed_worker_claims_again(bench: Bench) -> None:
    await join(bench, ONE, "mail")
    await bench.submit()
    await bench.engine.workers.pause("mail")
    assert await bench.claim(worker=ONE) == []
    await bench.engine.workers.resume("mail")
    assert len(await bench.claim(worker=ONE)) == 1


async def test_other_processes_know_a_second_later(bench: Bench) -> None:
    operator = elsewhere(bench)
    await join(bench)
    assert await bench.claim(worker=ONE) == []
    await bench.submit()
    await operator.engine.workers.pause(ONE)
    bench.clock.advance(FRESH)
    assert await bench.claim(worker=ONE) == []
    await operator.engine.workers.resume(ONE)
    bench.clock.advance(FRESH)
    assert len(await bench.claim(worker=ONE)) == 1


@pytest.mark.parametrize("draining", [False, True], ids=["active", "draining"])
async def test_nothing_that_a_worker_says_of_itself_undoes_a_pause(bench: Bench, draining: bool) -> None:
    await join(bench)
    await bench.submit()
    await elsewhere(bench).engine.workers.pause(ONE)
    for _ in range(3):
        bench.clock.advance(10 * SECOND)
        await bench.engine.worker_records.beat(ONE, running=0, draining=draining)
    await join(bench)
    assert await bench.claim(worker=ONE) == []
    (worker,) = await bench.engine.workers.all()
    assert (worker.paused, worker.takes_tasks) == (True, False)


async def test_a_paused_worker_can_be_drained(bench: Bench) -> None:
    await join(bench)
    await bench.engine.workers.pause(ONE)
    await bench.engine.workers.drain(ONE)
    assert await bench.engine.worker_records.beat(ONE, running=0)
    (worker,) = await bench.engine.workers.all()
    assert (worker.state, worker.word, worker.paused) == (WorkerState.DRAINING, "draining", True)


async def test_a_pause_ends_with_its_worker(bench: Bench) -> None:
    await join(bench)
    await bench.submit()
    await bench.engine.workers.pause(ONE)
    assert await bench.claim(worker=ONE) == []
    await bench.engine.worker_records.leave(ONE)
    await join(bench)
    assert not (await bench.engine.workers.all())[0].paused
    assert len(await bench.claim(worker=ONE)) == 1


async def test_a_worker_that_was_dead_for_a_while_is_still_paused_and_a_forgotten_one_leaves_nothing(
    bench: Bench,
) -> None:
    await join(bench)
    await bench.engine.workers.pause(ONE)
    bench.clock.advance(bench.engine.settings.lease + SECOND)
    await bench.engine.worker_records.sweep()
    (worker,) = await bench.engine.workers.all()
    assert (worker.state, worker.word, worker.paused) == (WorkerState.DEAD, "dead", True)
    await bench.engine.worker_records.beat(ONE, running=0)
    assert (await bench.engine.workers.all())[0].word == "paused"
    bench.clock.advance(FORGOTTEN_AFTER + SECOND)
    await bench.engine.worker_records.sweep()
    await bench.engine.worker_records.sweep()
    assert await bench.store.scan("pause") == []


async def test_pausing_and_resuming_twice_changes_nothing_more(bench: Bench) -> None:
    await join(bench)
    for _ in range(2):
        assert (await bench.engine.workers.pause(ONE)).paused
    for _ in range(2):
        assert not (await bench.engine.workers.resume(ONE)).paused
    assert await bench.store.scan("pause") == []


async def test_only_a_worker_that_is_known_is_paused(bench: Bench) -> None:
    for act in (bench.engine.workers.pause, bench.engine.workers.resume):
        with pytest.raises(WorkerNotFound):
            await act("nobody")
    assert await bench.store.scan("pause") == []


async def test_a_pause_is_never_in_the_record_that_a_worker_keeps_of_itself(bench: Bench) -> None:
    """Where an older process would lose it, or could not read it."""
    await join(bench)
    await bench.engine.workers.pause(ONE)
    await bench.engine.worker_records.beat(ONE, running=0)
    (record,) = await bench.store.scan("worker")
    assert b"paused" not in record.value


async def test_stats_count_a_paused_worker_apart_and_its_slots_with_those_that_live(bench: Bench) -> None:
    await join(bench)
    await join(bench, TWO)
    await bench.engine.workers.pause(TWO)
    workers = (await bench.engine.stats()).workers
    assert (workers.active, workers.paused, workers.draining, workers.dead) == (1, 1, 0, 0)
    assert workers.total_capacity == 8


async def test_a_scaler_does_not_count_on_a_paused_worker(bench: Bench) -> None:
    await join(bench)
    await join(bench, TWO)
    await bench.engine.workers.pause(TWO)
    assert (await bench.engine.autoscale()).load.workers == 1


async def test_a_task_says_that_it_waits_for_a_paused_worker(bench: Bench) -> None:
    await join(bench)
    await join(bench, TWO)
    task = await bench.submit()
    await bench.engine.workers.pause(ONE)
    assert CauseCode.ALL_PAUSED not in {cause.code for cause in (await bench.engine.explain(task.id)).causes}
    await bench.engine.workers.drain(TWO)
    await bench.engine.worker_records.beat(TWO, running=0)
    (cause,) = [each for each in (await bench.engine.explain(task.id)).causes if each.code == CauseCode.ALL_PAUSED]
    assert cause.text == "every worker that could run it is paused or draining; paused: one"
    assert cause.blocks


async def test_the_doctor_names_a_paused_worker_to_resume(bench: Bench) -> None:
    await join(bench)
    await bench.submit()
    await bench.engine.workers.pause(ONE)
    findings = {finding.what: finding for finding in (await bench.engine.diagnose()).findings}
    assert findings["workers"].value == "1 paused"
    assert findings["queue default"].remedy == "resume one that is paused: `fairlead workers resume one`"


async def test_it_is_told_once_to_who_listens(bench: Bench) -> None:
    await join(bench, ONE, "mail")
    operator = elsewhere(bench)
    await operator.engine.feed.want()
    for _ in range(2):
        await operator.engine.workers.pause(ONE)
    for _ in range(2):
        await operator.engine.workers.resume(ONE)
    events = [one.event for one in await operator.engine.feed.read(None)]
    told = [(event.type, event.data.worker_id, event.data.name) for event in events if isinstance(event, WorkerEvent)]
    assert told == [(EventType.PAUSED, ONE, "mail"), (EventType.RESUMED, ONE, "mail")]
