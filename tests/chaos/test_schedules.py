"""Four processes fire the same schedules and are killed at random: each fire time has exactly one task."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.core.schedule import Missed, Schedule, ScheduleEntry, upcoming
from fairlead.core.submission import Submission
from fairlead.storage.open import open_store
from fairlead.storage.values import Filter
from tests.chaos.children import Child
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer, started_single

_PROCESSES = 4
_SCHEDULES = 25
_PATIENCE = 60.0


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    yield from started_single()


@pytest.fixture(scope="session")
def postgres(one_postgres: PostgresServer) -> PostgresServer:
    return one_postgres


@pytest.fixture(params=["sqlite", "redis", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "redis":
            server: RedisServer = request.getfixturevalue("redis")
            server.ask("FLUSHALL")
            return server.url()
        case "postgresql":
            database: PostgresServer = request.getfixturevalue("postgres")
            return database.url(database.copy_of_template())
        case _:
            return f"sqlite:///{tmp_path}/tasks.db"


@pytest.fixture
async def engine(url: str) -> AsyncIterator[AdminEngine]:
    engine = AdminEngine(await open_store(url))
    await engine.follow_clock()
    yield engine
    await engine.close()


@pytest.mark.slow
async def test_each_fire_time_has_one_task_however_many_fire_and_die(engine: AdminEngine, url: str) -> None:
    await fire_and_die(engine, url, kills=6)


@pytest.mark.soak
async def test_each_fire_time_has_one_task_in_many_kills(engine: AdminEngine, url: str) -> None:
    await fire_and_die(engine, url, kills=150)


async def fire_and_die(engine: AdminEngine, url: str, kills: int) -> None:
    chance = random.Random(kills)
    for number in range(_SCHEDULES):
        await engine.schedules.add(
            Schedule(
                name=f"s{number}",
                cron="every second",
                submission=Submission(type="work"),
                missed=Missed.RUN_ALL,
                missed_cap=1_000,
            )
        )
    crew = [Child("tests.chaos.sweeper", url) for _ in range(_PROCESSES)]
    try:
        await until(engine, lambda entries: all(entry.status.fired for entry in entries))
        for _ in range(kills):
            before = sum(entry.status.fired for entry in await engine.schedules.all())
            await until(engine, lambda entries, before=before: fired(entries) > before)  # type: ignore[misc]
            await asyncio.sleep(chance.random() / 2)
            victim = chance.randrange(_PROCESSES)
            crew[victim].kill()
            crew[victim] = Child("tests.chaos.sweeper", url)
        for number in range(_SCHEDULES):
            await engine.schedules.pause(f"s{number}")
        # What the last of the dead had decided is taken over.
        await until(engine, lambda entries: not any(entry.status.pending for entry in entries))
        for child in crew:
            child.stop()
    finally:
        for child in crew:
            if child.running:
                child.kill()
    entries = await engine.schedules.all()
    for entry in entries:
        await assert_one_each(engine, entry)
    print(f"{fired(entries)} fire times, {kills} kills")


async def assert_one_each(engine: AdminEngine, entry: ScheduleEntry) -> None:
    tasks = await engine.find(Filter(tag=f"schedule:{entry.name}"), limit=10_000)
    assert entry.status.next_at is not None
    due = 0
    for at in upcoming(entry.schedule, entry.created_at):
        if at >= entry.status.next_at:
            break
        due += 1
    assert len(tasks) == due == entry.status.fired


def fired(entries: list[ScheduleEntry]) -> int:
    return sum(entry.status.fired for entry in entries)


async def until(engine: AdminEngine, reached: Callable[[list[ScheduleEntry]], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not reached(await engine.schedules.all()):
        assert time.monotonic() < deadline, "the processes did not get there in time"
        await asyncio.sleep(0.02)
