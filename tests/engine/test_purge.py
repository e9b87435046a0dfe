"""A purge removes what waits, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fairlead.core.errors import InvalidTask
from fairlead.core.instant import HOUR, SECOND
from fairlead.core.queues.queue import PurgeCount
from fairlead.core.task import State, Task
from fairlead.engine.events.types import Happening
from fairlead.storage.memory import MemoryStore
from fairlead.storage.protocol import Lagging, Store
from fairlead.storage.values import Change, Filter, Verdict
from tests.engine.building import Bench, a_wish


@pytest.fixture
def bench(any_store: Store) -> Bench:
    return Bench(store=any_store, batching=False)


async def states(bench: Bench, queue: str = "default") -> list[State]:
    store, matching = bench.store, Filter(queue=queue)
    find = store.find_current if isinstance(store, Lagging) else store.find
    return sorted(task.state for task in await find(matching, limit=100))


async def test_what_waits_is_removed_and_what_runs_goes_on(bench: Bench) -> None:
    running = await bench.executing()
    ended = await bench.submit()
    await bench.engine.cancel(ended.id)
    await bench.submit()
    await bench.submit(delay=HOUR)
    await bench.submit(queue="other")

    assert await bench.engine.queues.purge("default") == PurgeCount(scheduled=1, queued=1)

    assert await states(bench) == [State.CANCELLED, State.EXECUTING]
    assert await bench.engine.get(running.id) == running
    assert await states(bench, "other") == [State.QUEUED]
    assert bench.told().count(Happening.REMOVED) == 2


async def test_a_queue_without_tasks_has_nothing_to_purge(bench: Bench) -> None:
    assert await bench.engine.queues.purge("default") == PurgeCount()
    with pytest.raises(InvalidTask):
        await bench.engine.queues.purge("not a name")


async def test_a_key_is_free_again(bench: Bench) -> None:
    first = await bench.submit(idempotency_key="k")
    await bench.engine.queues.purge("default")
    assert (await bench.submit(idempotency_key="k")).id != first.id


async def test_a_purge_of_many_goes_in_batches(bench: Bench) -> None:
    await bench.engine.submit_many([a_wish(delay=HOUR if number % 2 else None) for number in range(2_500)])
    assert await bench.engine.queues.purge("default") == PurgeCount(scheduled=1_250, queued=1_250)
    assert await states(bench) == []


async def test_a_limit_is_kept_and_said(bench: Bench) -> None:
    await bench.engine.submit_many([a_wish() for _ in range(25)])
    assert await bench.engine.queues.purge("default", 20) == PurgeCount(queued=20, complete=False)
    assert await bench.engine.queues.purge("default", 20) == PurgeCount(queued=5, complete=True)


async def test_a_paused_queue_can_be_purged(bench: Bench) -> None:
    await bench.engine.queues.pause("default")
    await bench.submit()
    assert (await bench.engine.queues.purge("default")).total == 1


class Meddled(MemoryStore):
    """A store in which something else happens just before the first change."""

    def __init__(self, bench_sweeps: bool) -> None:
        super().__init__()
        self.sweeps = bench_sweeps
        self.bench: Bench | None = None
        self.claimed: list[Task] = []

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        bench, self.bench = self.bench, None
        if bench is not None and self.sweeps:
            bench.clock.advance(2 * SECOND)
            await bench.engine.sweep()
        elif bench is not None:
            self.claimed = await bench.claim()
        return await super().apply(changes)


async def test_a_task_that_is_claimed_meanwhile_runs() -> None:
    store = Meddled(bench_sweeps=False)
    bench = Bench(store=store, batching=False)
    await bench.submit()
    await bench.submit()
    store.bench = bench
    assert await bench.engine.queues.purge("default") == PurgeCount(queued=1)
    assert [task.id for task in await bench.engine.find()] == [task.id for task in store.claimed]


async def test_a_task_that_becomes_due_meanwhile_is_removed_all_the_same() -> None:
    store = Meddled(bench_sweeps=True)
    bench = Bench(store=store, batching=False)
    await bench.submit(delay=SECOND)
    store.bench = bench
    assert await bench.engine.queues.purge("default") == PurgeCount(queued=1)
    assert await bench.engine.find() == []
