"""PostgreSQL is stopped and started again under a journal store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from fairlead.core.errors import StoreUnavailable
from fairlead.core.events import Completed
from fairlead.core.settings import Rules
from fairlead.core.task import State
from fairlead.storage.journal.duties import Flusher
from fairlead.storage.journal.journal import Journal, Rows
from fairlead.storage.journal.outbox import HIDDEN
from fairlead.storage.journal.store import JournalStore, open_journal
from fairlead.storage.journal.url import parse_journal
from fairlead.storage.values import Added, Filter, Verdict
from fairlead.testing.builders import NOW, a_claim, a_removal, a_settle, a_task, some_tasks
from fairlead.testing.steps import add, claim_one, ids, settle
from tests.servers.postgres import PostgresServer, started
from tests.storage.journal.noting_memory import NotingMemoryStore
from tests.storage.journal.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that these tests may stop."""
    yield from started()


@pytest.fixture
def own_url(own_server: PostgresServer) -> str:
    return own_server.url(own_server.create_database())


async def test_a_submit_fails_clearly_and_workers_go_on(own_server: PostgresServer, own_url: str) -> None:
    hot = NotingMemoryStore()
    store = JournalStore(hot, Journal(parse_journal(own_url)))
    await add(store, *some_tasks(3))
    own_server.halt()
    try:
        with pytest.raises(StoreUnavailable, match="the journal at postgresql://"):
            await store.add([a_task()], now=NOW, bounds={})
        first, second = await store.claim(a_claim(limit=2))
        ended = await settle(store, first, Completed(b"1"))
        assert await store.behind() == 2
        # A worker whose task is nowhere has lost it; it must not wait for the journal to say so.
        await hot.leave([a_removal(second)])
        assert await store.apply([a_settle(second, Completed())]) == [Verdict.MISSING]
        with pytest.raises(StoreUnavailable, match="the journal at"):
            await Flusher(hot, store.journal).once()
    finally:
        own_server.launch()
    await Flusher(hot, store.journal).all()
    assert (await store.journal.get([ended.id]))[ended.id] == ended
    await store.close()


async def test_a_journal_that_is_not_required_learns_later(own_server: PostgresServer, own_url: str) -> None:
    now = 0
    hot = NotingMemoryStore(lambda: now)
    store = JournalStore(hot, Journal(parse_journal(f"{own_url}?required=off")))
    await add(store, a_task())
    own_server.halt()
    tasks = some_tasks(5)
    try:
        assert await store.add(tasks[:3], now=NOW, bounds={}) == [Added()] * 3
        assert await store.add(tasks[3:], now=NOW, bounds={}) == [Added()] * 2
        assert await store.behind() == 5
        claimed = await claim_one(store)
        await settle(store, claimed, Completed())
    finally:
        own_server.launch()
    now = HIDDEN
    await Flusher(hot, store.journal).all()
    assert set(await store.journal.get(ids(tasks))) == set(ids(tasks))
    assert await store.behind() == 0
    await store.close()


async def test_a_store_opens_while_its_journal_is_out_of_reach(own_server: PostgresServer, own_url: str) -> None:
    own_server.halt()
    try:
        with pytest.warns(RuntimeWarning, match="the journal at"):
            store = await open_journal(NotingMemoryStore(), own_url)
        with pytest.raises(StoreUnavailable, match="the journal at"):
            await store.add([a_task()], now=NOW, bounds={})
    finally:
        own_server.launch()
    await add(store, a_task())
    await store.close()


async def test_upkeep_goes_on_after_an_outage(own_server: PostgresServer, own_url: str) -> None:
    hot = NotingMemoryStore()
    store = JournalStore(hot, Journal(parse_journal(own_url)))
    await add(store, a_task())
    upkeep = asyncio.create_task(store.upkeep(Rules()))
    own_server.halt()
    ended = await settle(store, await claim_one(store), Completed(b"1"))
    await asyncio.sleep(0.5)
    own_server.launch()

    async def is_level() -> bool:
        return await store.behind() == 0

    await until(is_level)
    assert (await store.journal.get([ended.id]))[ended.id] == ended
    upkeep.cancel()
    await asyncio.gather(upkeep, return_exceptions=True)
    await store.close()


