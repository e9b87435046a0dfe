"""A store's clock that is set forward or back costs an executing task one more attempt at most, and nothing else.

Every step, with every mix of processes that were started before it and after it, in virtual time.
"""

from __future__ import annotations

import itertools

import msgspec
import pytest

from fairlead.core.instant import DAY, HOUR, MINUTE, SECOND, Span
from fairlead.core.schedule import Missed, Schedule
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission
from fairlead.core.task import Reason, State, Task
from fairlead.engine.worker_records import WorkerRecord, WorkerState
from fairlead.storage.values import Filter
from tests.engine.clock_world import World

LEASE: Span = 30 * SECOND
STEPS = {
    "2-min-ahead": 2 * MINUTE,
    "2-min-back": -2 * MINUTE,
    "1-h-ahead": HOUR,
    "1-h-back": -HOUR,
    "1-day-ahead": DAY,
    "1-day-back": -DAY,
}
MIXES = [
    (before, after)
    for before, after in itertools.product(
        [("server",), ("server", "worker"), ("worker",)],
        [(), ("server-2",), ("worker-2",), ("server-2", "worker-2")],
    )
    if any(name.startswith("worker") for name in before + after)
]


@pytest.fixture(params=list(STEPS.values()), ids=list(STEPS))
def step(request: pytest.FixtureRequest) -> Span:
    by: Span = request.param
    return by


def named(mix: tuple[tuple[str, ...], tuple[str, ...]]) -> str:
    before, after = mix
    return "+".join(before) + "-then-" + ("+".join(after) or "none")


async def start(world: World, names: tuple[str, ...]) -> None:
    for name in names:
        await world.start(name, capacity=10 if name.startswith("worker") else 0)


