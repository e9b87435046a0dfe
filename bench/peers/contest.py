"""What is measured of a contestant."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from bench.peers.environments import ROOT, Contestant, Environment
from bench.peers.processes import (
    Failed,
    Worker,
    end_group,
    fine_processor_seconds,
    last_line,
    processor_seconds,
    resident_memory,
    shared_memory,
    until,
)

LINE: Final = 31
"""The length of a line that a task writes."""
PATIENCE: Final = 120.0
"""Seconds within which a contestant has submitted what it was asked for."""
_COMPILED: Final = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(ROOT / "build" / "compiled")}
"""What is installed has been compiled: a process that compiles all it imports starts late and keeps the memory."""
_SETTLES: Final = 2.0
_IDLE: Final = 5.0
_FEW: Final = 100


class Contest:
    """One contestant on one empty server."""

    def __init__(self, environment: Environment, url: str, folder: Path) -> None:
        self._environment = environment
        self._log = folder / "log"
        self._variables = os.environ | {"BENCH_URL": url, "BENCH_LOG": str(self._log)} | _COMPILED

    @property
    def contestant(self) -> Contestant:
        return self._environment.contestant

    def ask(self, *arguments: object) -> object:
        """What the adapter answers; None if its queue cannot do this."""
        command = self._environment.command(*arguments)
        with subprocess.Popen(
            command,
            env=self._variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                said, complained = process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                end_group(process)
                raise Failed(f"it was not done within {PATIENCE:g} s") from None
        if process.returncode != 0:
            raise Failed(last_line(complained))
        return msgspec.json.decode(said.splitlines()[-1])

    def rate(self, command: str, count: int) -> float | None:
        """Tasks a second, submitted in this way."""
        seconds = self.ask(command, count)
        return None if seconds is None else count / float(str(seconds))

    def fill(self, count: int) -> None:
        """Submit this many tasks, as quickly as the queue allows."""
        for command in ("bulk", "crowd"):
            if self.ask(command, count) is not None:
                return
        raise Failed("it can neither submit in bulk nor from many coroutines")

    def drain(self, count: int, processes: int) -> tuple[float, float]:
        """The rate at which a full queue is run, and CPU seconds of the workers per 10,000 tasks.

        The first tenth is left out of the rate: it shows how long a worker takes to start.
        """
        self.fill(count)
        with self._workers(processes) as workers:
            until(1, self._lines, workers)
            spent, began = sum(processor_seconds(worker.pid) for worker in workers), self._lines()
            until(count, self._lines, workers)
            spent = sum(processor_seconds(worker.pid) for worker in workers) - spent
        moments = sorted(moment for _, moment in self._ran())
        first = len(moments) // 10
        seconds = (moments[-1] - moments[first]) / 1e9
        return (len(moments) - 1 - first) / seconds, spent / max(count - began, 1) * 10_000

    def latencies(self, count: int) -> list[float]:
        """Milliseconds from before each submit to the first line of its task, on a system that is idle and awake."""
        if self.contestant.server == "postgresql":
            # Tables are made by one process: two that try at once get in each other's way.
            self.ask("crowd", 0)
        with self._workers(1) as (worker,):
            try:
                moments = msgspec.convert(self.ask("pace", count), list[int])
            except Failed:
                worker.check()
                raise
            until(count + 1, self._lines, [worker])
        began = dict(self._ran())
        return [(began[number] - sent) / 1e6 for number, sent in enumerate(moments)]

    def overtaken(self, low: int, high: int) -> int | None:
        """How many tasks of low priority ran before the last of high priority, which were submitted after them."""
        if self.ask("mixed", low, high) is None:
            return None
        seen = urgent = before = 0

        def look() -> int:
            nonlocal seen, urgent, before
            for at, (number, _) in enumerate(self._ran(seen), seen):
                seen = at + 1
                if number >= low:
                    urgent += 1
                    before = at + 1 - urgent
            return urgent

        with self._workers(1) as workers:
            until(high, look, workers)
        return before

    def idle(self) -> tuple[float, float, float]:
        """MB of a worker with its children and of its process alone, and percent of a core, after its first task."""
        self.fill(1)
        with self._workers(1) as (worker,):
            until(1, self._lines, [worker])
            time.sleep(_SETTLES)
            before = fine_processor_seconds(worker.pid)
            time.sleep(_IDLE)
            spent = fine_processor_seconds(worker.pid) - before
            worker.check()
            return shared_memory(worker.pid), resident_memory(worker.pid), spent / _IDLE * 100

    def bytes_waiting(self, count: int, size: Callable[[], int]) -> float:
        """Bytes that a waiting task takes; what the first few take is left out, with all that is there without any."""
        self.fill(_FEW)
        before = size()
        self.fill(count)
        return (size() - before) / count

    @contextlib.contextmanager
    def _workers(self, processes: int) -> Iterator[list[Worker]]:
        with contextlib.ExitStack() as stack:
            workers = []
            for _ in range(processes):
                output = stack.enter_context(tempfile.TemporaryFile())
                workers.append(Worker(self._environment.command("work"), self._variables, output))
                stack.callback(workers[-1].stop)
            yield workers

    def _lines(self) -> int:
        try:
            return self._log.stat().st_size // LINE
        except FileNotFoundError:
            return 0

    def _ran(self, first: int = 0) -> list[tuple[int, int]]:
        """Which tasks ran, in their order, and when each began; those after the first so many."""
        count = self._lines() - first
        if count <= 0:
            return []
        with self._log.open("rb") as log:
            log.seek(first * LINE)
            lines = [line.split() for line in log.read(count * LINE).splitlines()]
        return [(int(number), int(moment)) for number, moment in lines]


@contextlib.contextmanager
def contesting(environment: Environment, url: str) -> Iterator[Contest]:
    """A contest whose log is in memory and is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="fl-bench-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        yield Contest(environment, url, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
