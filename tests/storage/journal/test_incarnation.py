"""A hot store that lost what the journal knows of is known for it, and one that was replaced is used by nobody."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import AsyncIterator, Callable, Collection

import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.admin.sweeper import Sweeper
from fairlead.core.errors import StoreFull, StoreMismatch, StoreUnavailable
from fairlead.core.events import CancelAsked, Completed
from fairlead.core.health.diagnosis import Level
from fairlead.core.identity import slot_of_id
from fairlead.core.instant import DAY
from fairlead.core.settings import Retention, Rules, Settings
from fairlead.core.submission import Submission
from fairlead.core.task import State
from fairlead.engine.submit import Submitted
from fairlead.storage.journal.duties import Flusher
from fairlead.storage.journal.incarnation import Condition, Incarnation, condition_of
from fairlead.storage.journal.journal import Journal, Mark, candidate
from fairlead.storage.journal.outbox import ROOT
from fairlead.storage.journal.rebuild import Rebuilt
from fairlead.storage.journal.store import JournalStore
from fairlead.storage.journal.url import parse_journal
from fairlead.storage.open import open_store
from fairlead.storage.redis.outbox import open_noting_redis
from fairlead.storage.values import Added, Filter, KeyHeld, KeyUnknown, Verdict
from fairlead.testing.builders import NOW, a_claim, a_decision, a_settle, a_task, some_tasks
from fairlead.testing.steps import add, claim_one, ids
from tests.servers.redis import RedisServer, started_cluster
from tests.storage.journal.current import CurrentStore
from tests.storage.journal.noting_memory import NotingMemoryStore
from tests.storage.journal.waiting import until

MARK = Mark("tide", 3, True, (7, 9))


@pytest.mark.parametrize(
    ("borne", "condition"),
    [
        ({ROOT: "tide:3", 7: "tide:3", 9: "tide:3"}, Condition.WHOLE),
        ({ROOT: None, 7: None, 9: None}, Condition.EMPTY),
        ({ROOT: "tide:3", 7: None, 9: "tide:3"}, Condition.TORN),
        ({ROOT: "tide:3", 7: "tide:2", 9: "tide:3"}, Condition.TORN),
        ({ROOT: None, 7: None, 9: "tide:3"}, Condition.TORN),
        ({ROOT: "tide:2", 7: "tide:2", 9: "tide:2"}, Condition.FOREIGN),
        ({ROOT: "tide:4", 7: "tide:4", 9: "tide:4"}, Condition.FOREIGN),
        ({ROOT: "ebb:3", 7: "ebb:3", 9: "ebb:3"}, Condition.FOREIGN),
        ({ROOT: "tide:3", 7: "tide:3?", 9: "tide:3"}, Condition.TORN),
        ({ROOT: "ebb:0", 7: None, 9: None}, Condition.EMPTY),
        ({ROOT: "tide:0", 7: None, 9: None}, Condition.TAKEN),
    ],
)
def test_what_is_borne_says_how_a_store_stands(borne: dict[int, str | None], condition: Condition) -> None:
    assert condition_of(MARK, borne) is condition


def test_a_journal_that_marked_none_may_take_any() -> None:
    assert condition_of(Mark("tide", 0, True, ()), {ROOT: None}) is Condition.NEW


def test_a_store_is_not_whole_while_it_is_rebuilt() -> None:
    mark = Mark("tide", 4, False, ())
    assert condition_of(mark, {ROOT: "tide:4"}) is Condition.REBUILDING
    assert condition_of(mark, {ROOT: "tide:4", 7: None, 9: "tide:4?"}) is Condition.REBUILDING
    assert condition_of(mark, {ROOT: None, 9: "tide:4?"}) is Condition.REBUILDING
    assert condition_of(mark, {ROOT: None, 9: None}) is Condition.EMPTY


async def opened(redis: RedisServer, prefix: str, url: str, options: str = "") -> JournalStore:
    store = await open_store(redis.url(prefix=prefix), journal=url + options)
    assert isinstance(store, JournalStore)
    return store


@pytest.fixture
async def store(redis: RedisServer, prefix: str, url: str) -> AsyncIterator[JournalStore]:
    store = await opened(redis, prefix, url)
    yield store
    await store.close()


async def incarnation(store: JournalStore) -> tuple[Level, str]:
    found = {finding.what: finding for finding in (await store.examine()).findings}["incarnation"]
    return found.level, found.remedy


async def test_a_flushed_redis_is_known_and_takes_no_key_until_it_is_rebuilt(
    store: JournalStore, redis: RedisServer
) -> None:
    await add(store, a_task(key="once"), a_task(queue="other"))
    held = await claim_one(store)
    await Flusher(store.hot, store.journal).all()
    assert await store.loss() is None
    assert (await store.tally()).intact is True

    redis.ask("FLUSHALL")
    assert await store.add([a_task(key="once")], now=NOW, bounds={}) == [KeyUnknown()]
    assert await store.add([a_task()], now=NOW, bounds={}) == [Added()]
    assert "lost everything" in str(await store.loss())
    assert (await store.tally()).intact is False
    assert (await incarnation(store))[0] is Level.RED

    assert await store._recovery.once(Rules()) == 2
    assert await store.loss() is None
    assert (await incarnation(store))[0] is Level.GREEN
    assert await store.add([a_task(key="once")], now=NOW, bounds={}) == [KeyHeld(held.id)]
    back = await store.claim(a_claim("default", "other", limit=9))
    assert len(back) == 3
    assert {task.id: task.status.attempts for task in back}[held.id] == 2
    assert await store.apply([a_settle(held, Completed())]) == [Verdict.STALE]


async def test_of_many_that_would_one_rebuilds(redis: RedisServer, prefix: str, url: str, store: JournalStore) -> None:
    await add(store, *some_tasks(300))
    stores = [await opened(redis, prefix, url) for _ in range(4)]
    redis.ask("FLUSHALL")
    back = await asyncio.gather(*[each._recovery.once(Rules()) for each in stores])
    assert sorted(back) == [0, 0, 0, 300]
    assert (await store.journal.mark()).number == 2
    assert len(await store.claim(a_claim(limit=999))) == 300
    for each in stores:
        await each.close()


class Flush:
    """Told of the progress of a rebuild, it flushes a server once."""

    def __init__(self, server: RedisServer, *, once: Callable[[int, int], bool]) -> None:
        self._server = server
        self._once = once
        self.done = False

    def __call__(self, looked_at: int, total: int) -> None:
        if not self.done and self._once(looked_at, total):
            self._server.ask("FLUSHALL")
            self.done = True


async def test_what_is_lost_again_while_it_is_rebuilt_is_put_back_again(
    store: JournalStore, redis: RedisServer
) -> None:
    tasks = some_tasks(2_500)
    await add(store, *tasks)
    redis.ask("FLUSHALL")
    flush = Flush(redis, once=lambda looked_at, total: looked_at >= 1_000)
    assert await store._recovery.run(Rules(), flush) == Rebuilt(2_500, 2_500)
    assert flush.done
    assert await store.loss() is None
    assert set(ids(await store.claim(a_claim(limit=9_999)))) == set(ids(tasks))


async def test_what_is_lost_again_at_the_end_of_a_rebuild_is_put_back_again(
    store: JournalStore, redis: RedisServer
) -> None:
    """Everything was put back, and the store is yet to bear its mark."""
    tasks = some_tasks(300)
    await add(store, *tasks)
    redis.ask("FLUSHALL")
    flush = Flush(redis, once=operator.eq)
    await store.rebuild(Rules(), flush)
    assert flush.done
    assert await store.loss() is None
    assert set(ids(await store.claim(a_claim(limit=9_999)))) == set(ids(tasks))


async def test_a_slot_that_is_first_used_while_all_is_rebuilt_is_not_lost_unseen(
    store: JournalStore, redis: RedisServer
) -> None:
    await add(store, *some_tasks(3))
    redis.ask("FLUSHALL")
    mark = await store._incarnation.begin_rebuild()
    await store.begin()
    task = a_task(queue="new")
    await add(store, task)
    assert await store.hot.marks([slot_of_id(task.id)]) == {slot_of_id(task.id): mark.partial}
    assert await store._incarnation.end_rebuild(mark) is True
    assert await store.add([a_task(queue="new", key="once")], now=NOW, bounds={}) == [Added()]
    redis.ask("FLUSHALL")
    mark = await store._incarnation.begin_rebuild()
    await store.begin()
    await add(store, a_task(queue="newer"))
    redis.ask("FLUSHALL")
    assert await store._incarnation.end_rebuild(mark) is False


async def test_who_has_no_key_is_stored_beside_one_whose_key_may_be_lost(
    store: JournalStore, redis: RedisServer
) -> None:
    await add(store, a_task(key="once"))
    redis.ask("FLUSHALL")
    keyless, keyed, another = a_task(queue="other"), a_task(key="once"), a_task()
    receipts = await store.add([keyless, keyed, another], now=NOW, bounds={})
    assert receipts == [Added(), KeyUnknown(), Added()]
    assert await store.hot.get(ids([keyless, keyed, another])) == [keyless, None, another]
    assert set(await store.journal.get(ids([keyless, keyed, another]))) == {keyless.id, another.id}


async def test_who_submits_one_by_one_shares_nobodys_fate(store: JournalStore, redis: RedisServer) -> None:
    """Concurrent submits are one batch."""
    await add(store, a_task(key="once"))
    redis.ask("FLUSHALL")
    engine = AdminEngine(store)
    submissions = [Submission(type="work", idempotency_key=key) for key in (None, "once", None)]
    first, refused, last = await asyncio.gather(
        *[engine.submit(submission) for submission in submissions], return_exceptions=True
    )
    assert isinstance(refused, StoreUnavailable)
    assert "idempotency key 'once' in queue 'default'" in str(refused)
    assert isinstance(first, Submitted)
    assert isinstance(last, Submitted)
    assert await store.hot.get([first.task.id, last.task.id]) == [first.task, last.task]


async def test_what_rebuilds_by_itself_goes_by_the_rules_of_its_engine(store: JournalStore, redis: RedisServer) -> None:
    await add(store, a_task())
    held = await claim_one(store)
    assert await store.apply([a_decision(held, CancelAsked())]) == [Verdict.APPLIED]
    await Flusher(store.hot, store.journal).all()
    redis.ask("FLUSHALL")
    rules = Rules(retention=Retention(cancelled=7 * DAY))
    sweeping = asyncio.create_task(Sweeper(AdminEngine(store, Settings(rules=rules))).run())

    async def is_back() -> bool:
        return await store.hot.get([held.id]) != [None]

    await until(is_back)
    sweeping.cancel()
    await asyncio.gather(sweeping, return_exceptions=True)
    (task,) = await store.get([held.id])
    assert task is not None
    assert task.state is State.CANCELLED
    assert (task.status.alarm or 0) > (await store.time() or 0) + 6 * DAY


async def test_many_that_start_with_an_unmarked_store_raise_no_alarm(
    redis: RedisServer, prefix: str, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As after an upgrade."""
    old = CurrentStore(await open_noting_redis(redis.url(prefix=prefix)), Journal(parse_journal(url)))
    tasks = some_tasks(20)
    await old.journal.add(tasks, accepted=True)
    await old.hot.add(tasks, bounds={})
    stores = [
        JournalStore(await open_noting_redis(redis.url(prefix=prefix)), Journal(parse_journal(url))) for _ in range(12)
    ]
    assert set(await asyncio.gather(*[each._incarnation.look() for each in stores])) == {Condition.WHOLE}
    mark = await old.journal.mark()
    assert (mark.number, mark.whole, set(mark.slots)) == (1, True, {slot_of_id(task.id) for task in tasks})
    assert [await each._recovery.once(Rules()) for each in stores] == [0] * 12
    assert caplog.records == []
    for each in (*stores, old):
        await each.close()


