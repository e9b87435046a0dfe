"""Schedules on every store: kept, changed, and fired once for each of their times."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.admin.sweeper import Sweeper
from fairlead.core.errors import InvalidSchedule, InvalidTask, ScheduleExists, ScheduleNotFound, StoreUnavailable
from fairlead.core.events import Completed
from fairlead.core.instant import HOUR, MINUTE, SECOND, Instant
from fairlead.core.schedule import Missed, Overlap, Schedule, moment_of
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission
from fairlead.core.task import Priority, State, Task
from fairlead.engine.events.types import Happening
from fairlead.engine.runtime.clock import ManualClock
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.memory import MemoryStore
from fairlead.storage.protocol import Store
from fairlead.storage.values import Filter, Record
from tests.engine.building import Bench

FIVE: Instant = 5 * MINUTE


@pytest.fixture
def bench(any_store: Store) -> Bench:
    # Without batching nothing is under way any more when an operation returns.
    return Bench(store=any_store, batching=False)


def a_schedule(**fields: Any) -> Schedule:
    wish: dict[str, Any] = {"name": "report", "cron": "*/5 * * * *", "submission": Submission(type="make_report")}
    return Schedule(**(wish | fields))


async def tasks(bench: Bench, name: str = "report") -> list[Task]:
    """The tasks of a schedule, the oldest first."""
    return await bench.engine.find(Filter(tag=f"schedule:{name}"), newest_first=False, limit=1_000)


async def test_where_there_are_no_schedules_none_are_read_until_somebody_says_that_there_are() -> None:
    class Ticking(ManualClock):
        """Time passes while it is asked for."""

        def now(self) -> Instant:
            self.advance(1)
            return super().now()

    class Counting(MemoryStore):
        read = 0

        async def scan(self, kind: str) -> list[Record]:
            self.read += kind == "schedule"
            return await super().scan(kind)

    store = Counting()
    bench = Bench(store=store, clock=Ticking(), batching=False)
    await bench.engine.schedules.fire()
    read = store.read
    for _ in range(3):
        await bench.engine.schedules.fire()
    assert store.read == read
    await bench.engine.schedules.add(a_schedule())
    read = store.read
    await bench.engine.schedules.fire()
    assert store.read == read + 1


async def pass_time(bench: Bench, by: int) -> int:
    """Let time pass, and sweep; how many tasks the schedules have submitted so far."""
    bench.clock.advance(by)
    await Sweeper(bench.engine).once()
    return len(await tasks(bench))


async def test_a_schedule_submits_its_task_at_each_fire_time(bench: Bench) -> None:
    submission = Submission(
        type="make_report", parameters=b'{"n":1}', priority=Priority.LOW, queue="reports", tags=("eu",), timeout=MINUTE
    )
    entry = await bench.engine.schedules.add(a_schedule(submission=submission))
    start = bench.clock.now()
    assert entry.status.next_at == start + FIVE

    assert await pass_time(bench, FIVE - 1) == 0
    assert await pass_time(bench, 1) == 1
    assert await pass_time(bench, 1) == 1
    assert await pass_time(bench, FIVE) == 2

    first, second = await tasks(bench)
    assert (first.spec.type, first.spec.parameters, first.spec.queue) == ("make_report", b'{"n":1}', "reports")
    assert (first.status.priority, first.spec.tags, first.spec.timeout) == (
        Priority.LOW,
        ("eu", "schedule:report"),
        MINUTE,
    )
    assert first.spec.idempotency_key is None, "a user's key can never stand in its way"
    status = (await bench.engine.schedules.get("report")).status
    assert (status.last_task, status.last_at, status.next_at) == (second.id, start + 2 * FIVE, start + 3 * FIVE)
    assert (status.fired, status.pending) == (2, ())
    assert bench.told().count(Happening.SUBMITTED) == 2


async def test_schedules_are_listed_by_name_shown_and_removed(bench: Bench) -> None:
    schedules = bench.engine.schedules
    for name in ("b", "a"):
        await schedules.add(a_schedule(name=name))
    assert [entry.name for entry in await schedules.all()] == ["a", "b"]
    with pytest.raises(ScheduleExists):
        await schedules.add(a_schedule(name="a"))
    assert (await schedules.remove("a")).name == "a"
    assert [entry.name for entry in await schedules.all()] == ["b"]
    for ask in (schedules.get, schedules.remove, schedules.pause, schedules.resume, schedules.run_now):
        with pytest.raises(ScheduleNotFound, match="schedule 'a' not found"):
            await ask("a")
    await pass_time(bench, FIVE)
    assert not await tasks(bench, "a")


async def test_a_paused_schedule_misses_nothing_that_it_makes_up_for_later(bench: Bench) -> None:
    schedules = bench.engine.schedules
    await schedules.add(a_schedule(missed=Missed.RUN_ALL))
    assert (await schedules.pause("report")).status.paused
    assert await pass_time(bench, HOUR) == 0
    assert not (await schedules.resume("report")).status.paused
    assert await pass_time(bench, 1) == 0
    assert await pass_time(bench, FIVE) == 1
    assert await schedules.resume("report") == await schedules.get("report"), "nothing is to be resumed"


async def test_a_schedule_can_be_added_paused(bench: Bench) -> None:
    await bench.engine.schedules.add(a_schedule(), paused=True)
    assert await pass_time(bench, FIVE) == 0


@pytest.mark.parametrize(
    ("missed", "count"), [(Missed.SKIP, 0), (Missed.RUN_ONCE, 1), (Missed.RUN_ALL, 10)], ids=lambda value: str(value)
)
async def test_after_a_stop_missed_fire_times_are_treated_as_the_schedule_says(
    bench: Bench, missed: Missed, count: int
) -> None:
    await bench.engine.schedules.add(a_schedule(missed=missed, missed_cap=10))
    assert await pass_time(bench, HOUR + 2 * MINUTE) == count
    assert await pass_time(bench, 3 * MINUTE) == count + 1


async def test_while_the_last_task_has_not_ended_skip_submits_no_other(bench: Bench) -> None:
    await bench.engine.schedules.add(a_schedule(overlap=Overlap.SKIP))
    assert await pass_time(bench, FIVE) == 1
    (task,) = await bench.claim()
    for _ in range(3):
        await bench.engine.heartbeat([])
        assert await pass_time(bench, 1) == 1
    await bench.settle(task, Completed(b"null"))
    assert await pass_time(bench, FIVE) == 2
    assert await pass_time(bench, FIVE) == 2, "the second one waits"


async def test_replace_cancels_the_task_before(bench: Bench) -> None:
    await bench.engine.schedules.add(a_schedule(overlap=Overlap.REPLACE))
    for count in (1, 2, 3):
        assert await pass_time(bench, FIVE) == count
    states = [(await bench.engine.get(task.id)).state for task in await tasks(bench)]
    assert states == [State.CANCELLED, State.CANCELLED, State.QUEUED]


async def test_run_now_submits_at_once_and_leaves_the_fire_times_alone(bench: Bench) -> None:
    schedules = bench.engine.schedules
    before = await schedules.add(a_schedule(overlap=Overlap.SKIP), paused=True)
    task = await schedules.run_now("report")
    assert task.state is State.QUEUED
    status = (await schedules.get("report")).status
    assert (status.last_task, status.next_at, status.fired) == (task.id, before.status.next_at, 1)
    await schedules.resume("report")
    assert await pass_time(bench, FIVE) == 1, "it is the last task, and has not ended"


async def test_preview_gives_the_next_fire_times(bench: Bench) -> None:
    await bench.engine.schedules.add(a_schedule(timezone="Europe/Berlin"))
    now = bench.clock.now()
    assert await bench.engine.schedules.preview("report", 3) == [now + FIVE, now + 2 * FIVE, now + 3 * FIVE]
    for count in (0, 1_001):
        with pytest.raises(InvalidSchedule, match=r"use 1 to 1,000"):
            await bench.engine.schedules.preview("report", count)


async def test_jitter_moves_each_submit_and_not_the_fire_times(bench: Bench) -> None:
    schedule = a_schedule(jitter=MINUTE)
    await bench.engine.schedules.add(schedule)
    late = moment_of(schedule, bench.clock.now() + FIVE) - bench.clock.now()
    assert await pass_time(bench, late - 1) == 0
    assert await pass_time(bench, 1) == 1
    status = (await bench.engine.schedules.get("report")).status
    assert status.next_at == bench.clock.now() - late + 2 * FIVE


async def test_declaring_again_changes_what_changed_and_keeps_the_rest(bench: Bench) -> None:
    schedules = bench.engine.schedules
    await schedules.declare([a_schedule()])
    await pass_time(bench, FIVE)
    await schedules.pause("report")
    before = await schedules.get("report")
    versions = [record.version for record in await bench.store.scan("schedule")]

    await schedules.declare([a_schedule()])
    assert [record.version for record in await bench.store.scan("schedule")] == versions, "nothing was written"

    await schedules.declare([a_schedule(submission=Submission(type="other"))])
    after = await schedules.get("report")
    assert after.status == before.status, "a task of another type is no other time"
    assert (after.schedule.submission.type, after.created_at) == ("other", before.created_at)

    await schedules.declare([a_schedule(cron="@hourly")])
    status = (await schedules.get("report")).status
    assert (status.paused, status.fired, status.last_task) == (True, 1, before.status.last_task)
    assert status.next_at is not None and status.next_at % HOUR == 0


async def test_a_deploy_does_not_lose_the_run_that_was_due_meanwhile(bench: Bench) -> None:
    await bench.engine.schedules.declare([a_schedule()])
    bench.clock.advance(FIVE + 2 * MINUTE)
    await bench.engine.schedules.declare([a_schedule(overlap=Overlap.SKIP)])
    assert await pass_time(bench, 0) == 1


async def test_what_one_process_changes_the_others_know_at_their_next_sweep(any_store: Store) -> None:
    bench = Bench(store=any_store, batching=False)
    other = Bench(store=any_store, clock=bench.clock, seed=7, batching=False)
    assert await pass_time(bench, 1) == 0
    await other.engine.schedules.add(a_schedule())
    assert await pass_time(bench, FIVE) == 1
    await other.engine.schedules.pause("report")
    assert await pass_time(bench, FIVE) == 1
    await other.engine.schedules.put(a_schedule(cron="every second"), paused=False)
    assert await pass_time(bench, SECOND) == 2


async def test_a_task_that_finds_its_queue_full_is_submitted_when_there_is_room(any_store: Store) -> None:
    bench = Bench(Settings(queue_bound=1), store=any_store, batching=False)
    await bench.submit()
    await bench.engine.schedules.add(a_schedule())
    assert await pass_time(bench, FIVE) == 0
    assert (await bench.engine.schedules.get("report")).status.failure == "the queue is full"
    with pytest.raises(StoreUnavailable, match="the queue is full; it will be"):
        await bench.engine.schedules.run_now("report")
    await bench.claim()
    assert await pass_time(bench, 1) == 1
    await bench.claim()
    assert await pass_time(bench, 1) == 2
    assert (await bench.engine.schedules.get("report")).status.failure is None


async def test_what_was_fine_and_is_refused_now_stops_no_other_schedule(any_store: Store) -> None:
    before = Bench(store=any_store, batching=False)
    large = Submission(type="make_report", parameters=b'{"text":"%b"}' % (b"x" * 500))
    await before.engine.schedules.add(a_schedule(name="large", submission=large))
    await before.engine.schedules.add(a_schedule())
    bench = Bench(Settings(payload_limit=100), store=any_store, clock=before.clock, batching=False)
    assert await pass_time(bench, FIVE) == 1
    status = (await bench.engine.schedules.get("large")).status
    assert "over the limit" in (status.failure or "")
    assert (status.fired, status.pending, status.next_at) == (0, (), bench.clock.now() + FIVE)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"cron": "x"}, "cron"),
        ({"timezone": "x"}, "timezone"),
        ({"name": "two words"}, "name"),
        ({"submission": Submission(type="")}, "type"),
        ({"submission": Submission(type="x", parameters=b"[]")}, "parameters"),
        ({"end": 1}, "end"),
    ],
)
async def test_a_schedule_that_could_not_fire_is_not_stored(fields: dict[str, Any], field: str) -> None:
    bench = Bench()
    for put in (bench.engine.schedules.add, bench.engine.schedules.put):
        with pytest.raises(InvalidTask) as raised:
            await put(a_schedule(**fields))
        assert raised.value.field == field
    assert await bench.engine.schedules.all() == []


async def test_a_thousand_schedules_cost_one_small_read_when_none_is_due() -> None:
    store = Counting()
    bench = Bench(store=store, batching=False)
    for number in range(1_000):
        await bench.engine.schedules.add(a_schedule(name=f"s{number}"))
    await bench.engine.schedules.fire()
    store.scanned.clear()
    for _ in range(10):
        bench.clock.advance(SECOND)
        await bench.engine.schedules.fire()
    assert store.scanned == [("schedules_changed", 1)] * 10
    bench.clock.advance(FIVE)
    assert await bench.engine.schedules.fire() == 1_000
    assert len(await bench.engine.find(limit=2_000)) == 1_000


async def test_a_record_that_nobody_can_read_keeps_no_other_from_firing(bench: Bench) -> None:
    await bench.store.put("schedule", "broken", b"\x00")
    await bench.engine.schedules.add(a_schedule())
    assert await pass_time(bench, FIVE) == 1
    assert [entry.name for entry in await bench.engine.schedules.all()] == ["report"]


def test_people_can_do_it_all_from_synchronous_code() -> None:
    schedules = Bench(batching=False).engine.schedules
    run_inline(schedules.add(a_schedule()))
    run_inline(schedules.pause("report"))
    assert run_inline(schedules.run_now("report")).spec.type == "make_report"
    assert run_inline(schedules.preview("report", 1))
    run_inline(schedules.remove("report"))


class Counting(MemoryStore):
    """A store that counts what is read of its records."""

    def __init__(self) -> None:
        super().__init__()
        self.scanned: list[tuple[str, int]] = []

    async def scan(self, kind: str) -> list[Any]:
        found = await super().scan(kind)
        self.scanned.append((kind, len(found)))
        return found
