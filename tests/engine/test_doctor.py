"""The doctor on every store: what it finds on a healthy one, and what it finds when something was left behind."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fairlead._version import __version__
from fairlead.admin.doctor.service import Doctor
from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.service import Keyring
from fairlead.core.errors import StoreUnavailable
from fairlead.core.health.diagnosis import MEMORY, TIERS, Diagnosis, Examination, Finding, Level
from fairlead.core.identity import WorkerId
from fairlead.core.instant import DAY, HOUR, MINUTE, SECOND, Instant
from fairlead.core.schedule import Schedule
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission
from fairlead.core.task import Task
from fairlead.core.tenancy import Role
from fairlead.engine.runtime.clock import ManualClock
from fairlead.storage.deadline import left
from fairlead.storage.memory import MemoryStore
from fairlead.storage.protocol import Examined, Store
from fairlead.storage.values import Record, Tally
from tests.engine.building import Bench
from tests.engine.stocking import a_dead_letter, stock


def found(diagnosis: Diagnosis, what: str) -> Finding:
    """The one finding about this; what is not green says what to do."""
    (finding,) = [finding for finding in diagnosis.findings if finding.what == what]
    assert bool(finding.remedy) == (finding.level is not Level.GREEN)
    return finding


def doctor(engine: AdminEngine, host: ManualClock) -> Doctor:
    """An engine's doctor, on a host with this clock."""
    return Doctor(engine, engine.workers, engine.schedules, engine.quarantine, host=host)


async def test_a_healthy_store_is_left_as_it_is(any_store: Store) -> None:
    bench = Bench(store=any_store)
    await bench.submit()
    task = await bench.executing()
    before = await any_store.tally()

    diagnosis = await bench.engine.diagnose()

    assert diagnosis.tier in TIERS
    assert await any_store.tally() == before
    assert await any_store.get([task.id]) == [task]
    # The Redis of these tests keeps nothing on disk, and its version and memory are whatever they are.
    lenient = {"durability", "server", "memory", "queue default", "open files", "store", "disk"}
    wrong = [each for each in diagnosis.findings if each.level is not Level.GREEN and each.what not in lenient]
    wrong = [each for each in wrong if each.what != "clock"]  # The bench's stands still.
    assert wrong == []
    assert found(diagnosis, "fairlead").value.startswith(__version__)


async def test_the_tier_is_that_of_the_store(any_store: Store) -> None:
    assert isinstance(any_store, Examined)
    examination = await any_store.examine()
    assert examination.tier in TIERS
    (said,) = [each for each in examination.findings if each.what == "durability"]
    assert said.value.startswith(examination.tier.name.replace("`", ""))


async def test_a_task_whose_worker_is_gone_and_that_no_one_sweeps_is_found(any_store: Store) -> None:
    bench = Bench(store=any_store)
    await bench.executing()
    await bench.submit(delay=30 * SECOND)
    bench.clock.advance(32 * SECOND)
    assert found(await bench.engine.diagnose(), "sweep").level is Level.GREEN

    bench.clock.advance(1)
    assert found(await bench.engine.diagnose(), "sweep").value == "1 due and still scheduled; the oldest for 2 s"

    bench.clock.advance(HOUR)
    late = found(await bench.engine.diagnose(), "sweep")

    assert late.level is Level.RED
    assert late.value.startswith("1 executing with no live worker, 1 due and still scheduled; the oldest for 3,6")
    assert "start a worker or a server" in late.remedy


async def test_ended_tasks_that_are_never_removed_are_found(any_store: Store) -> None:
    bench = Bench(store=any_store)
    kept, _ = await stock(
        any_store, [_ending(a_dead_letter(1), None), _ending(a_dead_letter(2), bench.clock.now() + DAY)]
    )
    lasting = found(await bench.engine.diagnose(), "retention")
    assert lasting.level is Level.YELLOW
    assert lasting.value == f"1 ended tasks are kept for ever, such as {kept.id}"


async def test_workers_that_died_and_workers_of_another_version_are_found(any_store: Store) -> None:
    bench = Bench(store=any_store)
    engine = bench.engine
    await engine.worker_records.register(WorkerId("old"), queues=["default"], capacity=1, version="0.0.1")
    diagnosis = await engine.diagnose()
    assert found(diagnosis, "workers").value == "1 active"
    assert found(diagnosis, "versions").value == f"this is {__version__}, and workers run 0.0.1"
    bench.clock.advance(31 * SECOND)
    await engine.worker_records.register(WorkerId("new"), queues=["default"], capacity=1, version=__version__)

    diagnosis = await engine.diagnose()

    assert found(diagnosis, "workers").value == "1 active, 1 dead"
    assert found(diagnosis, "workers").level is Level.YELLOW
    assert not [each for each in diagnosis.findings if each.what == "versions"]


