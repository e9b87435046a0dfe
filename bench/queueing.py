"""The store and engine alone: submit, claim and settle, without handlers."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from pathlib import Path

from bench.measuring import Figure, figure, summed
from fairlead.admin.engine import AdminEngine
from fairlead.core.events import Completed
from fairlead.core.identity import WorkerId
from fairlead.core.submission import Submission
from fairlead.core.task import Priority, Task
from fairlead.engine.engine import Settlement
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.open import open_store

WORKER = WorkerId("bench")
BATCH = 100
TURN = 2_000
"""Tasks taken while the clock runs."""
TURNS = 3
"""For one figure."""
WARM_UP = 200
"""Tasks taken before: sessions prepare their statements."""
TURN_OF = 10_000
"""Tasks of which the critical ones, a quarter, are enough for one turn."""
PARAMETERS = b'{"video":"%s"}' % (b"x" * 86)
CAPABILITY_SETS = (frozenset[str](), frozenset({"gpu"}), frozenset({"gpu", "eu"}))
"""With four priorities: twelve lanes."""


def submissions(count: int) -> list[Submission]:
    """Tasks spread evenly over twelve lanes."""
    return [
        Submission(
            type="bench", parameters=PARAMETERS, priority=Priority(number % 4), requires=CAPABILITY_SETS[number % 3]
        )
        for number in range(count)
    ]


@contextmanager
def fresh_url(store: str) -> Iterator[str]:
    """The URL of an empty store of this kind; SQLite's file is on the disk that holds the working folder."""
    if store == "memory":
        yield "memory://"
    elif store == "sqlite":
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
            yield f"sqlite:///{folder}/tasks.db"
    else:
        # A server of the caller's: each use has a corner of its own, which is left behind.
        corner = "schema" if store.startswith("postgres") else "prefix"
        yield f"{store}{'&' if '?' in store else '?'}{corner}=bench{time.time_ns()}"


@asynccontextmanager
async def fresh_engine(store: str) -> AsyncIterator[AdminEngine]:
    """An engine over an empty store of this kind."""
    with fresh_url(store) as url:
        engine = AdminEngine(await open_store(url))
        try:
            yield engine
        finally:
            await engine.close()


async def measure(store: str, *, repeats: int, backlogs: tuple[int, ...]) -> list[Figure]:
    """All figures of one store."""
    return [
        await figure(store, "submit one by one, awaited", "tasks/s", lambda: one_by_one(store), repeats=repeats),
        await figure(store, "submit one by one, sync", "tasks/s", lambda: one_by_one_sync(store), repeats=repeats),
        await figure(store, "submit by 50 at once", "tasks/s", lambda: concurrently(store), repeats=repeats),
        await figure(
            store, "submit in bulk of 1,000", "tasks/s", lambda: in_bulk(store), repeats=repeats, target=40_000
        ),
        *await at_backlogs(store, repeats, backlogs),
    ]


async def one_by_one(store: str, count: int = 2_000) -> float:
    async with fresh_engine(store) as engine:
        wishes = submissions(count)
        start = time.perf_counter()
        for wish in wishes:
            await engine.submit(wish)
        return count / (time.perf_counter() - start)


async def one_by_one_sync(store: str, count: int = 2_000) -> float:
    with fresh_url(store) as url:
        return await asyncio.to_thread(_one_by_one_sync, url, count)


def _one_by_one_sync(url: str, count: int) -> float:
    engine = AdminEngine(run_inline(open_store(url, blocking=True)), batching=False)
    wishes = submissions(count)
    start = time.perf_counter()
    for wish in wishes:
        run_inline(engine.submit(wish))
    rate = count / (time.perf_counter() - start)
    run_inline(engine.close())
    return rate


async def concurrently(store: str, submitters: int = 50, each: int = 200) -> float:
    async with fresh_engine(store) as engine:

        async def submit() -> None:
            for wish in submissions(each):
                await engine.submit(wish)

        start = time.perf_counter()
        await asyncio.gather(*(submit() for _ in range(submitters)))
        return submitters * each / (time.perf_counter() - start)


async def in_bulk(store: str, count: int = 50_000) -> float:
    async with fresh_engine(store) as engine:
        return await fill(engine, count)


