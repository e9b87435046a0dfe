"""A journal behind sentinels and behind a Cluster: the hot store is another, the journal the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from fairlead.core.errors import StoreUnavailable
from fairlead.core.events import Completed, Failed
from fairlead.core.settings import Rules
from fairlead.core.task import State
from fairlead.storage.journal.duties import Flusher, Leaver
from fairlead.storage.journal.journal import Journal
from fairlead.storage.journal.url import JournalAddress
from fairlead.storage.redis.outbox import open_noting_redis
from fairlead.storage.values import Added, Filter, Known, Verdict
from fairlead.testing.builders import NOW, a_claim, a_failure, a_settle, a_task
from fairlead.testing.steps import add, ids
from tests.servers.redis import RedisCluster, RedisServer, Watched, started_cluster, started_watched, until
from tests.storage.journal.current import CurrentStore

pytestmark = pytest.mark.slow

QUEUES = [f"queue-{number}" for number in range(30)]
"""Enough for every node of a cluster to have some."""


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    yield from started_watched()


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    yield from started_cluster()


class Life:
    """What tasks go through, on whatever servers there are."""

    @pytest.fixture
    def url_of_redis(self) -> str:
        raise NotImplementedError

    def masters(self, request: pytest.FixtureRequest) -> list[RedisServer]:
        raise NotImplementedError

    @pytest.fixture
    async def store(self, url_of_redis: str, address: JournalAddress) -> AsyncIterator[CurrentStore]:
        store = CurrentStore(await open_noting_redis(url_of_redis), Journal(address))
        yield store
        await store.close()

    async def test_what_ends_goes_to_the_journal_and_what_was_lost_comes_back(
        self, store: CurrentStore, request: pytest.FixtureRequest
    ) -> None:
        tasks = [a_task(queue=queue) for queue in QUEUES for _ in range(10)]
        await add(store, *tasks)
        held = await store.claim(a_claim(*QUEUES, limit=100))
        outcomes = [Completed(b"1") if at % 2 else Failed(failure=a_failure()) for at in range(60)]
        settles = [a_settle(task, outcome) for task, outcome in zip(held[:60], outcomes, strict=True)]
        assert set(await store.apply(settles)) == {Verdict.APPLIED}
        assert await Flusher(store.hot, store.journal).all() == 100
        assert await store.behind() == 0
        completed = [task.id for task, outcome in zip(held[:60], outcomes, strict=True) if outcome == Completed(b"1")]
        assert await Leaver(store.hot, store.journal).once() == len(completed)
        assert await store.hot.get(completed) == [None] * len(completed)

        for server in self.masters(request):
            server.ask("FLUSHALL")
        rebuilt = await store.rebuild(Rules())

        assert (rebuilt.looked_at, rebuilt.put_back) == (270, 270)
        found = await store.find(Filter(), limit=1_000)
        assert sorted(ids(found)) == sorted(ids(tasks))
        assert sum(task.state is State.COMPLETED for task in found) == len(completed)
        # Who held a task when its store was lost has lost it.
        assert set(await store.apply([a_settle(task, Completed()) for task in held[60:]])) == {Verdict.STALE}
        rest: set[str] = set()
        while taken := await store.claim(a_claim(*QUEUES, limit=100)):
            await store.apply([a_settle(task, Completed()) for task in taken])
            rest |= set(ids(taken))
        assert len(rest) == 240
        await Flusher(store.hot, store.journal).all()
        states = [task.state for task in await store.find(Filter(), limit=1_000)]
        assert (states.count(State.COMPLETED), states.count(State.SCHEDULED)) == (270, 30)


class TestJournalBehindSentinels(Life):
    @pytest.fixture
    def url_of_redis(self, watched: Watched, prefix: str) -> str:
        return watched.url(prefix=prefix, timeout=2)

    def masters(self, request: pytest.FixtureRequest) -> list[RedisServer]:
        watched: Watched = request.getfixturevalue("watched")
        return [watched.master()]

    async def test_a_failover_loses_nothing_that_the_journal_has(self, store: CurrentStore, watched: Watched) -> None:
        """Without a word from any replica: what the new master lacks is put back."""
        tasks = [a_task() for _ in range(200)]
        await add(store, *tasks)
        master = watched.master()
        master.halt()
        task = a_task()
        async with asyncio.timeout(30):
            while True:
                try:
                    assert await store.add([task], now=NOW, bounds={}) in ([Added()], [Known()])
                    break
                except StoreUnavailable:
                    await asyncio.sleep(0.05)
        await asyncio.to_thread(until, lambda: watched.master() is not master, "a failover")
        await store.rebuild(Rules())
        assert sorted(ids(await store.claim(a_claim(limit=1_000)))) == sorted(ids([*tasks, task]))


class TestJournalBehindACluster(Life):
    @pytest.fixture
    def url_of_redis(self, cluster: RedisCluster, prefix: str) -> str:
        return cluster.url(prefix=prefix)

    def masters(self, request: pytest.FixtureRequest) -> list[RedisServer]:
        cluster: RedisCluster = request.getfixturevalue("cluster")
        return cluster.servers