@pytest.mark.parametrize("mix", MIXES, ids=named)
async def test_no_step_costs_more_than_an_attempt(step: Span, mix: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    """Tasks may not crash even once here: a single crash that is counted is a dead letter."""
    before, after = mix
    world = World()
    await start(world, before)
    ids = await world.submit(5, 100 * SECOND, max_crashes=0, timeout=5 * MINUTE)
    await world.live(MINUTE)
    world.store.step(step)
    await start(world, after)
    await world.live(3 * SECOND)
    ids += await world.submit(10, 5 * SECOND, max_crashes=0, timeout=5 * MINUTE)
    await world.live(10 * MINUTE)

    tasks = await world.tasks(ids)
    assert len(tasks) == len(ids)
    for task in tasks:
        assert (task.state, task.status.crashes) == (State.COMPLETED, 0), task.status.history
        assert task.status.attempts <= (2 if task.id in ids[:5] else 1)


@pytest.mark.parametrize(
    "mix", [(("server", "worker"), ()), (("worker",), ()), (("server",), ("server-2",))], ids=named
)
async def test_a_worker_that_dies_around_a_step_is_missed_within_two_leases(
    step: Span, mix: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    """Its leases end by the clock as it was, which may be a day from now, or a day ago."""
    before, after = mix
    for dies_after in (0, 5):
        world = World()
        await start(world, before)
        await world.start("doomed", capacity=100)
        ids = await world.submit(30, HOUR, timeout=2 * HOUR)
        await world.live(MINUTE)
        held = {task.id for task in await world.tasks(ids) if lease_holder(task) == "doomed"}
        assert held
        world.store.step(step)
        await start(world, after)
        await world.live(dies_after * SECOND)
        world.kill("doomed")
        await world.live(2 * LEASE + 5 * SECOND)

        for task in await world.tasks(sorted(held)):
            assert lease_holder(task) != "doomed"
            # Past the time of the attempt by the new clock, nobody can know whether it was that or the worker's death.
            assert task.status.crashes == 1 or (step >= 2 * HOUR and task.status.crashes == 0), task.status.history


async def test_a_task_that_kills_its_workers_is_given_up_though_each_sweeper_is_new() -> None:
    """Each has watched for one lease only: a crash counts all the same."""
    world = World()
    await world.start("server")
    (task_id,) = await world.submit(1, HOUR, max_crashes=2, timeout=10 * SECOND)
    for turn in range(12):
        world.processes.clear()
        await world.start(f"worker-{turn}", capacity=1)
        await world.live(LEASE + 25 * SECOND)
    (task,) = await world.tasks([task_id])
    assert (task.state, task.status.reason) == (State.DEAD_LETTER, Reason.CRASH_LOOP)


async def test_a_server_that_starts_alone_watches_for_one_lease_before_it_gives_up_on_anyone() -> None:
    world = World()
    await world.start("server")
    await world.start("doomed", capacity=1)
    (task_id,) = await world.submit(1, HOUR)
    await world.live(5 * SECOND)
    world.processes.clear()
    world.host.advance(HOUR)
    await world.start("fresh")
    await world.live(LEASE)
    (task,) = await world.tasks([task_id])
    assert task.state is State.EXECUTING
    await world.live(3 * SECOND)
    (task,) = await world.tasks([task_id])
    assert (task.state, task.status.crashes) == (State.QUEUED, 1)


@pytest.mark.parametrize("away", [10 * SECOND, 40 * SECOND, HOUR], ids=["10-s", "40-s", "1-h"])
async def test_a_store_that_was_away_ends_no_lease_of_the_living(away: Span) -> None:
    """Nobody could renew one, and it showed the time all the while."""
    world = World()
    await world.start("server")
    await world.start("worker", capacity=5)
    ids = await world.submit(5, 2 * HOUR, max_crashes=0, timeout=3 * HOUR)
    await world.live(MINUTE)
    world.store.is_away = True
    await world.live(away)
    world.store.is_away = False
    await world.live(3 * HOUR)
    for task in await world.tasks(ids):
        assert (task.state, task.status.attempts) == (State.COMPLETED, 1)


async def test_a_store_that_was_put_back_to_what_it_was_ends_no_lease_of_the_living() -> None:
    """A server restarts, or another takes over, and the latest heartbeats are lost; its clock is right."""
    world = World()
    await world.start("server")
    await world.start("worker", capacity=5)
    ids = await world.submit(5, HOUR, max_crashes=0, timeout=2 * HOUR)
    await world.live(MINUTE)
    world.store.run = "the second"
    assert await world.store.curtail(lease=-MINUTE, limit=10) == 5
    await world.live(2 * HOUR)
    for task in await world.tasks(ids):
        assert (task.state, task.status.attempts) == (State.COMPLETED, 1)


@pytest.mark.parametrize("settings", [Settings(lease=20 * SECOND), Settings(lease=3 * SECOND, heartbeat=SECOND)])
async def test_no_outage_ends_a_lease_however_short_that_is(settings: Settings) -> None:
    """There is no telling how much of one is left when the store is there again."""
    for away in range(int(2 * settings.lease / SECOND)):
        world = World(settings)
        await world.start("server")
        await world.start("worker", capacity=1)
        ids = await world.submit(1, HOUR, max_crashes=0, timeout=2 * HOUR)
        await world.live(MINUTE)
        world.store.is_away = True
        await world.live(away * SECOND)
        world.store.is_away = False
        await world.live(MINUTE)
        (task,) = await world.tasks(ids)
        assert (task.state, task.status.attempts) == (State.EXECUTING, 1)


async def test_leases_of_different_lengths_leave_each_other_alone() -> None:
    """A worker's settings are in its program, and those of the server in its environment."""
    world = World()
    await world.start("server")
    patient = Settings(lease=5 * MINUTE, heartbeat=100 * SECOND)
    await world.start("worker", capacity=3, settings=patient)
    ids = await world.submit(3, 10 * MINUTE, max_crashes=0, timeout=HOUR)
    await world.live(MINUTE)
    world.store.step(-HOUR)
    await world.live(10 * MINUTE)
    for task in await world.tasks(ids):
        assert (task.state, task.status.attempts) == (State.COMPLETED, 1)

    (lost,) = await world.submit(1, HOUR, timeout=2 * HOUR)
    await world.live(MINUTE)
    world.kill("worker")
    await world.live(2 * patient.lease)
    (task,) = await world.tasks([lost])
    assert task.status.crashes == 1


async def test_a_sweeper_that_is_held_up_again_and_again_gives_up_what_the_dead_hold() -> None:
    """Its handlers block its event loop, and there is no other."""
    world = World()
    await world.start("doomed", capacity=1)
    (task_id,) = await world.submit(1, HOUR, timeout=2 * HOUR)
    await world.live(MINUTE)
    world.kill("doomed")
    await world.start("busy", capacity=0)
    for _ in range(10):
        await world.processes["busy"].tick()
        world.host.advance(20 * SECOND)
    (task,) = await world.tasks([task_id])
    assert task.status.crashes == 1


async def test_no_worker_is_forgotten_because_a_clock_was_set(step: Span) -> None:
    """Nor taken for dead by who starts after it, or the request to drain would be forgotten with it."""
    world = World()
    await world.start("server")
    await world.start("worker", capacity=1)
    await world.live(5 * SECOND)
    await world.processes["server"].engine.worker_records.ask_drain(world.processes["worker"].worker)
    world.store.step(step)
    await world.start("fresh")
    await world.processes["fresh"].tick()
    (record,) = await world.store.scan("worker")
    assert msgspec.msgpack.decode(record.value, type=WorkerRecord).state is WorkerState.ACTIVE
    assert await world.processes["fresh"].engine.worker_records.asked() == {"worker"}


async def test_who_only_submits_goes_by_the_stores_clock_soon_after_it_was_set(step: Span) -> None:
    """It does not sweep, and so does not watch."""
    world = World()
    await world.start("server", "producer")
    producer = world.processes["producer"].engine
    await producer.submit(Submission(type="work"))
    world.store.step(step)
    world.host.advance(2 * SECOND)
    task = (await producer.submit(Submission(type="work", delay=MINUTE))).task
    assert (task.spec.created_at, task.status.ready_at) == (world.store.now(), world.store.now() + MINUTE)


async def test_idempotency_windows_are_off_by_the_step_at_most(step: Span) -> None:
    world = World()
    await world.start("server")
    (first,) = await world.submit(1, 0, idempotency_key="once")
    world.store.step(step)
    await world.live(MINUTE)
    (again,) = await world.submit(1, 0, idempotency_key="once")
    window = world.settings.key_retention
    assert again == first or step >= window - MINUTE
    world.host.advance(window + max(0, -step))
    await world.live(2 * SECOND)
    (later,) = await world.submit(1, 0, idempotency_key="once")
    assert later != first


def lease_holder(task: Task) -> str | None:
    return None if task.status.lease is None else str(task.status.lease.worker)


@pytest.mark.parametrize("mix", [(("server",), ()), (("server", "worker"), ("server-2", "worker-2"))], ids=named)
async def test_no_fire_time_of_a_schedule_is_fired_twice(
    step: Span, mix: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    """Nor are those that come again, after the clock went back, for that is what the record of it is for."""
    before, after = mix
    world = World()
    for name in before:
        await world.start(name)
    schedule = Schedule(name="each", cron="* * * * *", submission=Submission(type="work"), missed=Missed.SKIP)
    await world.processes["server"].engine.schedules.add(schedule)
    begun = world.store.now()
    await world.live(5 * MINUTE + 10 * SECOND)
    latest = world.store.now()
    world.store.step(step)
    for name in after:
        await world.start(name)
    await world.live(10 * MINUTE)
    latest = max(latest, world.store.now())

    tasks = await world.store.find(Filter(), limit=10_000)
    passed = latest // MINUTE - begun // MINUTE
    if step < 0:
        assert len(tasks) == passed
    else:
        # Those that were leapt over are skipped, but for the last half minute, which is not late.
        assert 13 <= len(tasks) <= 17


async def test_waits_and_durations_are_never_negative(step: Span) -> None:
    """What began before the clock went back has taken no time, rather than less than none."""
    world = World()
    await world.start("server")
    await world.start("worker", capacity=2)
    ids = await world.submit(5, 20 * SECOND)
    await world.live(5 * SECOND)
    world.store.step(step)
    await world.live(3 * MINUTE)
    engine = world.processes["server"].engine
    for task in await world.tasks(ids):
        status = task.status
        assert status.state is State.COMPLETED
        assert status.started_at is not None
        assert status.ended_at is not None
        assert status.ended_at >= status.started_at
        explained = await engine.explain(task.id)
        spans = [value for cause in explained.causes for name, value in cause.data.items() if "seconds" in name]
        assert all(span is None or float(str(span)) >= 0 for span in spans)