async def fill(engine: AdminEngine, count: int) -> float:
    wishes = submissions(1_000)
    start = time.perf_counter()
    for _ in range(count // 1_000):
        await engine.submit_many(wishes)
    return count / (time.perf_counter() - start)


async def at_backlogs(store: str, repeats: int, backlogs: tuple[int, ...]) -> list[Figure]:
    """Claim and settle at each backlog, and how the rate at the largest compares with that at the least."""
    rates = await backlog_rates(store, repeats, backlogs)
    figures = [
        summed(
            store,
            f"claim + settle by {BATCH} at {backlog:,} waiting",
            "tasks/s",
            values,
            # What a larger backlog may cost is said by the ratio.
            target=25_000 if backlog == backlogs[0] else None,
        )
        for backlog, values in rates.items()
    ]
    growth = [most / least for least, most in zip(rates[backlogs[0]], rates[backlogs[-1]], strict=True)]
    name = f"rate at {backlogs[-1]:,} waiting / at {backlogs[0]:,}"
    return [*figures, summed(store, name, "ratio", growth, target=0.8)]


async def backlog_rates(store: str, repeats: int, backlogs: tuple[int, ...]) -> dict[int, list[float]]:
    """Claim and settle at each backlog, in turn and several times over, so that a noisy minute hurts all alike.

    What filling and taking have left a server to do is done before each turn: it would take the disk and a core from
    whatever is measured.
    """
    rates: dict[int, list[float]] = {size: [] for size in backlogs}
    async with AsyncExitStack() as opened:
        waiting = [await opened.enter_async_context(aclosing(Backlog(store, size))) for size in backlogs]
        for _ in range(repeats):
            seconds = dict.fromkeys(backlogs, 0.0)
            for _ in range(TURNS):
                for backlog in waiting:
                    await backlog.renew()
                await asyncio.to_thread(rest, store)
                for backlog in waiting:
                    seconds[backlog.size] += await backlog.turn()
            for size in backlogs:
                rates[size].append(TURNS * TURN / seconds[size])
    return rates


class Backlog:
    """A store in which at least TURN_OF tasks wait, those of all lanes mixed as they came.

    What was taken is not put back. A claim takes critical ones, a quarter of the tasks on each page; put back, they
    would lie together on a quarter of the pages, all of them just written. A small backlog would soon consist of such,
    a large one never, and the two would no longer differ by their size alone. Before the critical ones run short
    another store is filled.
    """

    engine: AdminEngine
    """Of the store that was filled last."""

    def __init__(self, store: str, size: int) -> None:
        self.size = size
        self._store = store
        self._opened = AsyncExitStack()
        self._turns_left = 0

    async def aclose(self) -> None:
        await self._opened.aclose()

    async def renew(self) -> None:
        """Fill another store, unless enough of this one is left for a turn."""
        if not self._turns_left:
            await self._opened.aclose()
            self.engine = await self._opened.enter_async_context(fresh_engine(self._store))
            await fill(self.engine, self.size)
            self._turns_left = self.size // TURN_OF
        self._turns_left -= 1

    async def turn(self) -> float:
        """The seconds it takes to claim and settle TURN tasks."""
        await claim_and_settle(self.engine, WARM_UP)
        return await claim_and_settle(self.engine, TURN)


def rest(store: str) -> None:
    """Have a PostgreSQL server look at its new tables and write them out: it would do both in the minutes to come."""
    if not store.startswith("postgres"):
        return
    import psycopg

    from fairlead.storage.postgres.url import parse

    with psycopg.connect(parse(store).conninfo, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")
        with suppress(psycopg.errors.InsufficientPrivilege):
            connection.execute("CHECKPOINT")


async def claim_and_settle(engine: AdminEngine, count: int) -> float:
    """Seconds for so many tasks, as a worker does it: what was claimed is settled while the next is claimed."""
    start = time.perf_counter()
    held = await claim(engine)
    for _ in range(count // BATCH):
        held, _ = await asyncio.gather(claim(engine), engine.settle(settlements(held)))
    seconds = time.perf_counter() - start
    await engine.settle(settlements(held))
    return seconds


def settlements(tasks: Sequence[Task]) -> list[Settlement]:
    return [Settlement(task, Completed(b"42")) for task in tasks]


async def claim(engine: AdminEngine) -> list[Task]:
    return await engine.claim(WORKER, ["default"], limit=BATCH, capabilities={"gpu", "eu"})