async def test_schedules_that_nobody_fires_or_could_run_are_found(any_store: Store) -> None:
    bench = Bench(store=any_store)
    schedules = bench.engine.schedules
    await schedules.add(Schedule(name="known", cron="every 60 seconds", submission=Submission(type="work")))
    await schedules.add(Schedule(name="unknown", cron="@yearly", submission=Submission(type="else")))
    assert found(await bench.engine.diagnose(), "schedules").value == "2, none of them late"
    await bench.engine.worker_records.register(WorkerId("w"), queues=["default"], capacity=1, types=["work"])
    assert found(await bench.engine.diagnose(), "schedule unknown").level is Level.YELLOW
    bench.clock.advance(10 * MINUTE)

    late = found(await bench.engine.diagnose(), "schedules")

    assert late.level is Level.RED
    assert late.value == "1 should have fired and did not, such as known"


async def test_a_queue_near_its_bound_and_one_without_a_worker_are_found(any_store: Store) -> None:
    bench = Bench(Settings(queue_bound=2), store=any_store)
    await bench.submit()
    await bench.submit()
    worker = WorkerId("w")
    (bound, unserved) = [each for each in (await bench.engine.diagnose()).findings if each.what == "queue default"]
    assert (bound.level, unserved.level) == (Level.RED, Level.YELLOW)
    assert unserved.value == "2 tasks are ready, and no worker is running"
    await bench.engine.worker_records.register(worker, queues=["default"], capacity=1)
    assert found(await bench.engine.diagnose(), "queue default") == bound
    await bench.engine.queues.change("default", bound=0)
    assert not [each for each in (await bench.engine.diagnose()).findings if each.what == "queue default"]


async def test_more_dead_letters_of_a_type_than_one_wants_to_hear_of_are_found(any_store: Store) -> None:
    bench = Bench(Settings(dead_letter_alert=9, dead_letter_alerts=(("send_mail", 2),)), store=any_store)
    later = bench.clock.now() + DAY
    await stock(any_store, [_ending(a_dead_letter(1), later), _ending(a_dead_letter(2, type="other"), later)])
    assert not [each for each in (await bench.engine.diagnose()).findings if each.what.startswith("dead letters")]
    await stock(any_store, [_ending(a_dead_letter(3), later)])
    many = found(await bench.engine.diagnose(), "dead letters of send_mail")
    assert (many.level, many.value) == (Level.RED, "2, at least the 2 from which on to alert")


async def test_api_keys_without_an_end_are_found(bench: Bench) -> None:
    keyring = Keyring(bench.engine)
    await keyring.create("short", [Role.READ], expires=bench.clock.now() + HOUR)
    assert found(await bench.engine.diagnose(), "API keys").level is Level.GREEN
    await keyring.create("lasting", [Role.READ])
    assert found(await bench.engine.diagnose(), "API keys").value == "2 keys; for ever good: lasting"
    bench.clock.advance(2 * HOUR)
    assert found(await bench.engine.diagnose(), "API keys").value == "2 keys; for ever good: lasting; expired: short"
    await bench.store.put("key", "damaged", b"?")
    damaged = found(await bench.engine.diagnose(), "API keys")
    assert (damaged.level, "damaged" in damaged.value) == (Level.RED, True)


class Torn(MemoryStore):
    """A memory store that cannot say how it stands."""

    async def tally(self) -> Tally:
        raise StoreUnavailable("nobody counts")


async def test_what_one_part_cannot_say_does_not_hide_the_rest() -> None:
    diagnosis = await Bench(store=Torn()).engine.diagnose()
    for what in ("tasks", "queues and workers"):
        assert found(diagnosis, what).value == "nobody counts"
    assert diagnosis.tier is MEMORY
    assert found(diagnosis, "API keys").level is Level.GREEN


class Shared(MemoryStore):
    """A memory store with a clock of its own."""

    def __init__(self, now: Instant) -> None:
        super().__init__()
        self.now = now

    async def time(self) -> Instant | None:
        return self.now


@pytest.mark.parametrize(("ahead", "level"), [(0, Level.GREEN), (-3 * SECOND, Level.YELLOW), (HOUR, Level.RED)])
async def test_a_host_whose_clock_is_off_is_found(ahead: int, level: Level) -> None:
    host = ManualClock()
    engine = Bench(store=Shared(host.now() - ahead)).engine
    clock = found(await doctor(engine, host).diagnose(), "clock")
    assert (clock.level, clock.value) == (level, f"{ahead / SECOND:+.3f} s from the store's")


class Hung(MemoryStore):
    """A memory store that was waited for in vain, once, and then is asked how long it may take."""

    def __init__(self, host: ManualClock) -> None:
        super().__init__()
        self.host = host
        self.allowed: list[float] = []

    async def examine(self) -> Examination:
        self.host.advance(5 * SECOND)
        raise StoreUnavailable("it did not answer within 5 s")

    async def scan(self, kind: str) -> list[Record]:
        self.allowed.append(left(100.0))
        return await super().scan(kind)


async def test_once_a_part_was_waited_for_in_vain_the_others_have_a_second_each() -> None:
    host = ManualClock()
    store = Hung(host)
    diagnosis = await doctor(Bench(store=store).engine, host).diagnose()
    assert [each.value for each in diagnosis.findings if each.level is Level.RED] == ["it did not answer within 5 s"]
    assert found(diagnosis, "quarantine").level is Level.GREEN
    assert store.allowed and all(0 < seconds <= 1 for seconds in store.allowed)


def _ending(task: Task, at: Instant | None) -> Task:
    return Task(task.spec, replace(task.status, alarm=at))