@pytest.mark.parametrize("steps", [1, 2])
async def test_one_that_died_while_a_store_became_the_journals_leaves_it_to_the_next(
    redis: RedisServer, prefix: str, url: str, caplog: pytest.LogCaptureFixture, steps: int
) -> None:
    hot, journal = await open_noting_redis(redis.url(prefix=prefix)), Journal(parse_journal(url))
    await hot.put_mark(candidate("tide"), [ROOT], over=None)
    if steps == 2:
        await journal.move_mark(0, "tide", whole=True)
    store = JournalStore(hot, journal)
    assert await store._incarnation.look() is Condition.WHOLE
    assert (await journal.mark()).text == "tide:1"
    assert caplog.records == []
    await store.close()


async def test_of_two_empty_stores_a_new_journal_takes_one(redis: RedisServer, prefix: str, url: str) -> None:
    stores = [await open_noting_redis(redis.url(prefix=f"{prefix}{side}")) for side in ("left", "right")]
    incarnations = [Incarnation(hot, Journal(parse_journal(url))) for hot in stores]
    conditions = await asyncio.gather(*[each.look() for each in incarnations])
    assert sorted(condition.value for condition in conditions) == ["empty", "whole"]
    for hot, each in zip(stores, incarnations, strict=True):
        await hot.close()
        await each._journal.close()


