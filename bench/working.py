"""A whole worker: no-op tasks with results kept, the latency of an idle system, and what an idle worker costs."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.measuring import Figure, summed
from bench.queueing import fresh_url

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
    added = await asyncio.to_thread(overhead, store, 8 if repeats > 1 else 1)
    memory, processor = await asyncio.to_thread(idle, store)
    return [
        summed(store, "run a full queue, 1 process", "tasks/s", rates, target=8_000),
        summed(store, "worker CPU per 10,000 tasks", "s", costs),
        summed(store, "CPU that metrics and logs at INFO add", "%", added, target=10, at_most=True),
        summed(store, "submit to start, idle, p50", "ms", typical, target=5, at_most=True),
        summed(store, "submit to start, idle, p99", "ms", worst),
        summed(store, "idle worker with its keeper, memory", "MB", [memory], target=45, at_most=True),
        summed(store, "idle worker with its keeper, share of a core", "%", [processor], target=0.5, at_most=True),
    ]


def run_full_queue(store: str, count: int = 40_000, *, observed: bool = False) -> tuple[float, float]:
    """The rate of a worker process that finds a full queue, and its CPU seconds per 10,000 tasks."""
    with fresh_url(store) as url:
        _child(url, "fill", str(count))
        rate, cost = _child(url, "observed" if observed else "drain", str(count)).split()
        return float(rate), float(cost)


def overhead(store: str, rounds: int) -> list[float]:
    """How much more CPU a worker takes that counts and logs, in percent: of neighbouring runs, in turn."""
    added = []
    for number in range(rounds):
        costs = {}
        for observed in (False, True) if number % 2 else (True, False):
            costs[observed] = run_full_queue(store, observed=observed)[1]
        added.append((costs[True] / costs[False] - 1) * 100)
    return added


def start_latencies(store: str, count: int = 200) -> list[float]:
    """Seconds from before the submit in one process to the handler's first line in another, one task at a time."""
    with fresh_url(store) as url:
        worker = _start(url)
        try:
            output = _child(url, "pace", str(count))
        finally:
            _stop(worker)
        return [float(line) for line in output.split()]


def idle(store: str) -> tuple[float, float]:
    """An idle worker's memory in MB and its share of a core in percent."""
    with fresh_url(store) as url:
        worker = _start(url)
        try:
            time.sleep(2)
            before = _processor_seconds(worker.pid)
            time.sleep(IDLE_SECONDS)
            spent = _processor_seconds(worker.pid) - before
            return _memory(worker.pid), spent / IDLE_SECONDS * 100
        finally:
            _stop(worker)


def _start(url: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(_CHILD), url, "work"]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    worker.stdout.readline()
    return worker


def _stop(worker: subprocess.Popen[str]) -> None:
    worker.terminate()
    worker.wait(30)
    assert worker.stdout is not None
    worker.stdout.close()


def _child(url: str, *arguments: str) -> str:
    command = [sys.executable, str(_CHILD), url, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _family(process: int) -> list[int]:
    """A worker's process and its children's: its keeper is part of what it costs."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [process, *map(int, children)]


def _memory(process: int) -> float:
    """MB of memory, with what processes share counted once."""
    rollups = [Path(f"/proc/{each}/smaps_rollup").read_text() for each in _family(process)]
    return sum(int(rollup.partition("\nPss:")[2].split()[0]) for rollup in rollups) * 1024 / 1e6


def _processor_seconds(process: int) -> float:
    fields = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split() for each in _family(process)]
    return sum(int(spent[11]) + int(spent[12]) for spent in fields) / os.sysconf("SC_CLK_TCK")
