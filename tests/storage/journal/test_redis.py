"""A journal store keeps the storage contract over Redis, and its outbox keeps what it promises."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import psycopg
import pytest
from msgspec.structs import replace

from fairlead.core.events import Completed
from fairlead.core.health.quarantine import QUARANTINE, Quarantined
from fairlead.core.identity import TaskId
from fairlead.core.instant import HOUR
from fairlead.core.settings import Rules
from fairlead.core.task import State
from fairlead.engine.restore import restore
from fairlead.storage.journal.duties import Flusher, Leaver
from fairlead.storage.journal.journal import Journal
from fairlead.storage.journal.outbox import HIDDEN, Done, HotStore, Note
from fairlead.storage.journal.url import JournalAddress, parse_journal
from fairlead.storage.postgres.url import Address
from fairlead.storage.protocol import Store
from fairlead.storage.redis.outbox import open_noting_redis
from fairlead.storage.values import Filter
from fairlead.testing.builders import NOW, a_claim, a_removal, a_task, some_tasks
from fairlead.testing.contract import QuarantineContract, SharingContract, StoreContract
from fairlead.testing.races import Crew, RaceContract, ThreadCrew
from fairlead.testing.steps import add, apply_one, claim_one, ids, settle
from fairlead.testing.vandalism import Change, Part, Vandal, emptied, flipped, newer
from tests.servers.redis import RedisServer
from tests.storage.journal.current import CurrentStore
from tests.storage.redis.vandal import ServerVandal

_numbers = itertools.count()


@asynccontextmanager
async def opened(redis: RedisServer, prefix: str, address: JournalAddress) -> AsyncIterator[CurrentStore]:
    store = CurrentStore(await open_noting_redis(redis.url(prefix=prefix)), Journal(address))
    try:
        yield store
    finally:
        await store.close()


class TestJournalOverRedis(StoreContract, SharingContract, QuarantineContract):
    remembered = True

    @pytest.fixture
    async def store(self, redis: RedisServer, prefix: str, address: JournalAddress) -> AsyncIterator[Store]:
        async with opened(redis, prefix, address) as store:
            yield store

    @pytest.fixture
    def vandal(self, redis: RedisServer, prefix: str, address: JournalAddress) -> Vandal:
        return HotVandal([redis], prefix, address)


class HotVandal(ServerVandal):
    """Damages tasks in the hot store alone, but what a newer version wrote it has written into the journal, too."""

    def __init__(self, servers: Sequence[RedisServer], prefix: str, address: JournalAddress) -> None:
        super().__init__(servers, prefix)
        self._journal = address.database

    async def __call__(self, task_id: TaskId, part: Part, change: Change, *, tidy: bool = False) -> None:
        await super().__call__(task_id, part, change, tidy=tidy)
        if change is newer:
            damage_row(self._journal, task_id, "status", change)


def damage_row(database: Address, task_id: TaskId, table: str, change: Change) -> None:
    """Change the packed spec or status of a task in the journal."""
    column = {"task": "spec", "status": "status"}[table]
    named = f'"{database.schema}".{table}'
    with psycopg.connect(database.conninfo) as connection:
        found = connection.execute(f"SELECT {column} FROM {named} WHERE id = %s".encode(), (task_id,)).fetchone()
        assert found is not None
        connection.execute(
            f"UPDATE {named} SET {column} = %s WHERE id = %s".encode(), (change(bytes(found[0])), task_id)
        )


class TestDamagedRows:
    """A row of the journal that cannot be decoded."""

    @pytest.fixture
    async def store(self, redis: RedisServer, prefix: str, address: JournalAddress) -> AsyncIterator[CurrentStore]:
        async with opened(redis, prefix, address) as store:
            yield store

    @pytest.mark.parametrize("table", ["task", "status"])
    async def test_it_is_written_anew_if_the_hot_store_has_the_task(
        self, store: CurrentStore, address: JournalAddress, table: str
    ) -> None:
        tasks = some_tasks(3)
        await add(store, *tasks)
        damage_row(address.database, tasks[1].id, table, emptied)
        assert ids(await store.find(Filter(), limit=2, newest_first=False)) == [tasks[0].id, tasks[2].id]
        assert ids(await store.find(Filter(), limit=5, newest_first=False)) == ids(tasks)
        assert await store.scan(QUARANTINE) == []

    @pytest.mark.parametrize("table", ["task", "status"])
    async def test_it_is_set_aside_if_only_the_journal_had_the_task(
        self, store: CurrentStore, address: JournalAddress, table: str
    ) -> None:
        tasks = [a_task(state=State.FAILED) for _ in range(3)]
        await add(store, *tasks)
        await store.hot.leave([a_removal(task) for task in tasks])
        damage_row(address.database, tasks[1].id, table, flipped)
        assert await store.get(ids(tasks)) == [tasks[0], None, tasks[2]]
        (record,) = await store.scan(QUARANTINE)
        found = msgspec.msgpack.decode(record.value, type=Quarantined)
        assert (found.name, found.queue) == (tasks[1].id, "default")
        part = {"task": "spec", "status": "status"}[table]
        mended = replace(found, parts={**found.parts, part: flipped(found.parts[part])})
        assert (await restore(store, mended, NOW, Rules())).spec == tasks[1].spec
        assert ids(await store.find(Filter(), limit=5, newest_first=False)) == ids(tasks)

    async def test_a_task_that_the_hot_store_cannot_read_goes_back_as_the_journal_knows_it(
        self, store: CurrentStore, redis: RedisServer, prefix: str
    ) -> None:
        task = a_task(key="one")
        await add(store, task)
        await ServerVandal([redis], prefix)(task.id, "spec", emptied)
        assert await store.claim(a_claim()) == []
        assert await store.get([task.id]) == [None]
        (record,) = await store.scan(QUARANTINE)
        assert await restore(store, msgspec.msgpack.decode(record.value, type=Quarantined), NOW, Rules()) == task
        assert ids(await store.claim(a_claim())) == [task.id]


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

    async def test_what_a_clock_hid_that_has_gone_back_is_read_at_once(
        self, store: CurrentStore, hot: HotStore
    ) -> None:
        """O2."""
        await add(store, *some_tasks(2))
        first, second = await claim_one(store), await claim_one(store)
        await hot.note([first.id], after=HOUR)
        await hot.note([second.id], after=HIDDEN)
        assert await hot.read(10) == [Note(first.id)]
        assert await hot.read(10) == []

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