async def test_an_old_journal_with_tasks_takes_no_store_that_has_none_of_them(
    redis: RedisServer, prefix: str, url: str
) -> None:
    """After an upgrade no store bears a mark: from a wrong URL nothing could keep the right one away later."""
    old = CurrentStore(await open_noting_redis(redis.url(prefix=prefix)), Journal(parse_journal(url)))
    tasks = some_tasks(20)
    await old.journal.add(tasks, accepted=True)
    await old.hot.add(tasks, bounds={})
    astray = await opened(redis, f"{prefix}wrong", url)
    for refused in (
        astray.claim(a_claim()), astray.get([tasks[0].id]), astray.tally(), astray.scan("queue"),
        astray.add([a_task()], now=NOW, bounds={}), astray.find(Filter(), limit=1),
    ):  # fmt: skip
        with pytest.raises(StoreMismatch, match=r"has none of the tasks that the journal at .* no mark, as none ever"):
            await refused
    assert await astray._recovery.once(Rules()) == 0
    assert (await incarnation(astray))[0] is Level.RED
    assert (await old.journal.mark()).number == 0
    assert await astray.hot.find(Filter(), limit=9) == []

    right = await opened(redis, prefix, url)
    assert await right.loss() is None
    assert (await old.journal.mark()).number == 1
    assert len(await right.claim(a_claim(limit=99))) == 20
    for each in (old, astray, right):
        await each.close()


