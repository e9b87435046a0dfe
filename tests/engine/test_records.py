"""Records that cannot be read: set aside with their bytes, told once, and in nobody's way, on every store."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import msgspec
import pytest
from msgspec import Struct

from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.service import Keyring
from fairlead.admin.sweeper import Sweeper
from fairlead.core.circuit import CircuitSettings
from fairlead.core.errors import StoreMismatch, StoreReadOnly, WorkerNotFound
from fairlead.core.health.quarantine import MARK, QUARANTINE, SEAL, Fault, Quarantined
from fairlead.core.identity import WorkerId
from fairlead.core.operation import Action, NewOperation
from fairlead.core.query.parser import parse_query
from fairlead.core.schedule import Schedule
from fairlead.core.submission import Submission
from fairlead.core.task import State
from fairlead.core.tenancy import Role
from fairlead.engine.events.feed import forget_feed
from fairlead.engine.events.types import Watcher
from fairlead.engine.runtime.clock import ManualClock
from fairlead.storage.memory import MemoryStore
from fairlead.storage.protocol import Store
from fairlead.storage.values import Record

GOOD, BAD = "good", "bad"

SEALED: Final = ("key", "queue", "schedule")
"""The kinds that still count once they were set aside."""


class Heard(Watcher):
    """Hears what is set aside."""

    def __init__(self) -> None:
        self.found: list[Quarantined] = []

    def set_aside(self, found: Quarantined) -> None:
        self.found.append(found)


class Desk(Struct):
    """An engine that has records of every kind, and what it was told."""

    engine: AdminEngine
    clock: ManualClock
    heard: Heard

    async def look(self) -> None:
        """Read records of every kind, as a worker, a sweep, a server and people do."""
        engine = self.engine
        engine.queue_cache.expire()
        await engine.queue_cache.refresh()
        await engine.stats()
        await Sweeper(engine).once()
        await Sweeper(engine).tidy()
        await engine.operations.operator.once()
        await engine.operations.all()
        await engine.schedules.all()
        await engine.queues.all()
        await engine.circuits.all()
        for worker in await engine.workers.all():
            await engine.workers.get(worker.id)
        await engine.diagnose()
        await engine.publisher.flush()
        await Keyring(engine).keys()

    def again(self) -> Desk:
        """Another process on the same store."""
        heard = Heard()
        return Desk(AdminEngine(self.engine.store, clock=self.clock, observers=[heard]), self.clock, heard)


@pytest.fixture
async def desk(any_store: Store) -> AsyncIterator[Desk]:
    heard, clock = Heard(), ManualClock()
    engine = AdminEngine(any_store, clock=clock, observers=[heard], batching=False)
    yield Desk(engine, clock, heard)


async def _worker(desk: Desk, name: str) -> None:
    await desk.engine.worker_records.register(WorkerId(name), queues=["default"], capacity=1)


async def _lost(desk: Desk, name: str) -> None:
    await _worker(desk, name)
    await desk.engine.submit(Submission(type="t"))
    tasks = await desk.engine.claim(WorkerId(name), ["default"], limit=1)
    await desk.engine.lost_tasks.note(tasks, desk.clock.now())


async def _queue(desk: Desk, name: str) -> None:
    await desk.engine.queues.change(name, bound=10)


async def _schedule(desk: Desk, name: str) -> None:
    await desk.engine.schedules.put(Schedule(name=name, cron="* * * * *", submission=Submission(type="t")))


async def _circuit(desk: Desk, name: str) -> None:
    await desk.engine.circuits.set(name, CircuitSettings())


async def _key(desk: Desk, name: str) -> None:
    await Keyring(desk.engine).create(name, [Role.ADMIN])


async def _operation(desk: Desk, name: str) -> None:
    await desk.engine.operations.start(NewOperation(action=Action.CANCEL, query=parse_query("type:t")))


async def _want(desk: Desk, name: str) -> None:
    desk.engine.feed.types = frozenset({name})
    await desk.engine.feed.want()


async def _promoted(desk: Desk, name: str) -> None:
    await desk.engine.store.put("promoted", str(desk.clock.now() // 86_400_000_000), b"7")


async def _session(desk: Desk, name: str) -> None:
    keyring = Keyring(desk.engine)
    made = await keyring.create(name, [Role.ADMIN])
    await keyring.open_session(made.key, 3_600_000_000)


MAKERS: Final[dict[str, Callable[[Desk, str], Awaitable[None]]]] = {
    "circuit": _circuit,
    "feed": _want,
    "key": _key,
    "lost": _lost,
    "operation": _operation,
    "promoted": _promoted,
    "queue": _queue,
    "schedule": _schedule,
    "session": _session,
    "worker": _worker,
}


def _in_the_middle(value: bytes) -> bytes:
    third = max(1, len(value) // 3)
    return value[:third] + b"\xc1" * third + value[2 * third :]


DAMAGES: Final[dict[str, Callable[[bytes], bytes]]] = {
    "in the middle": _in_the_middle,
    "truncated": lambda value: value[: len(value) // 2],
    "empty": lambda value: b"",
    "wrong types": lambda value: msgspec.msgpack.encode({"paused": "perhaps", "id": 5, "settings": []}),
    "another type": lambda value: msgspec.msgpack.encode([1, 2, 3]),
    "no UTF-8": lambda value: b"\xa2\xff\xfe",
    "too deep": lambda value: b"\x91" * 100_000,
}


async def _made(desk: Desk, kind: str) -> Record:
    """A record of this kind, as the engine writes it."""
    await MAKERS[kind](desk, BAD)
    return next(record for record in await desk.engine.store.scan(kind))


async def _standing(desk: Desk, kind: str, name: str) -> list[bytes]:
    return [record.value for record in await desk.engine.store.scan(kind) if record.name == name]


@pytest.mark.parametrize("kind", MAKERS)
async def test_what_is_damaged_is_set_aside_once_with_its_bytes(desk: Desk, kind: str) -> None:
    record = await _made(desk, kind)
    store, key = desk.engine.store, f"{kind}/{record.name}"
    for name, damage in DAMAGES.items():
        broken = damage(record.value)
        await store.put(kind, record.name, broken)
        first, second = desk.again(), desk.again()
        for each in (first, second, first):
            await each.look()
        assert [(found.key, found.parts) for found in first.heard.found] == [(key, {"value": broken})], name
        assert second.heard.found == [], name
        (kept,) = await store.scan(QUARANTINE)
        assert (kept.name, msgspec.msgpack.decode(kept.value, type=Quarantined)) == (key, first.heard.found[0]), name
        assert await _standing(desk, kind, record.name) == ([SEAL] if kind in SEALED else []), name


@pytest.mark.parametrize("kind", MAKERS)
async def test_what_a_newer_version_wrote_is_told_and_stays_as_it_is(desk: Desk, kind: str) -> None:
    record = await _made(desk, kind)
    newer = MARK + b"\x02" + record.value
    version = await desk.engine.store.put(kind, record.name, newer)
    for each in (desk.again(), desk.again()):
        await each.look()
        await each.look()
        assert [(found.fault, found.name) for found in each.heard.found] == [(Fault.NEWER, record.name)]
    assert [(each.value, each.version) for each in await desk.engine.store.scan(kind)] == [(newer, version)]
    assert await desk.engine.store.scan(QUARANTINE) == []


async def test_a_record_that_lies_under_another_name_is_damaged() -> None:
    desk = _alone()
    await _worker(desk, GOOD)
    await desk.engine.store.put("worker", BAD, (await desk.engine.store.scan("worker"))[0].value)
    assert [worker.id for worker in await desk.engine.workers.all()] == [GOOD]
    assert desk.heard.found[0].error == "ValueError: it says that it is 'good', and is kept as 'bad'"


async def test_good_records_beside_a_bad_one_are_read() -> None:
    desk = _alone()
    for name in ("a", "c"):
        await _worker(desk, name)
    await desk.engine.store.put("worker", "b", b"?")
    assert [worker.id for worker in await desk.engine.workers.all()] == ["a", "c"]


async def test_what_replaced_a_damaged_record_meanwhile_is_left_alone() -> None:
    class Overtaken(MemoryStore):
        """Somebody replaces a queue's settings while the damaged ones are set aside."""

        async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
            if kind == QUARANTINE:
                await super().put("queue", BAD, msgspec.msgpack.encode({"bound": 5}))
            return await super().put(kind, name, value, expected=expected)

    desk = _alone(Overtaken())
    await desk.engine.store.put("queue", BAD, b"?")
    await desk.engine.queues.all()
    assert (await desk.engine.queues.get(BAD)).bound == 5
    assert desk.heard.found == []