async def test_only_passing_records_can_be_had_while_the_journal_is_out_of_reach(
    own_server: PostgresServer, own_url: str
) -> None:
    """An old copy of a schedule would be worse than none: its tasks could be submitted twice."""
    store = JournalStore(NotingMemoryStore(), Journal(parse_journal(own_url)))
    await store.put("schedule", "nightly", b"0 3 * * *")
    assert len(await store.scan("schedule")) == 1
    own_server.halt()
    try:
        assert await store.put("worker", "anna", b"here") == 1
        with pytest.raises(StoreUnavailable, match="the journal at"):
            await store.put("schedule", "nightly", b"never")
        with pytest.raises(StoreUnavailable, match="the journal at"):
            await store.scan("schedule")
    finally:
        own_server.launch()
    assert await store.put("schedule", "nightly", b"0 4 * * *", expected=1) == 2
    assert [record.value for record in await store.scan("schedule")] == [b"0 4 * * *"]
    await store.close()


async def test_a_journal_that_hangs_is_waited_for_once_and_not_by_each_call(
    own_server: PostgresServer, own_url: str
) -> None:
    """By then who can do without it goes by what is known, and the others are told at once."""
    store = await open_journal(NotingMemoryStore(), f"{own_url}?timeout=1")
    task = a_task()
    await add(store, task)
    await store.put("key", "anna", b"a key")
    known = await store.scan("key")
    own_server.pause()
    try:
        with pytest.raises(StoreUnavailable, match="did not answer"):
            await store.find(Filter(), limit=10)
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match=r"the journal at .* so it was not asked"):
                await store.find(Filter(), limit=10)
            with pytest.raises(StoreUnavailable, match=r"the journal at .* so it was not asked"):
                await store.add([a_task()], now=NOW, bounds={})
            with pytest.raises(StoreUnavailable, match=r"the journal at .* so it was not asked"):
                await store.scan("schedule")
            assert await store.scan("key") == known
        assert await store.get([task.id]) == [task]
    finally:
        own_server.resume()

    async def is_back() -> bool:
        try:
            return bool(await store.find(Filter(), limit=10))
        except StoreUnavailable:
            return False

    await until(is_back)
    await add(store, a_task())
    await store.close()


async def test_a_store_that_opens_beside_a_journal_that_hangs_waits_for_it_once_and_admits_nobody(
    own_server: PostgresServer, own_url: str
) -> None:
    first = await open_journal(NotingMemoryStore(), own_url)
    await first.put("key", "anna", b"a key")
    await first.close()
    own_server.pause()
    try:
        with pytest.warns(RuntimeWarning, match="the journal at"):
            store = await open_journal(NotingMemoryStore(), f"{own_url}?timeout=1")
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="so it was not asked"):
                await store.scan("key")
    finally:
        own_server.resume()
        await store.close()


async def test_what_hangs_beside_the_journal_says_nothing_of_it(own_server: PostgresServer, own_url: str) -> None:
    """A transaction of the journal in which the hot store fails is no reason not to ask the journal."""
    journal = Journal(parse_journal(own_url))

    async def work(rows: Rows) -> None:
        raise StoreUnavailable("the hot store hangs")

    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="the hot store hangs"):
            await journal.alone(work)
        assert not journal.reach.doubtful
    await journal.close()


async def test_who_holds_what_is_known_while_the_journal_is_out_of_reach(
    own_server: PostgresServer, own_url: str
) -> None:
    store = JournalStore(NotingMemoryStore(), Journal(parse_journal(own_url)))
    await add(store, *some_tasks(3))
    held = await store.claim(a_claim(limit=2))
    executing = Filter(states=frozenset({State.EXECUTING}))
    own_server.halt()
    try:
        assert ids(await store.find_leased(executing, limit=10, newest_first=False)) == sorted(ids(held))
        with pytest.raises(ValueError, match="name the state executing alone"):
            await store.find_leased(Filter(), limit=10)
    finally:
        own_server.launch()
    await store.close()
