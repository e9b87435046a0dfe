"""A whole worker: no-op tasks with results kept, the latency of an idle system, and what an idle worker costs."""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.measuring import Figure, summed

IDLE_SECONDS = 10.0
_CHILD = Path(__file__).with_name("worker_child.py")


async def measure(store: str, *, repeats: int) -> list[Figure]:
    """All figures of one store that outlives a process."""
    rates, costs, typical, worst = [], [], [], []
    for _ in range(repeats):
        rate, cost = await asyncio.to_thread(run_full_queue, store)
        rates.append(rate)
        costs.append(cost)
        latencies = await asyncio.to_thread(start_latencies, store)
        typical.append(statistics.median(latencies) * 1_000)
        worst.append(statistics.quantiles(latencies, n=100)[98] * 1_000)
    memory, processor = await asyncio.to_thread(idle, store)
    return [
        summed(store, "run a full queue, 1 process", "tasks/s", rates, target=8_000),
        summed(store, "worker CPU per 10,000 tasks", "s", costs),
        summed(store, "submit to start, idle, p50", "ms", typical, target=5, at_most=True),
        summed(store, "submit to start, idle, p99", "ms", worst),
        summed(store, "idle worker, memory", "MB", [memory], target=45, at_most=True),
        summed(store, "idle worker, share of a core", "%", [processor], target=0.5, at_most=True),
    ]


def run_full_queue(store: str, count: int = 40_000) -> tuple[float, float]:
    """The rate of a worker process that finds a full queue, and its CPU seconds per 10,000 tasks."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        _child(store, folder, "fill", str(count))
        rate, cost = _child(store, folder, "drain", str(count)).split()
        return float(rate), float(cost)


def start_latencies(store: str, count: int = 200) -> list[float]:
    """Seconds from before the submit in one process to the handler's first line in another, one task at a time."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        worker = _start(store, folder)
        try:
            output = _child(store, folder, "pace", str(count))
        finally:
            _stop(worker)
        return [float(line) for line in output.split()]


def idle(store: str) -> tuple[float, float]:
    """An idle worker's memory in MB and its share of a core in percent."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        worker = _start(store, folder)
        try:
            time.sleep(2)
            before = _processor_seconds(worker.pid)
            time.sleep(IDLE_SECONDS)
            spent = _processor_seconds(worker.pid) - before
            return _resident(worker.pid), spent / IDLE_SECONDS * 100
        finally:
            _stop(worker)


def _start(store: str, folder: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(_CHILD), store, folder, "work"]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    worker.stdout.readline()
    return worker


def _stop(worker: subprocess.Popen[str]) -> None:
    worker.terminate()
    worker.wait(30)
    assert worker.stdout is not None
    worker.stdout.close()


def _child(store: str, folder: str, *arguments: str) -> str:
    command = [sys.executable, str(_CHILD), store, folder, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _resident(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
