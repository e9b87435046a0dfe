"""A journal store keeps the storage contract over Redis, and its outbox keeps what it promises."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fairlead.core.events import Completed
from fairlead.storage.journal.address import JournalAddress, parse_journal
from fairlead.storage.journal.duties import Flusher, Leaver
from fairlead.storage.journal.journal import Journal
from fairlead.storage.journal.outbox import Done, HotStore, Note
from fairlead.storage.protocol import Store
from fairlead.storage.redis.noting import open_noting_redis
from fairlead.testing.builders import a_claim, a_removal, a_task, some_tasks
from fairlead.testing.contract import StoreContract
from fairlead.testing.crews import Crew, ThreadCrew
from fairlead.testing.races import RaceContract
from fairlead.testing.steps import add, apply_one, claim_one, ids, settle
from tests.servers.redis import RedisServer
from tests.storage.journal.current import CurrentStore

_numbers = itertools.count()


@asynccontextmanager
async def opened(redis: RedisServer, prefix: str, address: JournalAddress) -> AsyncIterator[CurrentStore]:
    store = CurrentStore(await open_noting_redis(redis.url(prefix=prefix)), Journal(address))
    try:
        yield store
    finally:
        await store.close()


class TestJournalOverRedis(StoreContract):
    @pytest.fixture
    async def store(self, redis: RedisServer, prefix: str, address: JournalAddress) -> AsyncIterator[Store]:
        async with opened(redis, prefix, address) as store:
            yield store


@pytest.mark.slow
class TestJournalOverRedisRaces(RaceContract):
    @pytest.fixture
    def crew(self, redis: RedisServer, prefix: str, url: str) -> Crew:
        return ThreadCrew(lambda: opened(redis, prefix, parse_journal(f"{url}?pool=4")))


class TestOutbox:
    @pytest.fixture
    async def store(self, redis: RedisServer, prefix: str, address: JournalAddress) -> AsyncIterator[CurrentStore]:
        async with opened(redis, prefix, address) as store:
            yield store

    @pytest.fixture
    def hot(self, store: CurrentStore) -> HotStore:
        return store.hot

    async def test_claims_and_changes_are_noted_and_adds_are_not(self, store: CurrentStore, hot: HotStore) -> None:
        """O1."""
        await add(store, *some_tasks(3))
        assert await hot.size() == 0
        claimed = await store.claim(a_claim(limit=2))
        assert {note.id for note in await hot.read(10)} == set(ids(claimed))
        await settle(store, claimed[0], Completed())
        assert await hot.read(10) == [Note(claimed[0].id)]
        assert await hot.size() == 2

    async def test_a_removal_is_noted_as_such_and_leaving_is_not(self, store: CurrentStore, hot: HotStore) -> None:
        """O1."""
        first, second = some_tasks(2)
        await add(store, first, second)
        await apply_one(store, a_removal(first))
        await hot.leave([a_removal(second)])
        assert await hot.read(10) == [Note(first.id, removed=True)]

    async def test_what_was_read_is_hidden_until_noted_again(self, store: CurrentStore, hot: HotStore) -> None:
        """O2."""
        await add(store, a_task())
        task = await claim_one(store)
        assert await hot.read(10) == [Note(task.id)]
        assert await hot.read(10) == []
        await hot.note([task.id])
        assert await hot.read(10) == [Note(task.id)]

    async def test_a_task_that_has_changed_stays_noted(self, store: CurrentStore, hot: HotStore) -> None:
        """O3."""
        await add(store, a_task())
        task = await claim_one(store)
        await hot.done([Done(Note(task.id), task.status.version - 1)])
        assert await hot.size() == 1
        await hot.done([Done(Note(task.id), task.status.version)])
        assert await hot.size() == 0

    async def test_many_queues_are_read_together(self, store: CurrentStore, hot: HotStore) -> None:
        tasks = [a_task(queue=f"queue-{number}") for number in range(30)]
        await add(store, *tasks)
        await store.claim(a_claim(*(task.spec.queue for task in tasks), limit=30))
        assert {note.id for note in await hot.read(10)} == set(ids(tasks))

    async def test_an_ended_task_goes_its_way(self, store: CurrentStore, hot: HotStore) -> None:
        await add(store, *some_tasks(500))
        ended = [await settle(store, task, Completed(b"1")) for task in await store.claim(a_claim(limit=20))]
        assert await Flusher(hot, store.journal).all() == 20
        assert await Leaver(hot, store.journal).once() == 20
        assert await hot.get(ids(ended)) == [None] * 20
        assert await store.get(ids(ended)) == ended
        assert await hot.size() == 0
