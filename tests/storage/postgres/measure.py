"""How fast the store is: `python -m tests.storage.postgres.measure [url]`.

Without a URL a server is started, durable as PostgreSQL is by default. Rates vary by a factor of two and more between
runs on a shared machine; compare them only with others of the same run. The processor time per task, of this process
and of the server's, is steadier.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from fairlead.admin.engine import AdminEngine
from fairlead.core.events import Completed
from fairlead.core.identity import WorkerId
from fairlead.core.submission import Submission
from fairlead.engine.engine import Settlement
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.postgres.store import open_postgres
from fairlead.testing.builders import NOW, some_tasks
from tests.servers.postgres import started
from tests.storage.postgres.emptying import empty

_PARAMETERS = b'{"to":"someone@example.org","template":"welcome","number":12345}'
WATCH: Stopwatch
_SUBMISSION = Submission(type="send", parameters=_PARAMETERS)


_TICK = 1e6 / os.sysconf("SC_CLK_TCK")


class Stopwatch:
    """Time passed, and processor time spent here and in the server."""

    def __init__(self, server: int) -> None:
        self._server = server
        self.start()

    def start(self) -> None:
        self._began, self._here, self._there = time.perf_counter(), time.process_time(), self._server_time()

    def read(self, count: int) -> str:
        passed, here = time.perf_counter() - self._began, time.process_time() - self._here
        there = self._server_time() - self._there
        return f"{count / passed:>9,.0f}/s   {here * 1e6 / count:7.1f} µs here {there / count:7.1f} µs there"

    def _server_time(self) -> float:
        """Microseconds of processor time of the server and its backends, also of those that have ended."""
        pids = [self._server, *map(int, Path(f"/proc/{self._server}/task/{self._server}/children").read_text().split())]
        spent = 0
        for pid in pids:
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
                spent += int(fields[11]) + int(fields[12])
                if pid == self._server:
                    spent += int(fields[13]) + int(fields[14])
        return spent * _TICK


def submit_one_by_one(url: str, count: int = 3_000) -> str:
    store = run_inline(open_postgres(url, blocking=True))
    engine = AdminEngine(store, batching=False)
    for _ in range(200):
        run_inline(engine.submit(_SUBMISSION))
    WATCH.start()
    for _ in range(count):
        run_inline(engine.submit(_SUBMISSION))
    answer = WATCH.read(count)
    run_inline(store.close())
    return answer


async def submit_async(url: str, submitters: int, count: int) -> str:
    store = await open_postgres(url)
    engine = AdminEngine(store)

    async def submitter(each: int) -> None:
        for _ in range(each):
            await engine.submit(_SUBMISSION)

    await asyncio.gather(*(submitter(20) for _ in range(submitters)))
    WATCH.start()
    await asyncio.gather(*(submitter(count // submitters) for _ in range(submitters)))
    answer = WATCH.read(count)
    await store.close()
    return answer


async def add_in_bulk(url: str, at_once: int, batches: int = 100, size: int = 1_000) -> str:
    store = await open_postgres(url)
    made = [some_tasks(size, parameters=_PARAMETERS) for _ in range(batches + at_once)]
    work = iter(made)

    async def adder(each: int) -> None:
        for _ in range(each):
            await store.add(next(work), now=NOW, bounds={})

    await asyncio.gather(*(adder(1) for _ in range(at_once)))
    WATCH.start()
    await asyncio.gather(*(adder(batches // at_once) for _ in range(at_once)))
    answer = WATCH.read(batches * size)
    await store.close()
    return answer


async def submit_in_bulk(url: str, at_once: int, batches: int = 60, size: int = 1_000) -> str:
    store = await open_postgres(url)
    engine = AdminEngine(store, batching=False)
    WATCH.start()

    async def submitter(each: int) -> None:
        for _ in range(each):
            await engine.submit_many([_SUBMISSION] * size)

    await asyncio.gather(*(submitter(batches // at_once) for _ in range(at_once)))
    answer = WATCH.read(batches * size)
    await store.close()
    return answer


async def claim_and_settle(url: str, pumps: int, backlog: int, limit: int = 100, count: int = 40_000) -> str:
    store = await open_postgres(url)
    engine = AdminEngine(store)
    for _ in range(backlog // 1_000):
        await engine.submit_many([_SUBMISSION] * 1_000)
    done = 0

    async def pump() -> None:
        nonlocal done
        while done < count and (tasks := await engine.claim(WorkerId("w"), ["default"], limit=limit)):
            done += len(tasks)
            await engine.settle([Settlement(task, Completed(b"null")) for task in tasks])

    WATCH.start()
    await asyncio.gather(*(pump() for _ in range(pumps)))
    answer = WATCH.read(done)
    await store.close()
    return answer


def server_of(url: str) -> int:
    with psycopg.connect(url) as connection:
        stat = Path(f"/proc/{connection.info.backend_pid}/stat").read_text()
    return int(stat.rpartition(") ")[2].split()[1])


def measure(url: str, words: list[str]) -> None:
    global WATCH
    WATCH = Stopwatch(server_of(url))
    runs: list[tuple[str, Callable[[], str]]] = [
        ("submit one by one, sync", lambda: submit_one_by_one(url)),
        ("submit one by one, async", lambda: asyncio.run(submit_async(url, 1, 2_000))),
        ("submit by 50 at once", lambda: asyncio.run(submit_async(url, 50, 30_000))),
        ("add 1,000 a call", lambda: asyncio.run(add_in_bulk(url, 1))),
        ("add 1,000 a call, 2 calls at once", lambda: asyncio.run(add_in_bulk(url, 2))),
        ("submit 1,000 a call", lambda: asyncio.run(submit_in_bulk(url, 1))),
        ("submit 1,000 a call, 2 calls at once", lambda: asyncio.run(submit_in_bulk(url, 2))),
        ("claim and settle by 100", lambda: asyncio.run(claim_and_settle(url, 1, 50_000))),
        ("claim and settle by 100, 2 pumps", lambda: asyncio.run(claim_and_settle(url, 2, 50_000))),
        ("claim and settle by 100, 3 pumps", lambda: asyncio.run(claim_and_settle(url, 3, 50_000))),
    ]
    for name, run in runs:
        if not words or any(word in name for word in words):
            empty(url, thoroughly=True)
            print(f"{name:<40} {run()}", flush=True)


@contextmanager
def a_database() -> Iterator[str]:
    servers = started()
    server = next(servers)
    try:
        yield server.url(server.copy_of_template())
    finally:
        servers.close()


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if word.startswith("postgres")]
    rest = [word for word in sys.argv[1:] if not word.startswith("postgres")]
    if given:
        measure(given[0], rest)
    else:
        with a_database() as found:
            measure(found, rest)