async def test_an_old_journal_whose_store_was_lost_is_rebuilt_when_someone_asks(
    redis: RedisServer, prefix: str, url: str
) -> None:
    journal = Journal(parse_journal(url))
    await journal.add(some_tasks(3), accepted=True)
    store = await opened(redis, prefix, url)
    assert "none of the tasks" in str(await store.loss())
    assert await store.rebuild(Rules()) == Rebuilt(3, 3)
    assert await store.loss() is None
    assert len(await store.claim(a_claim(limit=9))) == 3
    await journal.close()
    await store.close()


async def test_a_new_journal_takes_a_store_that_was_used_without_one(redis: RedisServer, prefix: str, url: str) -> None:
    before = await open_store(redis.url(prefix=prefix))
    await add(before, task := a_task())
    store = await opened(redis, prefix, url)
    assert await store.loss() is None
    assert ids(await store.claim(a_claim())) == [task.id]
    await before.close()
    await store.close()


class NotYet(NotingMemoryStore):
    """A store that is out of reach when it is first asked."""

    async def marks(self, slots: Collection[int]) -> dict[int, str | None]:
        raise StoreUnavailable("the hot store is out of reach")


async def test_nothing_is_written_to_a_journal_that_has_not_marked_a_store(url: str) -> None:
    """Or its first store would be taken for one that has lost what was written."""
    store = JournalStore(NotYet(), Journal(parse_journal(url)))
    with pytest.raises(StoreUnavailable, match="the hot store is out of reach"):
        await store.add([task := a_task()], now=NOW, bounds={})
    assert await store.journal.get([task.id]) == {}
    await store.close()


class Overtaken(NotingMemoryStore):
    """Others go on between what it first says of its marks and what is made of that."""

    def __init__(self) -> None:
        super().__init__()
        self.told = asyncio.Event()
        self.heard = asyncio.Event()

    async def marks(self, slots: Collection[int]) -> dict[int, str | None]:
        marks = await super().marks(slots)
        if not self.told.is_set():
            self.told.set()
            await self.heard.wait()
        return marks


