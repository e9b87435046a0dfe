"""The Redis store keeps the storage contract behind sentinels, and survives a failover."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from fairlead.core.errors import StoreError
from fairlead.core.identity import TaskId
from fairlead.core.task import Task
from fairlead.storage.protocol import Store
from fairlead.storage.redis.store import open_redis
from fairlead.storage.values import Added, Known
from fairlead.testing.builders import NOW, a_claim, a_task
from fairlead.testing.contract import StoreContract
from fairlead.testing.leases import check_leases
from fairlead.testing.machine import compare_with_memory
from fairlead.testing.races import RaceContract
from fairlead.testing.steps import add
from tests.servers.redis import Watched, started_watched, until
from tests.storage.redis.orphans import assert_no_orphans

pytestmark = pytest.mark.slow

_numbers = itertools.count()


class TestRedisSentinel(StoreContract):
    @pytest.fixture
    async def store(self, watched: Watched, prefix: str) -> AsyncIterator[Store]:
        store = await open_redis(watched.url(prefix=prefix))
        yield store
        await store.close()
        assert_no_orphans([watched.master()], prefix)


class TestRedisSentinelRaces(RaceContract):
    @pytest.fixture
    def url(self, watched: Watched, prefix: str) -> str:
        return watched.url(prefix=prefix)


@asynccontextmanager
async def opened_empty(watched: Watched) -> AsyncIterator[Store]:
    prefix = f"s{next(_numbers)}"
    store = await open_redis(watched.url(prefix=prefix))
    try:
        yield store
    finally:
        await store.close()


def test_redis_behind_sentinels_agrees_with_memory(watched: Watched) -> None:
    compare_with_memory(lambda: opened_empty(watched))


def test_redis_behind_sentinels_keeps_its_leases(watched: Watched) -> None:
    check_leases(lambda: opened_empty(watched))


@pytest.fixture
def fresh_watched() -> Iterator[Watched]:
    """Servers of this test's own: it breaks them."""
    yield from started_watched()


class Submitters:
    """Submits until told to stop, each task again and again until it is acknowledged."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stopping = False
        self.acknowledged: list[TaskId] = []
        self.refused = 0
        """Calls that ended in an error."""
        self.repeated = 0
        """Tasks that were stored by a call that ended in an error."""

    async def run(self) -> None:
        while not self._stopping:
            await self._submit(a_task())

    async def _submit(self, task: Task) -> None:
        for _ in range(1_000):
            try:
                (receipt,) = await self._store.add([task], now=NOW, bounds={})
            except StoreError:
                self.refused += 1
                await asyncio.sleep(0.05)
            else:
                assert receipt in (Added(), Known())
                self.repeated += receipt == Known()
                self.acknowledged.append(task.id)
                return
        raise TimeoutError("the store does not come back")

    def stop(self) -> None:
        self._stopping = True


async def test_a_failover_under_load_loses_nothing_that_a_replica_held(fresh_watched: Watched) -> None:
    """With replicas=1, what was acknowledged before, during and after the failover is all there."""
    store = await open_redis(fresh_watched.url(replicas=1, timeout=2))
    submitters = Submitters(store)
    running = [asyncio.create_task(submitters.run()) for _ in range(8)]
    old = fresh_watched.master()
    await asyncio.to_thread(until, lambda: len(submitters.acknowledged) > 200, "tasks before the failover")
    before = len(submitters.acknowledged)
    old.halt()
    await asyncio.to_thread(until, lambda: fresh_watched.master() is not old, "a failover")
    during = len(submitters.acknowledged)
    await asyncio.to_thread(until, lambda: len(submitters.acknowledged) > during + 200, "tasks after the failover")
    submitters.stop()
    await asyncio.gather(*running)
    acknowledged = submitters.acknowledged
    print(
        f"{before} tasks before the failover, {len(acknowledged)} in all; {submitters.refused} calls failed, "
        f"{submitters.repeated} tasks had been stored by a call that failed, and were not stored twice"
    )
    stored = await store.get(acknowledged)
    assert len(set(acknowledged)) == len(acknowledged)
    assert None not in stored
    assert len(await store.claim(a_claim(limit=10))) == 10
    await store.close()
    assert_no_orphans([fresh_watched.master()], "fl")


async def test_a_client_of_a_demoted_master_finds_the_new_one(fresh_watched: Watched) -> None:
    """An orderly failover leaves the old master reachable, but read-only: the caller notices nothing."""
    store = await open_redis(fresh_watched.url())
    await add(store, a_task())
    old = fresh_watched.master()
    fresh_watched.sentinels[0].ask("SENTINEL", "FAILOVER", fresh_watched.service)
    await asyncio.to_thread(until, lambda: bool(old.ask("ROLE")[0] == b"slave"), "the old master to step down")
    tasks = [a_task() for _ in range(5)]
    for task in tasks:
        await add(store, task)
    assert None not in await store.get([task.id for task in tasks])
    await store.close()
