"""A campaign of kills: producers and workers on one store, of which one process after another is killed.

`python -m tests.chaos.campaign.campaign --kills 100` runs one on every store and prints the table of
docs/benchmarks/kills.md; `make kills` is the same, and `--output FILE` writes it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict

from fairlead.admin.engine import AdminEngine
from fairlead.core.task import Priority, State, Task
from fairlead.storage.journal.duties import Flusher
from fairlead.storage.journal.store import JournalStore
from fairlead.storage.open import open_store
from fairlead.storage.protocol import Sharing, Store
from fairlead.storage.values import LineKeys
from fairlead.testing.reference import expected_standing, standing
from fairlead.testing.steps import contents
from tests.chaos.campaign.checker import Counts, Faults, check, count
from tests.chaos.campaign.history import Asked, Ended, History, Line, read_lines
from tests.chaos.children import ROOT, Child
from tests.e2e.processes import command_of, is_gone
from tests.servers import postgres, redis
from tests.servers.stores import Place
from tests.storage.redis.orphans import assert_no_orphans

PATIENCE: Final = 300.0
"""How long anything that is waited for may take, in seconds."""
_WORKERS: Final = 3
_PRODUCERS: Final = 2
_BETWEEN: Final = 60
"""How many attempts end between two kills."""
_PREFIX: Final = "campaign"


class Site(Struct, frozen=True):
    """Where a campaign is held."""

    name: str
    place: Place
    servers: tuple[redis.RedisServer, ...] = ()
    """The Redis servers, which are looked through for orphans at the end."""


class Report(Struct, frozen=True):
    """How a campaign went."""

    store: str
    kills: dict[str, int]
    counts: Counts
    faults: Faults
    seconds: float


class Worker:
    """`fairlead worker`, started as a user starts it."""

    def __init__(self, folder: Path, place: Place, number: int) -> None:
        self._log = folder / f"worker-{number}.log"
        arguments = ["worker", "tests.chaos.campaign.app:app", "--concurrency", "10", "--store", place.url]
        journal = [] if place.journal is None else ["--journal", place.journal]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fairlead", *arguments, *journal],
                cwd=ROOT,
                env=os.environ | {"CAMPAIGN_LINES": str(folder / "lines"), "FAIRLEAD_LOG_LEVEL": "warning"},
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def children(self, word: bytes = b"") -> list[int]:
        """The processes that it started, whose command has this word in it."""
        found: list[int] = []
        for file in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            with suppress(OSError):
                found += map(int, file.read_text().split())
        return [child for child in found if word in command_of(child)]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Campaign:
    """The processes of one campaign and what is known of them."""

    def __init__(self, folder: Path, site: Site, *, fair: bool = False) -> None:
        """`fair` has the tenants of the tasks share the queue."""
        self._folder = folder
        self._site = site
        self._fair = fair
        self._chance = random.Random(site.name)
        self._workers: list[Worker] = []
        self._producers: list[Child] = []
        self._hired = 0
        self._killed: Counter[str] = Counter()
        self._orphans: set[int] = set()
        self._read = 0
        self._ended = 0

    @property
    def _lines(self) -> Path:
        return self._folder / "lines"

    def run(self, kills: int) -> Report:
        """Kill so many processes amid their work, let the rest come to its end, and check what happened."""
        began = time.monotonic()
        self._lines.touch()
        if self._fair:
            asyncio.run(self._share())
        try:
            self._workers = [self._worker() for _ in range(_WORKERS)]
            self._producers = [self._producer(number) for number in range(_PRODUCERS)]
            victims = (self._kill_worker, self._kill_cell, self._kill_producer, self._kill_keeper)
            for number in range(kills):
                self._until_ended(_BETWEEN)
                victims[number % len(victims)]()
            history = self._conclude()
        finally:
            for worker in self._workers:
                worker.end()
            for producer in self._producers:
                if producer.running:
                    producer.kill()
        return Report(self._site.name, dict(self._killed), count(history), check(history), time.monotonic() - began)

    async def _share(self) -> None:
        engine = AdminEngine(await self._open())
        try:
            await engine.queues.change("default", fair="tenant")
        finally:
            await engine.close()

    def _worker(self) -> Worker:
        self._hired += 1
        return Worker(self._folder, self._site.place, self._hired)

    def _producer(self, first: int) -> Child:
        place = self._site.place
        return Child("tests.chaos.campaign.producer", place.url, place.journal or "-", self._lines, first, _PRODUCERS)

    def _until_ended(self, more: int) -> None:
        """Until so many attempts more have come to their end."""
        before = self._ended
        self._eventually(lambda: self._look() >= before + more, f"{more} more ends of attempts")

    def _look(self) -> int:
        """How many attempts have ended, by the lines that have come since the last look."""
        with self._lines.open("rb") as lines:
            lines.seek(self._read)
            news = lines.read()
        whole = news[: news.rfind(b"\n") + 1]
        self._read += len(whole)
        self._ended += sum(line.startswith(Ended.__name__.encode()) for line in whole.splitlines())
        return self._ended

    def _kill_worker(self) -> None:
        at = self._chance.randrange(_WORKERS)
        self._orphans |= set(self._workers[at].children())
        self._workers[at].end()
        self._workers[at] = self._worker()
        self._killed["worker"] += 1

    def _kill_cell(self) -> None:
        self._kill_child(b"fairlead.worker.isolation.child", "isolated child")

    def _kill_keeper(self) -> None:
        self._kill_child(b"fairlead.worker.keeper.process", "keeper")

    def _kill_child(self, word: bytes, name: str) -> None:
        found: list[int] = []

        def there_is_one() -> bool:
            found[:] = [child for worker in self._workers for child in worker.children(word)]
            return bool(found)

        self._eventually(there_is_one, f"a {name} to kill")
        with suppress(ProcessLookupError):
            os.kill(self._chance.choice(found), signal.SIGKILL)
            self._killed[name] += 1

    def _kill_producer(self) -> None:
        at = self._chance.randrange(_PRODUCERS)
        self._producers[at].kill()
        asked = [line.number for line in read_lines(self._lines) if isinstance(line, Asked)]
        following = max((number for number in asked if number % _PRODUCERS == at), default=at - _PRODUCERS)
        self._producers[at] = self._producer(following + _PRODUCERS)
        self._killed["producer"] += 1

    def _conclude(self) -> History:
        for producer in self._producers:
            producer.stop()
        tasks: list[Task] = []

        def all_have_ended() -> bool:
            tasks[:] = asyncio.run(self._tasks())
            return all(task.state.ended for task in tasks)

        with suppress(AssertionError):  # What is stuck is for the checker to say.
            self._eventually(all_have_ended, "the end of all tasks", pause=0.5)
        leaks: list[str] = []
        for worker in self._workers:
            self._orphans |= set(worker.children())
            worker.process.terminate()
            if (code := worker.process.wait(PATIENCE)) != 0:
                leaks.append(f"a worker left with {code}: {worker.log[-500:]}")
        with suppress(AssertionError):
            self._eventually(lambda: all(map(is_gone, self._orphans)), "the end of what killed workers had started")
        leaks += [f"process {child}" for child in self._orphans if not is_gone(child)]
        tasks = asyncio.run(self._tasks())
        leaks += asyncio.run(self._store_leaks())
        lines: list[Line] = list(read_lines(self._lines))
        return History(lines=lines, tasks=tasks, leaks=leaks + self._key_leaks())

    async def _tasks(self) -> list[Task]:
        store = await self._open()
        try:
            return await contents(store)
        finally:
            await store.close()

    async def _store_leaks(self) -> list[str]:
        """Counts that are not those of the tasks, and leases of tasks that have ended."""
        store = await self._open()
        try:
            if isinstance(store, JournalStore):
                await Flusher(store.hot, store.journal).all()
            tasks = await contents(store)
            tally = await store.tally()
            lines = [await sharing(store).line_keys("default", each, most=9) for each in Priority] if self._fair else []
        finally:
            await store.close()
        leaks = [f"{task.id} has a lease" for task in tasks if task.status.lease and task.state is not State.EXECUTING]
        leaks += [f"a line without tasks has {line}" for line in lines if line != LineKeys()]
        if standing(tally) != expected_standing(tasks):
            leaks.append(f"the store counts {standing(tally)}, and holds {expected_standing(tasks)}")
        return leaks

    async def _open(self) -> Store:
        return await open_store(self._site.place.url, journal=self._site.place.journal)

    def _key_leaks(self) -> list[str]:
        if not self._site.servers or self._site.place.journal is not None:
            return []
        try:
            assert_no_orphans(self._site.servers, _PREFIX)
        except AssertionError as error:
            return [str(error)]
        return []

    def _eventually(self, condition: Callable[[], bool], what: str, pause: float = 0.02) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            gone = [worker for worker in self._workers if worker.process.poll() is not None]
            assert not gone, f"a worker ended by itself: {gone[0].log[-2_000:]}"
            assert time.monotonic() < deadline, f"{what} did not come about within {PATIENCE:g} s"
            time.sleep(pause)


def sharing(store: Store) -> Sharing:
    assert isinstance(store, Sharing)
    return store


STORES: Final = ("sqlite", "redis", "cluster", "postgresql", "journal")


@contextmanager
def site(name: str, folder: Path) -> Iterator[Site]:
    """A store of each kind, on servers of its own."""
    match name:
        case "sqlite":
            yield Site(name, Place(f"sqlite:///{folder}/tasks.db"))
        case "redis":
            for server in redis.started_single():
                yield Site(name, Place(server.url(prefix=_PREFIX)), (server,))
        case "cluster":
            for cluster in redis.started_cluster():
                yield Site(name, Place(cluster.url(prefix=_PREFIX)), tuple(cluster.servers))
        case "postgresql":
            for database in postgres.started():
                yield Site(name, Place(database.url(database.copy_of_template())))
        case "journal":
            for database in postgres.started():
                for server in redis.started_single():
                    behind = database.url(database.create_database())
                    yield Site(name, Place(server.url(prefix=_PREFIX), behind), (server,))
        case _:
            raise ValueError(f"no store is called {name!r}; use one of {', '.join(STORES)}")


def hold(name: str, kills: int, *, fair: bool = False) -> Report:
    """A campaign on a store of this kind; `fair` has tenants take turns."""
    with tempfile.TemporaryDirectory(prefix="fl-campaign-") as folder, site(name, Path(folder)) as found:
        return Campaign(Path(folder), found, fair=fair).run(kills)


def table(reports: list[Report]) -> str:
    """The reports as Markdown."""
    kinds = {
        "worker": "workers",
        "isolated child": "isolated children",
        "keeper": "keepers",
        "producer": "producers",
    }
    names = list(Faults.__struct_fields__)
    heads = [
        "store",
        *(f"{several} killed" for several in kinds.values()),
        "acknowledged",
        "recovered",
        "attempts",
        "crashes",
    ]
    rows = [[*heads, *(name.replace("_", " ") for name in names), "seconds"]]
    rows.append(["---"] + ["--:"] * (len(rows[0]) - 1))
    for report in reports:
        counts, faults = asdict(report.counts), asdict(report.faults)
        figures = [*(report.kills.get(kind, 0) for kind in kinds), *counts.values(), *map(len, faults.values())]
        rows.append([report.store, *(f"{figure:,}" for figure in figures), f"{report.seconds:.0f}"])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--store", action="append", choices=STORES)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    reports = []
    for name in given.store or STORES:
        report = hold(name, given.kills)
        reports.append(report)
        for fault, seen in asdict(report.faults).items():
            for one in seen[:20]:
                print(f"{name}: {fault}: {one}", file=sys.stderr)
    text = table(reports)
    print(text)
    if given.output is not None:
        given.output.write_text(text)
    if any(report.faults for report in reports):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