async def test_a_store_that_takes_no_writes_can_be_read_all_the_same_and_it_is_told_once() -> None:
    class Frozen(MemoryStore):
        async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
            if kind == QUARANTINE:
                raise StoreReadOnly("nothing can be written")
            return await super().put(kind, name, value, expected=expected)

    desk = _alone(Frozen())
    await desk.engine.store.put("worker", BAD, b"?")
    await _worker(desk, GOOD)
    for _ in range(3):
        assert [worker.id for worker in await desk.engine.workers.all()] == [GOOD]
    assert [found.key for found in desk.heard.found] == ["worker/bad"]


async def test_a_newer_record_that_is_written_again_and_again_is_told_once() -> None:
    desk = _alone()
    for _ in range(5):
        await desk.engine.store.put("worker", BAD, MARK + b"\x02")
        await desk.engine.workers.all()
    assert len(desk.heard.found) == 1


@pytest.mark.parametrize("broken", [b"?", MARK + b"\x02"])
async def test_a_queue_whose_settings_cannot_be_read_is_paused_until_somebody_decides(
    desk: Desk, broken: bytes
) -> None:
    task = (await desk.engine.submit(Submission(type="t"))).task
    await desk.engine.store.put("queue", "default", broken)
    for each in (desk, desk.again(), desk.again()):
        each.engine.queue_cache.expire()
        assert await each.engine.claim(WorkerId("w"), ["default"], limit=1) == []
        shown = (await each.engine.stats()).queues["default"]
        assert (shown.paused, shown.unreadable) == (True, True)
        causes = (await each.engine.explain(task.id)).causes
        assert (
            "its settings cannot be read" in causes[0].text
            and "fairlead quarantine show queue/default" in causes[0].text
        )
        assert (await each.engine.queues.get("default")).paused
        assert (await each.engine.queues.all())["default"].paused
    if broken == b"?":
        await desk.engine.queues.change("default", bound=10)
        assert (await desk.engine.queues.get("default")).paused
        await desk.engine.queues.resume("default")
        assert len(await desk.engine.claim(WorkerId("w"), ["default"], limit=1)) == 1
    else:
        with pytest.raises(StoreMismatch, match="newer version"):
            await desk.engine.queues.resume("default")


