"""What was set aside: listed, mended and put back, or given up, on every store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.service import Keyring
from fairlead.admin.record_kinds import FORMS
from fairlead.admin.sweeper import Sweeper
from fairlead.core.errors import NotInQuarantine, RestoreRefused
from fairlead.core.health.diagnosis import Finding, Level
from fairlead.core.health.quarantine import MARK, QUARANTINE, SEAL, Quarantined
from fairlead.core.identity import WorkerId
from fairlead.core.queues.queue import QueueSettings
from fairlead.core.schedule import Schedule
from fairlead.core.submission import Submission
from fairlead.core.task import State
from fairlead.core.tenancy import Role
from fairlead.engine.runtime.clock import ManualClock
from fairlead.storage.memory import MemoryStore
from fairlead.storage.open import open_store
from fairlead.storage.protocol import Store
from fairlead.storage.values import Record
from fairlead.testing.vandalism import Vandal, flipped
from tests.conformance.test_sqlite import FileVandal
from tests.storage.redis.vandal import ServerVandal

SETTINGS = msgspec.msgpack.encode(QueueSettings(bound=7))


@pytest.fixture
async def engine(any_store: Store) -> AsyncIterator[AdminEngine]:
    yield AdminEngine(any_store, clock=ManualClock(), batching=False)


async def set_aside(engine: AdminEngine, value: bytes = b"?") -> None:
    """Damaged settings of a queue, which somebody has met."""
    await engine.store.put("queue", "default", value)
    await engine.queues.all()


async def test_what_was_set_aside_is_listed_with_all_that_is_known(engine: AdminEngine) -> None:
    await set_aside(engine)
    (found,) = await engine.quarantine.all()
    assert (found.key, found.parts) == ("queue/default", {"value": b"?"})
    assert found.error.startswith("ValidationError") or found.error.startswith("DecodeError")
    assert found.found_at == engine.clock.now()
    assert await engine.quarantine.get("queue/default") == found
    assert (await engine.stats()).quarantined == {"queue": 1}


async def test_what_is_restored_counts_again_everywhere(engine: AdminEngine) -> None:
    await set_aside(engine)
    other = AdminEngine(engine.store, clock=ManualClock(), batching=False)
    assert (await other.stats()).queues["default"].unreadable
    await engine.quarantine.restore("queue/default", {"value": SETTINGS})
    assert (await engine.queues.get("default")) == QueueSettings(bound=7)
    other.clock.advance(1_000_000)  # type: ignore[attr-defined]
    assert "default" not in (await other.stats()).queues
    assert await engine.quarantine.all() == []
    assert (await engine.stats()).quarantined == {}


async def test_what_still_cannot_be_decoded_is_not_restored(engine: AdminEngine) -> None:
    await set_aside(engine)
    before = await engine.store.scan("queue")
    for parts in (None, {"value": SETTINGS[:-1]}, {"value": b""}, {"value": SEAL}, {"value": MARK + b"\x02"}, {}):
        with pytest.raises(RestoreRefused):
            await engine.quarantine.restore("queue/default", parts)
    assert await engine.store.scan("queue") == before
    assert len(await engine.quarantine.all()) == 1


@pytest.mark.parametrize("taken", [SETTINGS, MARK + b"\x02"])
async def test_what_has_taken_its_place_is_not_overwritten(engine: AdminEngine, taken: bytes) -> None:
    await set_aside(engine)
    await engine.store.put("queue", "default", taken)
    with pytest.raises(RestoreRefused, match="a new queue/default exists already"):
        await engine.quarantine.restore("queue/default", {"value": SETTINGS})
    await engine.quarantine.discard("queue/default")
    assert [record.value for record in await engine.store.scan("queue")] == [taken]


async def test_a_queue_whose_settings_are_discarded_goes_on(engine: AdminEngine) -> None:
    await engine.submit(Submission(type="t"))
    await set_aside(engine)
    engine.queue_cache.expire()
    assert await engine.claim(WorkerId("w"), ["default"], limit=1) == []
    await engine.quarantine.discard("queue/default")
    assert len(await engine.claim(WorkerId("w"), ["default"], limit=1)) == 1
    assert await engine.store.scan("queue") == [] and await engine.quarantine.all() == []


async def test_a_schedule_that_is_restored_fires(engine: AdminEngine) -> None:
    entry = await engine.schedules.add(Schedule(name="n", cron="* * * * *", submission=Submission(type="t")))
    (record,) = await engine.store.scan("schedule")
    await engine.store.put("schedule", "n", b"?")
    assert await engine.schedules.all() == []
    with pytest.raises(RestoreRefused, match="kept as 'n'"):
        other = msgspec.msgpack.encode(replace(entry, schedule=replace(entry.schedule, name="m")))
        await engine.quarantine.restore("schedule/n", {"value": other})
    await engine.quarantine.restore("schedule/n", {"value": record.value})
    engine.clock.advance(60_000_000)  # type: ignore[attr-defined]
    await Sweeper(engine).once()
    assert len(await engine.find()) == 1


async def test_a_key_that_is_restored_opens_and_one_that_is_discarded_is_gone(engine: AdminEngine) -> None:
    keyring = Keyring(engine)
    made = await keyring.create("ci", [Role.READ])
    (record,) = await engine.store.scan("key")
    await engine.store.put("key", made.key.id, b"?")
    assert await keyring.keys() == []
    await engine.quarantine.restore(f"key/{made.key.id}", {"value": record.value})
    assert await keyring.keys() == [made.key]
    await engine.store.put("key", made.key.id, b"?")
    assert await keyring.read() == ([], [made.key.id])
    await engine.quarantine.discard(f"key/{made.key.id}")
    assert await keyring.read() == ([], [])


@pytest.fixture(params=["sqlite", "redis"])
async def broken(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[AdminEngine, Vandal]]:
    """An engine, and someone who damages the tasks of its store."""
    vandal: Vandal = FileVandal(tmp_path / "tasks.db")
    url = f"sqlite:///{tmp_path}/tasks.db?synchronous=normal"
    if request.param == "redis":
        server = request.getfixturevalue("redis")
        prefix = f"q{tmp_path.name}"
        url, vandal = server.url(prefix=prefix), ServerVandal([server], prefix)
    store = await open_store(url)
    yield AdminEngine(store, clock=ManualClock(), batching=False), vandal
    await store.close()


@pytest.mark.parametrize("executing", [False, True])
async def test_a_task_that_was_set_aside_is_mended_restored_and_runs(
    broken: tuple[AdminEngine, Vandal], caplog: pytest.LogCaptureFixture, executing: bool
) -> None:
    engine, vandal = broken
    task = (await engine.submit(Submission(type="t", parameters=b'{"n":5}'))).task
    good = (await engine.submit(Submission(type="t"))).task
    if executing:
        await engine.claim(WorkerId("w"), ["default"], limit=1)
    await vandal(task.id, "status", flipped)
    assert [found.id for found in await engine.find()] == [good.id]
    key = f"task/{task.id}"
    (found,) = await engine.quarantine.all()
    assert (found.key, found.queue) == (key, "default")
    assert f"{key} is damaged and was moved to quarantine" in caplog.text
    assert (await engine.stats()).quarantined == {"task": 1}
    with pytest.raises(RestoreRefused, match="still cannot be decoded"):
        await engine.quarantine.restore(key)
    await engine.quarantine.restore(key, vandal.mended(found.parts, "status", flipped))
    assert (await engine.get(task.id)).state is State.QUEUED
    claimed = await engine.claim(WorkerId("w"), ["default"], limit=5)
    assert task.id in {each.id for each in claimed} and await engine.quarantine.all() == []


async def test_a_task_whose_key_someone_else_holds_by_now_is_not_restored(broken: tuple[AdminEngine, Vandal]) -> None:
    engine, vandal = broken
    task = (await engine.submit(Submission(type="t", idempotency_key="k"))).task
    await vandal(task.id, "status", flipped)
    await engine.find()
    other = (await engine.submit(Submission(type="t", idempotency_key="k"))).task
    (found,) = await engine.quarantine.all()
    with pytest.raises(RestoreRefused, match=other.id):
        await engine.quarantine.restore(found.key, vandal.mended(found.parts, "status", flipped))
    await engine.quarantine.discard(found.key)
    assert await engine.quarantine.all() == []


async def test_what_is_not_there_is_said_to_be_not_there(engine: AdminEngine) -> None:
    for ask in (engine.quarantine.get, engine.quarantine.restore, engine.quarantine.discard):
        with pytest.raises(NotInQuarantine, match="fairlead quarantine list"):
            await ask("queue/nothing")


async def test_a_quarantine_record_that_is_damaged_itself_can_be_seen_and_discarded(engine: AdminEngine) -> None:
    await engine.store.put(QUARANTINE, "queue/default", b"??")
    (found,) = await engine.quarantine.all()
    assert (found.key, found.parts) == ("queue/default", {"value": b"??"})
    await engine.quarantine.discard("queue/default")
    assert await engine.quarantine.all() == []


async def test_a_record_of_a_kind_that_is_not_known_can_only_be_discarded(engine: AdminEngine) -> None:
    odd = Quarantined(kind="sextant", name="a", parts={"value": b"x"}, error="?", found_at=0)
    await engine.store.put(QUARANTINE, odd.key, msgspec.msgpack.encode(odd))
    with pytest.raises(RestoreRefused, match="does not know"):
        await engine.quarantine.restore("sextant/a")
    assert await engine.quarantine.discard("sextant/a") == odd


async def test_the_doctor_is_red_for_what_was_set_aside_and_names_it(engine: AdminEngine) -> None:
    async def diagnosed() -> Finding:
        (finding,) = [each for each in (await engine.diagnose()).findings if each.what == "quarantine"]
        return finding

    assert (await diagnosed()).level is Level.GREEN
    await engine.store.put("schedule", "n", MARK + b"\x02")
    newer = await diagnosed()
    assert (newer.level, newer.value) == (Level.YELLOW, "1 of a newer version of fairlead: 1 schedule")
    await engine.store.put("queue", "default", b"?")
    await engine.store.put("schedule", "m", b"?")
    red = await diagnosed()
    assert red.level is Level.RED
    assert red.value.startswith("2 in quarantine, as they cannot be decoded: 1 queue, 1 schedule;")
    assert "`fairlead quarantine list`" in red.remedy


async def test_a_counted_quarantine_is_not_read_at_every_look(engine: AdminEngine) -> None:
    assert await engine.quarantine.counts() == {}
    await engine.store.put(QUARANTINE, "queue/x", b"?")
    assert await engine.quarantine.counts() == {}
    engine.clock.advance(10_000_000)  # type: ignore[attr-defined]
    assert await engine.quarantine.counts() == {"queue": 1}


async def test_the_more_there_is_to_count_the_more_seldom_it_is_counted() -> None:
    class Slow(MemoryStore):
        """Takes two seconds to read what is set aside."""

        async def scan(self, kind: str) -> list[Record]:
            if kind == QUARANTINE:
                clock.advance(2_000_000)
            return await super().scan(kind)

    clock = ManualClock()
    engine = AdminEngine(Slow(), clock=clock, batching=False)
    assert await engine.quarantine.counts() == {}
    await engine.store.put(QUARANTINE, "queue/x", b"?")
    clock.advance(199_000_000)
    assert await engine.quarantine.counts() == {}
    clock.advance(1_000_000)
    assert await engine.quarantine.counts() == {"queue": 1}


def test_every_kind_that_is_decoded_can_be_restored() -> None:
    kinds = "circuit declaration feed key lost operation promoted queue schedule session throughput upgrade worker"
    assert sorted(FORMS) == kinds.split()
