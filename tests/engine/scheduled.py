"""What tasks that are not due cost, and how soon they are ready when they are: measured, on any store.

python -m tests.engine.scheduled URL [COUNT]

Fills the store with COUNT tasks (1,000,000 if not said) that are due tomorrow, times sweeps in which nothing is due,
and then lets a real sweeper meet 1,000 tasks that become due within the next seconds.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

from fairlead.admin.engine import AdminEngine
from fairlead.admin.sweeper import Sweeper
from fairlead.core.instant import DAY, SECOND
from fairlead.core.submission import Submission
from fairlead.engine.events.types import Happening, Occurrence
from fairlead.storage.open import open_store

_BATCH = 5_000
_SWEEPS = 200
_SOON = 1_000
_SPREAD = 5 * SECOND


async def fill(engine: AdminEngine, count: int) -> None:
    """Submit tasks that are due tomorrow."""
    for first in range(0, count, _BATCH):
        size = min(_BATCH, count - first)
        await engine.submit_many([Submission(type="later", delay=DAY + first + n) for n in range(size)])


async def idle_sweeps(engine: AdminEngine) -> list[float]:
    """How long sweeps take in which nothing is due, in milliseconds."""
    sweeper, times = Sweeper(engine), []
    for _ in range(_SWEEPS):
        start = time.perf_counter()
        assert await sweeper.once() == 0
        times.append(1e3 * (time.perf_counter() - start))
    return times


async def lateness(engine: AdminEngine) -> list[float]:
    """How long after they were due tasks became ready, in seconds, under a real sweeper."""
    late: list[float] = []
    done = asyncio.Event()

    def heard(occurrence: Occurrence) -> None:
        if occurrence.happening is Happening.READY:
            late.append((engine.clock.now() - occurrence.task.status.ready_at) / SECOND)
        if len(late) == _SOON:
            done.set()

    engine.observe(heard)
    now = engine.clock.now()
    due = [now + SECOND + n * _SPREAD // _SOON for n in range(_SOON)]
    await engine.submit_many([Submission(type="soon", run_at=at) for at in due])
    sweeping = asyncio.ensure_future(Sweeper(engine).run())
    await done.wait()
    sweeping.cancel()
    return late


async def measure(url: str, count: int) -> None:
    engine = AdminEngine(await open_store(url))
    await engine.follow_clock()
    for filled in sorted({0, min(1_000, count), count}):
        start = time.perf_counter()
        await fill(engine, filled)
        took = time.perf_counter() - start
        times = sorted(await idle_sweeps(engine))
        middle, most = statistics.median(times), times[int(0.99 * len(times))]
        print(f"{filled:>9,} not due (stored in {took:.1f} s): a sweep takes {middle:.2f} ms, p99 {most:.2f} ms")
    late = sorted(await lateness(engine))
    print(
        f"{len(late):,} became due: ready after {statistics.median(late):.2f} s in the middle, {late[-1]:.2f} s at most"
    )
    await engine.close()


if __name__ == "__main__":
    asyncio.run(measure(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000))