async def test_a_look_that_another_process_overtakes_raises_no_alarm(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It marks a new store and writes to the journal meanwhile: a task there is not yet in the hot store."""
    hot = Overtaken()
    slow, quick = [JournalStore(hot, Journal(parse_journal(url))) for _ in range(2)]
    looking = asyncio.create_task(slow._incarnation.look())
    await hot.told.wait()
    assert await quick._incarnation.look() is Condition.WHOLE
    await quick.journal.add([a_task()], accepted=True)
    hot.heard.set()
    assert await looking is Condition.WHOLE
    assert caplog.records == []
    await slow.journal.close()
    await quick.close()


async def test_it_is_not_rebuilt_by_itself_when_that_is_turned_off(
    redis: RedisServer, prefix: str, url: str, store: JournalStore
) -> None:
    other = await opened(redis, prefix, url, "?rebuild=off")
    await add(other, *some_tasks(3))
    redis.ask("FLUSHALL")
    assert await other._recovery.once(Rules()) == 0
    assert await other.loss() is not None
    assert (await other.rebuild(Rules())).put_back == 3
    assert await other.loss() is None
    await other.close()


async def test_a_store_that_was_replaced_refuses_everything(
    redis: RedisServer, prefix: str, url: str, store: JournalStore
) -> None:
    """As where one process has another URL: what it rebuilds runs there, and nowhere else."""
    tasks = some_tasks(5)
    await add(store, *tasks)
    held = await claim_one(store)
    await Flusher(store.hot, store.journal).all()
    other = await opened(redis, f"{prefix}other", url)
    assert await other._recovery.once(Rules()) == 5
    await store.begin()
    operations = (
        store.add([a_task()], now=NOW, bounds={}),
        store.claim(a_claim(limit=9)),
        store.apply([a_settle(held, Completed())]),
        store.get([held.id]),
        store.put("queue", "default", b""),
        store.scan("queue"),
        store.tally(),
    )
    for operation in operations:
        with pytest.raises(StoreMismatch, match=r"bears the mark .*:1, and .* is of .*:2"):
            await operation
    with pytest.raises(StoreMismatch):
        await store.rebuild(Rules())
    level, remedy = await incarnation(store)
    assert (level, bool(remedy)) == (Level.RED, True)
    assert set(ids(await other.claim(a_claim(limit=9)))) == set(ids(tasks))
    assert (await other.journal.get([held.id]))[held.id].state is State.QUEUED
    await other.close()


async def test_a_store_that_has_tasks_of_others_is_not_taken_for_one_that_was_emptied(
    store: JournalStore, redis: RedisServer, prefix: str, url: str
) -> None:
    """A wrong URL leads to one that never had a journal: nothing is rebuilt there, and nothing of it is touched."""
    await add(store, *some_tasks(3))
    mark = await store.journal.mark()
    others = await open_store(redis.url(prefix=f"{prefix}-others"))
    strange = a_task(key="theirs")
    await add(others, strange)
    astray = await opened(redis, f"{prefix}-others", url)
    for refused in (
        astray.claim(a_claim()), astray.get([strange.id]), astray.tally(), astray.scan("queue"), astray.wait([], 0.0),
        astray.add([a_task()], now=NOW, bounds={}), astray.find(Filter(), limit=1), astray.drop("queue", "default"),
    ):  # fmt: skip
        with pytest.raises(StoreMismatch, match=r"has tasks that the journal at .* knows nothing of"):
            await refused
    assert (await incarnation(astray))[0] is Level.RED
    assert "correct the URL" in (await incarnation(astray))[1]
    assert await astray._recovery.once(Rules()) == 0
    assert (await store.journal.mark(), await store.loss()) == (mark, None)
    assert ids(await others.find(Filter(), limit=9)) == [strange.id]

    # Who asks for it knows better, and then the other one is used by nobody.
    assert await astray.rebuild(Rules()) == Rebuilt(3, 3)
    assert len(await astray.claim(a_claim(limit=9))) == 4
    assert "another store was rebuilt since" in str(await store.loss())
    await others.close()
    await astray.close()


async def test_what_was_submitted_before_the_journal_hears_of_it_hinders_no_rebuild(
    redis: RedisServer, prefix: str, url: str
) -> None:
    """Redis loses everything while a journal that is not required is away, and takes tasks before that is back."""
    store = await opened(redis, prefix, url, "?required=off")
    await add(store, *some_tasks(3))
    redis.ask("FLUSHALL")
    task = a_task(queue="later")
    await store.hot.note([task.id], after=0)
    await add(store.hot, task)
    assert await store._recovery.once(Rules()) == 3
    assert len(await store.claim(a_claim("default", "later", limit=9))) == 4
    await store.close()


async def test_a_submit_that_was_cut_off_makes_no_second_task(store: JournalStore, redis: RedisServer) -> None:
    """Its process died between the journal, which it had reached, and Redis, which would have refused it."""
    await add(store, a_task(key="once"))
    held = await claim_one(store)
    await Flusher(store.hot, store.journal).all()
    second = a_task(key="once")
    await store.journal.add([second], accepted=True)
    redis.ask("FLUSHALL")
    assert await store._recovery.once(Rules()) == 1
    assert ids(await store.claim(a_claim(limit=9))) == [held.id]
    assert await store.journal.get([second.id]) == {}


async def test_a_rebuild_whose_process_died_is_taken_over(
    redis: RedisServer, prefix: str, url: str, store: JournalStore
) -> None:
    await add(store, *some_tasks(3))
    redis.ask("FLUSHALL")
    # It came as far as this.
    assert await store.journal.move_mark(1, "another", whole=False) == 2
    other = await opened(redis, prefix, url)
    assert await other._recovery.once(Rules()) == 3
    assert await other.loss() is None
    await other.close()


class TestCluster:
    async def test_a_node_that_is_lost_while_all_is_rebuilt_is_known(self, url: str) -> None:
        for cluster in started_cluster():
            store = await open_store(cluster.url(), journal=url)
            assert isinstance(store, JournalStore)
            tasks = [a_task(queue=f"q{number}") for number in range(12)]
            await add(store, *tasks)
            for server in cluster.servers:
                server.ask("FLUSHALL")
            for server in cluster.servers:
                flush = Flush(server, once=operator.eq)
                await store.rebuild(Rules(), flush)
                assert flush.done
                assert None not in await store.hot.get(ids(tasks))
                assert await store.loss() is None
            await store.close()

    async def test_what_a_full_node_refuses_takes_nothing_from_the_others(self, url: str) -> None:
        for cluster in started_cluster():
            store = await open_store(cluster.url(), journal=url)
            assert isinstance(store, JournalStore)
            tasks = [a_task(queue=f"q{number}") for number in range(12)]
            cluster.servers[0].ask("CONFIG", "SET", "maxmemory", "1")
            with pytest.raises(StoreFull):
                await store.add(tasks, now=NOW, bounds={})
            stored = {task.id for task in await store.hot.get(ids(tasks)) if task is not None}
            assert 0 < len(stored) < len(tasks)
            assert set(await store.journal.get(ids(tasks))) == stored
            await store.close()

    async def test_one_lost_node_is_known(self, url: str) -> None:
        for cluster in started_cluster():
            store = await open_store(cluster.url(), journal=url)
            assert isinstance(store, JournalStore)
            queues = [f"q{number}" for number in range(12)]
            tasks = [a_task(queue=queue, key="once") for queue in queues]
            await add(store, *tasks)
            assert await store.loss() is None
            cluster.servers[0].ask("FLUSHALL")
            assert "a part of the hot store has lost" in str(await store.loss())
            found = dict(zip(queues, await store.hot.get(ids(tasks)), strict=True))
            assert None in found.values()
            for task in tasks:
                if found[task.spec.queue] is None:
                    again = a_task(queue=task.spec.queue, key="once")
                    assert await store.add([again], now=NOW, bounds={}) == [KeyUnknown()]
            # It is not empty, so it is not rebuilt unasked.
            assert await store._recovery.once(Rules()) == 0
            await store.rebuild(Rules())
            assert await store.loss() is None
            assert None not in await store.hot.get(ids(tasks))
            assert {slot_of_id(task.id) for task in tasks} <= set((await store.journal.mark()).slots)
            await store.close()
