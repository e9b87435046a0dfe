"""The feed tells, across processes, what happens to tasks; and nothing at all when no one listens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fairlead.admin.engine import AdminEngine
from fairlead.admin.sweeper import Sweeper
from fairlead.core.errors import StoreUnavailable
from fairlead.core.events import CancelConfirmed, Completed, Failed, HandedBack
from fairlead.core.identity import WorkerId
from fairlead.core.instant import HOUR, MINUTE, SECOND, Instant
from fairlead.core.task import Priority, Progress, Reason, State
from fairlead.engine.engine import Settlement
from fairlead.engine.events import feed
from fairlead.engine.events.feed import BUFFER, REPLAY, Told
from fairlead.engine.events.types import (
    ErrorData,
    EventType,
    ProgressData,
    SkippedData,
    TaskData,
    TaskEvent,
    decode_event,
)
from fairlead.engine.runtime.clock import ManualClock
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.memory import MemoryStore
from fairlead.storage.open import open_store
from fairlead.storage.protocol import Store
from fairlead.storage.values import Beat, FeedEntry, Record
from tests.engine.building import BOOM, Bench, a_wish

PATIENCE = 60.0


async def heard(bench: Bench, count: int, after: str = "") -> list[Told]:
    """So many events beyond a position, as soon as they are told; from the beginning if none is given."""
    told: list[Told] = []
    async with asyncio.timeout(PATIENCE):
        async for batch in bench.engine.feed.follow(after, interval=0.001):
            told += batch
            if len(told) >= count:
                return told
    raise AssertionError("it goes on for ever")


async def all_told(bench: Bench) -> list[Told]:
    """Everything in the feed, after this engine has said its last."""
    await bench.engine.publisher.close()
    return await bench.engine.feed.read(None, limit=2 * BUFFER)


def types(told: Sequence[Told]) -> list[EventType]:
    return [one.event.type for one in told]


def data(told: Told) -> TaskData:
    assert isinstance(told.event, TaskEvent)
    return told.event.data


async def test_the_life_of_a_task_is_told(any_store: Store) -> None:
    bench = Bench(store=any_store)
    await bench.engine.feed.want()
    task = await bench.submit(max_retries=1)
    (task,) = await bench.claim()
    await bench.settle(task, Failed(failure=BOOM, after=0))
    (task,) = await bench.claim()
    await bench.settle(task, Completed(b"1"))

    told = await heard(bench, 5)

    assert types(told) == [
        EventType.SUBMITTED,
        EventType.STARTED,
        EventType.RETRYING,
        EventType.STARTED,
        EventType.COMPLETED,
    ]
    assert {one.event.at for one in told} == {bench.clock.now()}
    assert data(told[0]) == TaskData(
        task_id=task.id,
        task_type="send_mail",
        queue="default",
        priority="medium",
        status=State.QUEUED,
        reason=Reason.SUBMITTED,
    )
    started = data(told[1])
    assert (started.status, started.attempt, started.worker_id) == (State.EXECUTING, 1, "worker-1")
    retrying = data(told[2])
    assert (retrying.status, retrying.reason, retrying.worker_id) == (State.QUEUED, Reason.FAILED, "worker-1")
    assert retrying.error == ErrorData("Boom", "it went boom")
    completed = data(told[4])
    assert (completed.status, completed.attempt, completed.worker_id) == (State.COMPLETED, 2, "worker-1")
    assert completed.error is None


async def test_every_end_is_told_and_what_comes_after_it(bench: Bench) -> None:
    await bench.engine.feed.want()
    failed, dead, cancelled = [await bench.executing(max_retries=0) for _ in range(3)]
    await bench.settle(failed, Failed(failure=BOOM, retriable=False))
    await bench.settle(dead, Failed(failure=BOOM))
    await bench.engine.cancel(cancelled.id)
    await bench.settle(cancelled, CancelConfirmed())
    await bench.engine.replay(dead.id)
    (again,) = await bench.claim()
    await bench.settle(again, HandedBack())

    told = (await all_told(bench))[6:]

    assert types(told) == [
        EventType.FAILED,
        EventType.DEAD_LETTER,
        EventType.CANCELLED,
        EventType.SUBMITTED,
        EventType.STARTED,
        EventType.RETRYING,
    ]
    assert data(told[1]).error == ErrorData("Boom", "it went boom")
    assert [data(told[at]).reason for at in (3, 5)] == [Reason.REPLAYED, Reason.HANDED_BACK]


async def test_what_ends_an_attempt_tells_how_long_it_took(any_store: Store) -> None:
    bench = Bench(store=any_store)
    await bench.engine.feed.want()
    for outcome in (Failed(failure=BOOM, after=0), Completed()):
        (task,) = await bench.claim() or [await bench.executing(max_retries=1)]
        bench.clock.advance(1_500_999)
        await bench.settle(task, outcome)
    waiting = await bench.submit()
    await bench.engine.cancel(waiting.id)

    told = await heard(bench, 7)

    assert [(one.event.type, data(one).duration_ms) for one in told] == [
        (EventType.SUBMITTED, None),
        (EventType.STARTED, None),
        (EventType.RETRYING, 1_500),
        (EventType.STARTED, None),
        (EventType.COMPLETED, 1_500),
        (EventType.SUBMITTED, None),
        (EventType.CANCELLED, None),
    ]


async def test_no_event_carries_what_a_task_carries(any_store: Store) -> None:
    bench = Bench(store=any_store)
    await bench.engine.feed.want()
    task = await bench.executing(parameters=b'{"card":"4111"}', idempotency_key="4111", tenant="acme")
    await bench.settle(task, Completed(b'"4111"'))
    await heard(bench, 3)

    assert [entry for entry in await any_store.feed(None, 10) if b"4111" in entry.value] == []


async def test_progress_is_told_with_its_task(any_store: Store) -> None:
    bench = Bench(store=any_store)
    await bench.engine.feed.want()
    task = await bench.executing()
    lease = task.status.lease
    assert lease is not None
    await bench.engine.heartbeat([Beat(task.id, lease.token), Beat(task.id, lease.token, Progress(percent=40.0))])

    told = await heard(bench, 3)

    assert types(told)[2:] == [EventType.PROGRESS]
    assert data(told[2]).progress == ProgressData(40.0, "")
    assert (data(told[2]).task_type, data(told[2]).worker_id) == ("send_mail", "worker-1")


async def test_progress_under_a_lost_lease_is_not_told(bench: Bench) -> None:
    await bench.engine.feed.want()
    task = await bench.executing()
    lease = task.status.lease
    assert lease is not None
    await bench.settle(task, HandedBack())
    await bench.engine.heartbeat([Beat(task.id, lease.token, Progress(percent=40.0))])

    assert EventType.PROGRESS not in types(await all_told(bench))


async def test_a_promoted_task_is_told_as_such_when_it_is_claimed(bench: Bench) -> None:
    await bench.engine.feed.want()
    await bench.submit(priority=Priority.LOW)
    bench.clock.advance(11 * MINUTE)
    await bench.engine.feed.want()
    await bench.claim()

    assert types(await all_told(bench)) == [EventType.SUBMITTED, EventType.STARTED, EventType.PROMOTED]


async def test_nothing_is_told_when_no_one_listens(any_store: Store) -> None:
    bench = Bench(store=any_store)
    await bench.settle(await bench.executing(), Completed())

    assert await all_told(bench) == []
    assert await any_store.feed(None, 10) == []


async def test_an_engine_that_told_nothing_soon_sees_that_someone_listens(any_store: Store) -> None:
    clock = ManualClock()
    server, worker = Bench(store=any_store, clock=clock), Bench(store=any_store, clock=clock)
    await worker.submit()
    await worker.engine.publisher.flush()
    await server.engine.feed.want()
    clock.advance(SECOND)
    task = await worker.submit()

    told = await heard(server, 1)

    assert [data(one).task_id for one in told] == [task.id]


async def test_while_no_one_listens_the_store_is_asked_about_once_a_second() -> None:
    store = CountsScans()
    bench = Bench(store=store, batching=False)
    for _ in range(30):
        bench.clock.advance(SECOND // 10)
        await bench.settle(await bench.executing(), Completed())

    assert store.scans == 3


async def test_an_event_that_was_told_before_the_reader_came_back_is_replayed(any_store: Store) -> None:
    bench = Bench(store=any_store)
    await bench.engine.feed.want()
    await bench.submit()
    (first,) = await heard(bench, 1)
    task = await bench.submit()

    (second,) = await heard(bench, 1, after=first.position)

    assert data(second).task_id == task.id
    assert second.position > first.position


async def test_who_follows_from_now_on_hears_nothing_of_the_past(any_store: Store) -> None:
    bench = Bench(store=any_store)
    await bench.engine.feed.want()
    await bench.submit()
    await heard(bench, 1)
    end = await bench.engine.feed.end()
    following = aiter(bench.engine.feed.follow(interval=0.001))
    next_batch = asyncio.ensure_future(anext(following))
    while not next_batch.done():
        # It may not have begun to listen yet, so say something until it hears it.
        await bench.submit()
        await asyncio.sleep(0)

    assert [one for one in await next_batch if one.position <= end] == []
    await bench.engine.publisher.close()


async def test_events_are_told_for_some_minutes_after_the_last_listener(any_store: Store) -> None:
    bench = Bench(store=any_store)
    await bench.engine.feed.want()
    bench.clock.advance(REPLAY - 1)
    task = await bench.submit()
    await bench.engine.publisher.flush()
    bench.clock.advance(SECOND)
    await bench.submit()

    assert [data(one).task_id for one in await all_told(bench)] == [task.id]


async def test_a_listener_that_stays_keeps_events_coming() -> None:
    bench = Bench(batching=False)
    for _ in range(20):
        await bench.engine.feed.want()
        bench.clock.advance(MINUTE)
        await bench.submit()

    assert len(await all_told(bench)) == 20


async def test_when_too_much_happens_the_oldest_events_are_skipped_and_that_is_told(bench: Bench) -> None:
    await bench.engine.feed.want()
    await bench.engine.submit_many([a_wish() for _ in range(BUFFER + 7)])

    told = await all_told(bench)

    assert types(told) == [EventType.SKIPPED] + [EventType.SUBMITTED] * BUFFER
    assert told[0].event.data == SkippedData(7)


async def test_a_store_that_cannot_publish_breaks_nothing() -> None:
    store = CannotPublish()
    bench = Bench(store=store, batching=False)
    await bench.engine.feed.want()
    store.error = StoreUnavailable("away")
    await bench.settle(await bench.executing(), Completed())
    assert store.tried == 1
    store.error = None
    bench.clock.advance(SECOND)
    await bench.submit()

    told = await all_told(bench)

    assert types(told) == [EventType.SKIPPED, EventType.SUBMITTED]
    assert told[0].event.data == SkippedData(1)


def test_synchronous_code_tells_at_the_end_of_each_operation(tmp_path: Path) -> None:
    store = run_inline(open_store(f"sqlite:///{tmp_path}/tasks.db", blocking=True))
    engine = AdminEngine(store, batching=False)
    run_inline(engine.feed.want())
    run_inline(engine.submit(a_wish()))
    (task,) = run_inline(engine.claim(WorkerId("one"), ["default"], limit=1))
    run_inline(engine.settle([Settlement(task, Completed())]))

    told = run_inline(engine.feed.read(None))

    assert types(told) == [EventType.SUBMITTED, EventType.STARTED, EventType.COMPLETED]
    run_inline(engine.close())


async def test_closing_the_engine_tells_what_is_left_to_tell(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    bench = Bench(store=await open_store(url))
    await bench.engine.feed.want()
    await asyncio.gather(*(bench.submit() for _ in range(20)))
    await bench.engine.close()

    store = await open_store(url)
    assert len(await store.feed(None, 100)) == 20
    await store.close()


async def test_a_feed_that_no_one_wants_is_emptied(any_store: Store) -> None:
    bench = Bench(store=any_store)
    await bench.engine.feed.want()
    await bench.submit()
    await heard(bench, 1)
    bench.clock.advance(HOUR)
    await Sweeper(bench.engine).tidy()
    assert len(await any_store.feed(None, 10)) == 1
    bench.clock.advance(REPLAY + SECOND)
    await Sweeper(bench.engine).tidy()

    assert await any_store.feed(None, 10) == []
    assert await any_store.scan("feed") == []


async def test_what_a_later_version_tells_is_left_out(bench: Bench) -> None:
    assert decode_event(msgspec.msgpack.encode(["task", "task.teleported", 1, {}])) is None
    assert decode_event(b"") is None
    await bench.store.publish([b"?"], now=bench.clock.now(), keep=10)
    await bench.engine.feed.want()
    await bench.submit()

    assert types(await heard(bench, 1)) == [EventType.SUBMITTED]


async def test_a_listener_goes_on_when_the_store_was_away() -> None:
    store = CannotPublish()
    bench = Bench(store=store)
    store.unread = 1
    await bench.engine.feed.want()
    task = await bench.submit()

    (told,) = await heard(bench, 1)

    assert data(told).task_id == task.id


class CountsScans(MemoryStore):
    scans = 0

    async def scan(self, kind: str) -> list[Record]:
        self.scans += kind == feed.KIND
        return await super().scan(kind)


class CannotPublish(MemoryStore):
    error: Exception | None = None
    tried = 0
    unread = 0

    async def publish(self, values: Sequence[bytes], *, now: Instant, keep: int) -> None:
        if self.error is not None:
            self.tried += 1
            raise self.error
        await super().publish(values, now=now, keep=keep)

    async def feed(self, after: str | None, limit: int) -> list[FeedEntry]:
        if self.unread > 0:
            self.unread -= 1
            raise StoreUnavailable("away")
        return await super().feed(after, limit)


async def test_only_the_types_that_somebody_wants_are_published(bench: Bench) -> None:
    other = AdminEngine(bench.store, clock=bench.clock)
    bench.engine.feed.types = frozenset({EventType.COMPLETED})
    other.feed.types = frozenset({EventType.STARTED})
    await bench.engine.feed.want()
    await other.feed.want()
    bench.clock.advance(2 * SECOND)
    task = await bench.executing()
    await bench.settle(task, Completed())

    assert types(await all_told(bench)) == [EventType.STARTED, EventType.COMPLETED]


async def test_a_wish_that_changes_is_told_at_once_and_one_that_has_passed_is_forgotten(bench: Bench) -> None:
    bench.engine.feed.types = frozenset({EventType.COMPLETED})
    await bench.engine.feed.want()
    bench.engine.feed.types = None
    await bench.engine.feed.want()
    await bench.submit()
    assert types(await all_told(bench)) == [EventType.SUBMITTED]

    lasting = AdminEngine(bench.store, clock=bench.clock)
    bench.clock.advance(2 * HOUR)
    await lasting.feed.want()
    await Sweeper(lasting).tidy()
    assert len(await bench.store.scan(feed.KIND)) == 1
    assert len(await lasting.feed.read(None)) == 1