async def test_resetting_unreadable_settings_replaces_them_and_leaves_the_queue_paused() -> None:
    desk = _alone()
    await desk.engine.store.put("queue", "default", b"?")
    await desk.engine.queues.reset("default")
    await desk.engine.queues.resume("default")
    assert await desk.engine.store.scan("queue") == []


async def test_a_schedule_that_cannot_be_read_fires_nothing_and_is_not_declared_anew(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    await _schedule(desk, BAD)
    await _schedule(desk, GOOD)
    await desk.engine.store.put("schedule", BAD, b"?")
    desk.clock.advance(60_000_000)
    for each in (desk, desk.again()):
        with caplog.at_level(logging.WARNING):
            await each.engine.schedules.declare([Schedule(name=BAD, cron="* * * * *", submission=Submission(type="t"))])
        assert "fairlead quarantine show schedule/bad" in caplog.text
        await Sweeper(each.engine).once()
    tasks = await desk.engine.find()
    assert [task.spec.tags for task in tasks] == [("schedule:good",)]
    for ask in (desk.engine.schedules.get, desk.engine.schedules.pause, desk.engine.schedules.remove):
        with pytest.raises(StoreMismatch, match="fairlead quarantine show schedule/bad"):
            await ask(BAD)
    await _schedule(desk, BAD)
    assert (await desk.engine.schedules.get(BAD)).name == BAD


async def test_a_schedule_that_can_never_fire_is_damaged() -> None:
    desk = _alone()
    await _schedule(desk, BAD)
    (record,) = await desk.engine.store.scan("schedule")
    await desk.engine.store.put("schedule", BAD, record.value.replace(b"* * * * *", b"* * * * 9"))
    await desk.engine.store.put("schedules_changed", "schedules_changed", b"")
    desk.clock.advance(60_000_000)
    await Sweeper(desk.engine).once()
    assert desk.heard.found[0].key == "schedule/bad"


async def test_a_schedule_whose_time_zone_is_not_known_here_is_left_to_others() -> None:
    desk = _alone()
    await _schedule(desk, BAD)
    await _schedule(desk, GOOD)
    record = next(each for each in await desk.engine.store.scan("schedule") if each.name == BAD)
    entry = msgspec.msgpack.decode(record.value)
    entry["schedule"]["timezone"] = "Moon/Tranquility"
    await desk.engine.store.put("schedule", BAD, msgspec.msgpack.encode(entry))
    desk.clock.advance(60_000_000)
    await Sweeper(desk.engine).once()
    assert [task.spec.tags for task in await desk.engine.find()] == [("schedule:good",)]
    assert desk.heard.found == []


async def test_a_task_type_whose_circuit_was_damaged_has_none_until_one_is_declared(desk: Desk) -> None:
    await _circuit(desk, "t")
    await desk.engine.circuits.open("t")
    await desk.engine.submit(Submission(type="t"))
    await desk.engine.store.put("circuit", "t", b"?")
    desk.engine.queue_cache.expire()
    assert await desk.engine.circuits.find("t") is None
    assert len(await desk.engine.claim(WorkerId("w"), ["default"], limit=1)) == 1
    await desk.engine.circuits.declare({"t": CircuitSettings()})
    assert await desk.engine.circuits.find("t") is not None


async def test_an_operation_that_was_damaged_stops_and_the_others_go_on(desk: Desk) -> None:
    tasks = [(await desk.engine.submit(Submission(type=each))).task for each in ("t", "u")]
    wishes = [NewOperation(action=Action.CANCEL, query=parse_query(f"type:{each}")) for each in ("t", "u")]
    bad, good = [await desk.engine.operations.start(wish) for wish in wishes]
    await desk.engine.store.put("operation", bad.id, b"?")
    for _ in range(3):
        await desk.engine.operations.operator.once()
    assert [(await desk.engine.get(task.id)).state for task in tasks] == [State.QUEUED, State.CANCELLED]
    assert [each.id for each in await desk.engine.operations.all()] == [good.id]


async def test_the_presence_of_a_worker_that_was_damaged_is_written_again(desk: Desk) -> None:
    await _worker(desk, BAD)
    await desk.engine.store.put("worker", BAD, b"?")
    assert await desk.engine.workers.all() == []
    with pytest.raises(WorkerNotFound):
        await desk.engine.worker_records.beat(WorkerId(BAD), running=0)
    await _worker(desk, BAD)
    assert [worker.id for worker in await desk.engine.workers.all()] == [BAD]


@pytest.mark.parametrize("digest", ["é" * 64, "0" * 63, "x" * 64])
async def test_a_key_whose_digest_is_none_is_damaged(digest: str) -> None:
    desk = _alone()
    keyring = Keyring(desk.engine)
    made = await keyring.create("ci", [Role.READ])
    value = msgspec.json.decode(msgspec.json.encode(made.key)) | {"digest": digest}
    await desk.engine.store.put("key", made.key.id, msgspec.json.encode(value))
    assert await keyring.read() == ([], [made.key.id])


async def test_what_older_processes_do_leaves_newer_records_as_they_are(desk: Desk) -> None:
    """Each read-modify-write, and each tidying by what is missing, of a process that cannot read the record."""
    engine, store = desk.engine, desk.engine.store
    await _lost(desk, BAD)
    await engine.worker_records.ask_drain(WorkerId(BAD))
    kinds = {
        "circuit": "t",
        "worker": BAD,
        "lost": BAD,
        "schedule": BAD,
        "operation": BAD,
        "feed": BAD,
        "throughput": BAD,
    }
    written = {kind: await store.put(kind, name, MARK + b"\x02") for kind, name in kinds.items()}
    with pytest.raises(StoreMismatch, match="newer version"):
        await engine.circuits.set("t", CircuitSettings())
    await engine.circuits.declare({"t": CircuitSettings()})
    with pytest.raises(StoreMismatch, match="newer version"):
        await _schedule(desk, BAD)
    with pytest.raises(StoreMismatch, match="newer version"):
        await engine.operations.cancel(BAD)
    await engine.lost_tasks.note(await engine.find(), desk.clock.now())
    desk.clock.advance(7_200_000_000)
    await Sweeper(engine).tidy()
    await forget_feed(engine.records, desk.clock.now())
    now = {kind: next(r.version for r in await store.scan(kind) if r.name == name) for kind, name in kinds.items()}
    assert now == written
    assert [record.name for record in await store.scan("drain")] == [BAD]


async def test_a_feed_entry_that_is_damaged_is_left_out(desk: Desk) -> None:
    engine = desk.engine
    await engine.feed.want()
    await engine.store.publish([b"?", b"\xa2\xff\xfe", b"\x91" * 100_000, b""], now=desk.clock.now(), keep=100)
    await engine.submit(Submission(type="t"))
    await engine.publisher.flush()
    assert [told.event.type for told in await engine.feed.read(None)] == ["task.submitted"]


def _alone(store: Store | None = None) -> Desk:
    heard, clock = Heard(), ManualClock()
    return Desk(AdminEngine(store or MemoryStore(), clock=clock, observers=[heard], batching=False), clock, heard)
