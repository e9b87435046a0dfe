"""Many tasks through a short queue: the tables stop growing and claims stay as fast.

`python -m tests.storage.postgres.test_bloat [tasks]` is the long form: 2,000,000 tasks by default.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from statistics import median

import psycopg
import pytest
from msgspec import Struct

from fairlead.admin.engine import AdminEngine
from fairlead.core.events import Completed
from fairlead.core.identity import WorkerId
from fairlead.core.settings import Retention, Rules, Settings
from fairlead.core.submission import Submission
from fairlead.engine.engine import Settlement
from fairlead.storage.postgres.store import open_postgres
from tests.servers.postgres import started

_BATCH = 500
_SUBMISSION = Submission(type="send", parameters=b'{"to":"someone@example.org"}')


class Lap(Struct, frozen=True):
    """One tenth of the way."""

    tasks: int
    table: int
    """Bytes, with TOAST."""
    indexes: int
    claims: float
    """Tasks claimed in a second, of the time spent in claims."""


async def run(url: str, tasks: int, depth: int, tidy: Callable[[], None] = lambda: None) -> list[Lap]:
    """Keep `depth` tasks waiting while so many pass; completed ones are forgotten at once, by the sweep.

    `tidy` is called at the end of each tenth of the way.
    """
    engine = await _filled(url, depth)
    laps: list[Lap] = []
    done = 0
    while len(laps) < 10:
        spent: list[float] = []
        while done < tasks * (len(laps) + 1) // 10:
            spent.append(await _pass(engine))
            done += _BATCH
        tidy()
        laps.append(_lap(url, done, 1 / median(spent)))
    await engine.close()
    return laps


async def compare(aged: str, fresh: str, depth: int, rounds: int = 200) -> float:
    """How fast claims are where many tasks have passed, as a share of where none has, at the same moment."""
    engines = [await _filled(aged, 0), await _filled(fresh, depth)]
    spent: list[list[float]] = [[], []]
    for _ in range(rounds):
        for engine, times in zip(engines, spent, strict=True):
            times.append(await _pass(engine))
    for engine in engines:
        await engine.close()
    return median(spent[1]) / median(spent[0])


async def _filled(url: str, depth: int) -> AdminEngine:
    engine = AdminEngine(await open_postgres(url), Settings(rules=Rules(retention=Retention(completed=0))))
    for _ in range(depth // _BATCH):
        await engine.submit_many([_SUBMISSION] * _BATCH)
    return engine


async def _pass(engine: AdminEngine) -> float:
    """Have a batch of tasks pass; the seconds that the claim took for each."""
    began = time.perf_counter()
    taken = await engine.claim(WorkerId("w"), ["default"], limit=_BATCH)
    spent = (time.perf_counter() - began) / _BATCH
    assert len(taken) == _BATCH
    await engine.settle([Settlement(task, Completed(b"null")) for task in taken])
    await engine.submit_many([_SUBMISSION] * _BATCH)
    await engine.sweep(limit=2 * _BATCH)
    return spent


def _lap(url: str, done: int, claims: float) -> Lap:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT pg_table_size(c), pg_indexes_size(c) FROM (SELECT 'fairlead.task'::regclass AS c) AS t"
        ).fetchone()
    assert row is not None
    return Lap(done, int(row[0]), int(row[1]), claims)


def show(laps: list[Lap]) -> str:
    return "\n".join(
        f"{lap.tasks:>9,} tasks  table {lap.table / 2**20:7.1f} MiB  indexes {lap.indexes / 2**20:7.1f} MiB  "
        f"claims {lap.claims:>8,.0f}/s"
        for lap in laps
    )


@pytest.mark.slow
async def test_the_tables_of_a_short_queue_stop_growing(own_url: str) -> None:
    """Autovacuum comes when the server finds the time, so it is kept out, and its work done at fixed moments."""
    with psycopg.connect(own_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE fairlead.task SET (autovacuum_enabled = false)")
        laps = await run(own_url, 40_000, 2_000, lambda: _vacuum(connection))
    assert laps[-1].table + laps[-1].indexes < 1.5 * (laps[3].table + laps[3].indexes), show(laps)


def _vacuum(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    connection.execute("VACUUM fairlead.task")


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    for server in started():
        aged, fresh = (server.url(server.copy_of_template()) for _ in range(2))
        print(show(asyncio.run(run(aged, count, 10_000))))
        # The machine may be slower now than when it began: what counts is a fresh database beside it.
        print(f"claims beside those of a fresh database: {asyncio.run(compare(aged, fresh, 10_000)):.2f}")
