"""Worker processes to be killed, stopped and asked to leave, and what they wrote down."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from fairlead.admin.engine import AdminEngine
from fairlead.app.connection import Connection
from fairlead.core.task import State, Task
from fairlead.storage.values import Filter
from tests.e2e import fleet

ROOT: Final = Path(__file__).parents[2]
PATIENCE: Final = 90.0
"""How long anything that is waited for may take, in seconds."""


def eventually(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Look until a condition holds."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come about within {patience:g} s"
        time.sleep(0.01)


class Gate:
    """A named pipe at which a handler of the fleet blocks until it is opened."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "gate")
        os.mkfifo(self.path)

    def open(self) -> None:
        """Let the handler that waits go on; returns when there is one."""
        os.close(os.open(self.path, os.O_WRONLY))


class WorkerProcess:
    """A worker started as a user starts it."""

    def __init__(
        self,
        folder: Path,
        store: str,
        name: str,
        *arguments: str,
        lease: int = 3,
        app: str = "tests.e2e.fleet:app",
    ) -> None:
        self.log_file = folder / f"{name}.log"
        self.name = name
        with self.log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fairlead", "worker", app, *arguments],
                cwd=ROOT,
                env=os.environ
                | {
                    "FLEET_LEDGER": str(folder / "ledger"),
                    "FAIRLEAD_STORE": store,
                    "FAIRLEAD_LOG_LEVEL": "warning",
                    "FLEET_LEASE": str(lease),
                },
                stderr=log,
                stdin=subprocess.DEVNULL,
                # A group of its own, so that a signal can be sent to all of it.
                process_group=0,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def send(self, number: signal.Signals) -> None:
        assert self.running, f"{self.name} has left already: {self.log}"
        self._process.send_signal(number)

    def wait(self, seconds: float = PATIENCE) -> int:
        """The exit code."""
        return self._process.wait(seconds)

    def end(self) -> None:
        if self.running:
            self._process.kill()
            self._process.wait(PATIENCE)

    def children(self) -> list[int]:
        """The processes that this one started: its keeper and its cells."""
        lists = Path(f"/proc/{self.pid}/task").glob("*/children")
        return [int(child) for file in lists for child in file.read_text().split()]

    def keeper(self) -> int:
        """The keeper's process, as soon as there is one."""
        found: list[int] = []

        def look() -> bool:
            found[:] = [child for child in self.children() if b"fairlead.worker.keeper.process" in command_of(child)]
            return bool(found)

        eventually(look, "a keeper")
        return found[0]


def command_of(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def is_gone(process: int) -> bool:
    """Whether a process is no more; one that only waits to be noticed by its parent is no more either."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


class Line(Struct, frozen=True):
    """One line of the ledger."""

    event: str
    number: int
    attempt: int
    process: int
    moment: float


class Yard:
    """A store, its workers, and a folder with their ledger."""

    def __init__(self, folder: Path, store: str, journal: str | None = None) -> None:
        self.folder = folder
        self.store = store
        self.journal = journal
        self.lease = 3
        """The lease of its workers, in seconds: short where leases are to end, long where they are not."""
        self.workers: list[WorkerProcess] = []

    @contextmanager
    def manned(self) -> Iterator[Yard]:
        """No worker outlives the test."""
        try:
            yield self
        finally:
            for worker in self.workers:
                worker.end()

    def hire(self, *arguments: str) -> WorkerProcess:
        if self.journal is not None:
            arguments = ("--journal", self.journal, *arguments)
        worker = WorkerProcess(self.folder, self.store, f"worker-{len(self.workers) + 1}", *arguments, lease=self.lease)
        self.workers.append(worker)
        return worker

    @asynccontextmanager
    async def engine(self) -> AsyncIterator[AdminEngine]:
        connection = Connection(self.store, fleet.SETTINGS, journal=self.journal)
        try:
            yield await connection.engine()
        finally:
            await connection.close()

    def tasks(self) -> list[Task]:
        """All tasks, oldest first."""

        async def read() -> list[Task]:
            async with self.engine() as engine:
                return await engine.find(Filter(), limit=1_000_000, newest_first=False)

        return asyncio.run(read())

    def counts(self) -> dict[State, int]:
        """How many tasks are in each state."""

        async def read() -> dict[State, int]:
            async with self.engine() as engine:
                lanes = (await engine.store.tally()).lanes
            return {state: sum(lane.counts.get(state, 0) for lane in lanes) for state in State}

        return asyncio.run(read())

    def present(self) -> int:
        """How many workers have made themselves known."""

        async def read() -> int:
            async with self.engine() as engine:
                return len(await engine.worker_records.workers())

        return asyncio.run(read())

    def until_all_ended(self, patience: float = PATIENCE) -> None:
        deadline = time.monotonic() + patience
        while (counts := self.counts()) and any(count for state, count in counts.items() if not state.ended):
            assert time.monotonic() < deadline, f"after {patience:g} s there are {counts}"
            assert all(worker.running for worker in self.workers[-1:]), self.workers[-1].log
            time.sleep(0.1)

    def ledger(self) -> list[Line]:
        file = self.folder / "ledger"
        if not file.exists():
            return []
        words = [line.split() for line in file.read_text().splitlines()]
        return [Line(word[0], int(word[1]), int(word[2]), int(word[3]), float(word[4])) for word in words]

    def starts(self) -> list[Line]:
        return [line for line in self.ledger() if line.event == "start"]

    def running_in(self, process: int) -> set[int]:
        """The numbers of the tasks that a process has started and not ended."""
        lines = [line for line in self.ledger() if line.process == process]
        ended = {(line.number, line.attempt) for line in lines if line.event == "end"}
        return {line.number for line in lines if line.event == "start" and (line.number, line.attempt) not in ended}
