"""Many tasks through a short queue: the tables stop growing and claims stay as fast.

`python -m tests.storage.postgres.test_bloat [tasks]` is the long form: 2,000,000 tasks by default.
"""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median

import psycopg
import pytest
from msgspec import Struct

from fairlead.core.events import Completed
from fairlead.core.identity import WorkerId
from fairlead.core.settings import Retention, Rules, Settings
from fairlead.core.submission import Submission
from fairlead.engine.engine import Engine, Settlement
from fairlead.storage.postgres.store import open_postgres
from tests.servers.postgres import started

_BATCH = 500


class Lap(Struct, frozen=True):
    """One tenth of the way."""

    tasks: int
    table: int
    """Bytes, with TOAST."""
    indexes: int
    claims: float
    """Tasks claimed in a second, of the time spent in claims."""


async def run(url: str, tasks: int, depth: int) -> list[Lap]:
    """Keep `depth` tasks waiting while so many pass; completed ones are forgotten at once, by the sweep."""
    store = await open_postgres(url)
    engine = Engine(store, Settings(rules=Rules(retention=Retention(completed=0))))
    submission = Submission(type="send", parameters=b'{"to":"someone@example.org"}')
    for _ in range(depth // _BATCH):
        await engine.submit_many([submission] * _BATCH)
    laps: list[Lap] = []
    done = 0
    while len(laps) < 10:
        spent: list[float] = []
        while done < tasks * (len(laps) + 1) // 10:
            began = time.perf_counter()
            taken = await engine.claim(WorkerId("w"), ["default"], limit=_BATCH)
            spent.append((time.perf_counter() - began) / len(taken))
            await engine.settle([Settlement(task, Completed(b"null")) for task in taken])
            await engine.submit_many([submission] * len(taken))
            await engine.sweep(limit=2 * _BATCH)
            done += len(taken)
        laps.append(_lap(url, done, 1 / median(spent)))
    await store.close()
    return laps


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
    laps = await run(own_url, 40_000, 2_000)
    # Autovacuum comes when it comes, so only the order of magnitude is certain in a short run.
    assert laps[-1].table + laps[-1].indexes < 4 * (laps[3].table + laps[3].indexes), show(laps)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    for server in started():
        print(show(asyncio.run(run(server.url(server.copy_of_template()), count, 10_000))))
