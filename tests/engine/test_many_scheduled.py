"""Tasks that are not due cost a sweep nothing, however many there are, and are ready in the sweep after their time."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fairlead.admin.sweeper import Sweeper
from fairlead.core.instant import DAY
from fairlead.core.submission import Submission
from fairlead.core.task import State
from fairlead.storage.memory import MemoryStore
from fairlead.storage.open import open_store
from fairlead.storage.sqlite.database import statement
from tests.engine.building import Bench
from tests.engine.scheduled import fill
from tests.servers.redis import RedisServer

MANY = 100_000


@pytest.mark.slow
async def test_on_sqlite_a_sweep_takes_as_many_steps_with_many_as_with_few(tmp_path: Path) -> None:
    bench = Bench(store=await open_store(f"sqlite:///{tmp_path}/tasks.db?synchronous=normal"), batching=False)

    async def work() -> int:
        """How many instructions SQLite runs to find that nothing is due."""
        steps = 0

        def step() -> int:
            nonlocal steps
            steps += 1
            return 0

        with sqlite3.connect(tmp_path / "tasks.db") as connection:
            connection.set_progress_handler(step, 1)
            for name in ("read.tasks_due", "read.leases_due"):
                found = connection.execute(statement(name), (bench.clock.now(), 0, "", 1_000)).fetchall()
                assert found == []
        connection.close()
        return steps

    await assert_same_work(bench, work)


@pytest.mark.slow
async def test_on_redis_a_sweep_takes_as_many_commands_with_many_as_with_few(redis: RedisServer) -> None:
    bench = Bench(store=await open_store(redis.url(prefix="many")), batching=False)

    async def work() -> int:
        """How many commands Redis runs for one sweep."""
        redis.ask("CONFIG", "RESETSTAT")
        await Sweeper(bench.engine).once()
        stats = str(redis.ask("INFO", "commandstats"))
        return sum(map(int, re.findall(r"cmdstat_[^:]*:calls=(\d+)", stats)))

    await assert_same_work(bench, work)


async def assert_same_work(bench: Bench, work: Callable[[], Awaitable[int]]) -> None:
    await fill(bench.engine, 1_000)
    await work()
    few = await work()
    await fill(bench.engine, MANY)
    assert await work() == few > 0
    # Those that become due do so in one sweep, and only those.
    due = bench.clock.now() + DAY // 2
    await bench.engine.submit_many([Submission(type="soon", run_at=due) for _ in range(100)])
    bench.clock.advance(DAY // 2)
    assert await Sweeper(bench.engine).once() == 100
    counts = (await bench.engine.stats()).states
    assert (counts[State.QUEUED], counts[State.SCHEDULED]) == (100, MANY + 1_000)
    await bench.store.close()


async def test_a_sweep_with_nothing_due_looks_for_alarms_once_and_at_no_task() -> None:
    asked: list[int] = []

    class Watched(MemoryStore):
        async def due(self, *arguments, **more):  # type: ignore[no-untyped-def]
            found = await super().due(*arguments, **more)
            asked.append(len(found))
            return found

    bench = Bench(store=Watched())
    await fill(bench.engine, 2_000)
    await Sweeper(bench.engine).once()
    assert asked == [0]
