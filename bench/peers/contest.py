"""What is measured of a contestant."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from bench.peers.environments import Environment

LINE: Final = 31
"""The length of a line that a task writes."""
PATIENCE: Final = 300.0
_SETTLES: Final = 2.0
_STALLS: Final = 30.0
"""Seconds without progress after which a worker is given up."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """A contestant did not do what was asked of it, and what it said."""


class Contest:
    """One contestant on one empty server."""

    def __init__(self, environment: Environment, url: str) -> None:
        self._environment = environment
        self._log = Path(tempfile.mkdtemp(dir=_memory_folder())) / "log"
        self._variables = os.environ | {"BENCH_URL": url, "BENCH_LOG": str(self._log)}

    def ask(self, *arguments: object) -> object:
        """What the adapter answers; None if its queue cannot do this."""
        done = subprocess.run(
            self._environment.command(*arguments),
            env=self._variables,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        if done.returncode != 0:
            raise Failed(_last_line(done.stderr))
        return msgspec.json.decode(done.stdout.splitlines()[-1])

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

        The first tenth is left out: it shows how long the worker takes to start.
        """
        self.fill(count)
        with self._workers(processes) as workers:
            _until(lambda: self._lines() > 0, lambda: self._lines())
            spent, began = sum(map(_processor_seconds, workers)), self._lines()
            _until(lambda: self._lines() >= count, lambda: self._lines())
            spent = sum(map(_processor_seconds, workers)) - spent
        moments = sorted(moment for _, moment in self._ran())
        first = len(moments) // 10
        seconds = (moments[-1] - moments[first]) / 1e9
        return (len(moments) - 1 - first) / seconds, spent / (count - began) * 10_000

    def latencies(self, count: int) -> list[float]:
        """Milliseconds from before each submit to the first line of its task, on a system that is idle."""
        with self._workers(1):
            time.sleep(_SETTLES)
            moments = msgspec.convert(self.ask("pace", count), list[int])
            _until(lambda: self._lines() >= count, lambda: self._lines())
        began = dict(self._ran())
        return [(began[number] - sent) / 1e6 for number, sent in enumerate(moments)]

    def overtaken(self, low: int, high: int) -> int | None:
        """How many tasks of low priority ran before the last of high priority, which were submitted after them."""
        if self.ask("mixed", low, high) is None:
            return None
        with self._workers(1):
            _until(lambda: self._lines() >= low + high, lambda: self._lines())
        numbers = [number for number, _ in self._ran()]
        last = max(at for at, number in enumerate(numbers) if number >= low)
        return last + 1 - high

    def idle(self, seconds: float = 5.0) -> tuple[float, float]:
        """MB of memory and percent of a core that an idle worker takes."""
        with self._workers(1) as (worker,):
            time.sleep(_SETTLES)
            before = _processor_seconds(worker)
            time.sleep(seconds)
            return _memory(worker), (_processor_seconds(worker) - before) / seconds * 100

    @contextlib.contextmanager
    def _workers(self, processes: int) -> Iterator[list[int]]:
        with tempfile.TemporaryFile() as output:
            workers = [
                subprocess.Popen(
                    self._environment.command("work"),
                    env=self._variables,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
                for _ in range(processes)
            ]
            try:
                yield [worker.pid for worker in workers]
            finally:
                for worker in workers:
                    _stop(worker)

    def _lines(self) -> int:
        try:
            return self._log.stat().st_size // LINE
        except FileNotFoundError:
            return 0

    def _ran(self) -> list[tuple[int, int]]:
        """Which tasks ran, in their order, and when each began."""
        lines = [line.split() for line in self._log.read_text().splitlines()]
        return [(int(number), int(moment)) for number, moment in lines]


def _until(reached: Callable[[], bool], progress: Callable[[], int]) -> None:
    seen, since = progress(), time.monotonic()
    while not reached():
        time.sleep(0.01)
        if (now := progress()) != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > _STALLS:
            raise Failed(f"its worker stopped at {seen} tasks")


def _stop(worker: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        worker.wait(10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def family(process: int) -> list[int]:
    """A process and all that descend from it."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return []
    return [process, *(each for child in children for each in family(int(child)))]


def _memory(process: int) -> float:
    """MB of memory, with what processes share counted once."""
    rollups = [Path(f"/proc/{each}/smaps_rollup").read_text() for each in family(process)]
    return sum(int(rollup.partition("\nPss:")[2].split()[0]) for rollup in rollups) * 1024 / 1e6


def _processor_seconds(process: int) -> float:
    fields = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split() for each in family(process)]
    return sum(int(spent[11]) + int(spent[12]) for spent in fields) / _TICKS


def _memory_folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "it said nothing")


def percentile(values: list[float], share: int) -> float:
    """The value below which so many percent lie."""
    return statistics.quantiles(values, n=100)[share - 1]
