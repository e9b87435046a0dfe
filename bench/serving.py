"""What one server process takes over HTTP, with the load from the same machine.

    python -m bench.serving --store redis://127.0.0.1:6379

The load comes from wrk, which must be on PATH or named by --wrk: a client in Python would be measured, not the server.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import msgspec
from msgspec import Struct
from websockets.asyncio.client import ClientConnection, connect

from bench.measuring import Figure, summed
from bench.report import save, show

TASK: Final = {"task_type": "send_mail", "priority": "high", "parameters": {"user_id": 42, "template": "welcome"}}
BATCH: Final = 100
AT_ONCE: Final = 50


class Wrk:
    """The load generator."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder

    def run(self, url: str, body: bytes, *, connections: int, seconds: int) -> tuple[float, float]:
        """Requests a second, and the 95th percentile of their latency in milliseconds."""
        script = self._folder / "post.lua"
        (self._folder / "body").write_bytes(body)
        script.write_text(
            f'local file = io.open("{self._folder / "body"}", "rb")\n'
            'wrk.method = "POST"\nwrk.body = file:read("*a")\nwrk.headers["Content-Type"] = "application/json"\n'
            "function done(summary, latency)\n"
            '  local said = "p95 %f us, %d refused\\n"\n'
            "  io.write(said:format(latency:percentile(95), summary.errors.status))\nend\n"
        )
        command = [self._program, "-t1", f"-c{connections}", f"-d{seconds}", "-s", str(script), url]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
        late = re.search(r"p95 ([\d.]+) us, (\d+) refused", said)
        if rate is None or late is None or late[2] != "0":
            raise RuntimeError(f"wrk did not measure what was asked for:\n{said}")
        return float(rate[1]), float(late[1]) / 1000


@contextlib.contextmanager
def served(store: str, python: Path = Path(sys.executable)) -> Iterator[tuple[str, int]]:
    """A server as a user of this Python starts it: its URL and the id of its process."""
    command = [str(python), "-m", "fairlead", "serve", "--store", store, "--port", "0", "--json"]
    with subprocess.Popen([*command, "--log-level", "warning"], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            ready = msgspec.json.decode(process.stdout.readline())
            yield ready["url"], process.pid
        finally:
            process.terminate()


def spent(process: int) -> float:
    """The CPU time that a process has used so far, in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(process: int) -> float:
    """The memory of a process in MB."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) / 1000 if found else 0.0


class Crowd:
    """Workers that poll in vain, and listeners to events that do not happen."""

    def __init__(self, url: str, size: int) -> None:
        self._url = url
        self._size = size
        self._listeners: list[ClientConnection] = []
        self._client = httpx.AsyncClient(
            timeout=120, limits=httpx.Limits(max_connections=None, max_keepalive_connections=None)
        )
        self._polls: list[asyncio.Task[None]] = []

    async def gather(self) -> None:
        """Have all of them connected and waiting."""
        address = f"{self._url.replace('http', 'ws', 1)}/ws?types=task.failed"
        for _ in range(0, self._size, AT_ONCE):
            opening = (connect(address, proxy=None, compression=None, ping_interval=None) for _ in range(AT_ONCE))
            self._listeners += await asyncio.gather(*opening)
        for _ in range(0, self._size, AT_ONCE):
            for worker in await asyncio.gather(*(self._register() for _ in range(AT_ONCE))):
                self._polls.append(asyncio.create_task(self._poll(worker)))
        await asyncio.sleep(2)

    async def leave(self) -> None:
        for poll in self._polls:
            poll.cancel()
        await asyncio.gather(*self._polls, return_exceptions=True)
        await self._client.aclose()
        await asyncio.gather(*(listener.close() for listener in self._listeners))

    async def _register(self) -> str:
        wish = {"capabilities": [], "capacity": 1, "task_types": ["none"], "version": "1", "host": "bench"}
        answer = await self._client.post(f"{self._url}/internal/workers/register", json=wish)
        answer.raise_for_status()
        worker: str = answer.json()["worker_id"]
        return worker

    async def _poll(self, worker: str) -> None:
        wish = {"capabilities": [], "available_capacity": 1, "wait_seconds": 30}
        while True:
            answer = await self._client.post(f"{self._url}/internal/workers/{worker}/poll", json=wish)
            answer.raise_for_status()


class Submitted(Struct, frozen=True):
    """What one server process took."""

    rate: float
    """Tasks a second, one with each request, over 32 connections."""
    late: float
    """The 95th percentile of those requests, in milliseconds."""
    cost: float
    """CPU of the server for each of them, in microseconds."""
    in_batches: float
    """Tasks a second, 100 with each request, over four connections."""
    cost_in_batches: float
    """CPU of the server for each of those tasks, in microseconds."""


def submits(url: str, process: int, wrk: Wrk, seconds: int) -> Submitted:
    """What a server takes in so many seconds, after a warm-up; then in batches, for a third of that."""
    tasks = f"{url}/api/v1/tasks"
    single, batch = msgspec.json.encode(TASK), msgspec.json.encode([TASK] * BATCH)
    wrk.run(tasks, single, connections=32, seconds=2)
    before = spent(process)
    rate, late = wrk.run(tasks, single, connections=32, seconds=seconds)
    cost = (spent(process) - before) / (rate * seconds) * 1e6
    before, brief = spent(process), max(seconds // 3, 3)
    batches, _ = wrk.run(f"{tasks}/batch", batch, connections=4, seconds=brief)
    cost_in_batches = (spent(process) - before) / (batches * brief * BATCH) * 1e6
    return Submitted(rate, late, cost, batches * BATCH, cost_in_batches)


async def measure(store: str, wrk: Wrk, *, seconds: int, repeats: int, crowd: int) -> list[Figure]:
    single = msgspec.json.encode(TASK)
    rates: dict[str, list[float]] = {}

    def note(work: str, value: float) -> None:
        rates.setdefault(work, []).append(value)

    with served(store) as (url, process):
        tasks = f"{url}/api/v1/tasks"
        for _ in range(repeats):
            submitted = submits(url, process, wrk, seconds)
            note("HTTP submit, 32 connections", submitted.rate)
            note("its 95th percentile", submitted.late)
            note("its CPU in the server", submitted.cost)
            note(f"HTTP submit in batches of {BATCH}", submitted.in_batches)
            note("its CPU in the server for a task", submitted.cost_in_batches)
        alone, _ = await asyncio.to_thread(wrk.run, tasks, single, connections=32, seconds=max(seconds // 3, 3))
        waiting = Crowd(url, crowd)
        await waiting.gather()
        note(f"memory with {crowd:,} idle workers and {crowd:,} listeners", resident(process))
        began = time.monotonic()
        after, _ = await asyncio.to_thread(wrk.run, tasks, single, connections=32, seconds=max(seconds // 3, 3))
        print(f"the crowd waited for {time.monotonic() - began:.0f} s of submits")
        note("HTTP submit beside them, as a share", after / alone)
        await waiting.leave()
    targets: dict[str, tuple[str, float | None, bool]] = {
        "HTTP submit, 32 connections": ("tasks/s", 10_000, False),
        "its 95th percentile": ("ms", 10, True),
        "its CPU in the server": ("µs", None, True),
        f"HTTP submit in batches of {BATCH}": ("tasks/s", 30_000, False),
        "its CPU in the server for a task": ("µs", None, True),
        f"memory with {crowd:,} idle workers and {crowd:,} listeners": ("MB", 300, True),
        "HTTP submit beside them, as a share": ("of the rate without", 0.8, False),
    }
    name = store.partition(":")[0]
    return [
        summed(name, work, unit, rates[work], target=target, at_most=at_most)
        for work, (unit, target, at_most) in targets.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True, help="the URL of a store that may be filled")
    parser.add_argument("--wrk", default=shutil.which("wrk"), help="the program wrk")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--crowd", type=int, default=1_000)
    parser.add_argument("--output", type=Path, default=Path("build/bench-serving.json"))
    arguments = parser.parse_args()
    if arguments.wrk is None:
        parser.error("wrk is missing: install it (Debian has a package), or name it with --wrk")
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(
            measure(
                arguments.store,
                Wrk(arguments.wrk, Path(folder)),
                seconds=arguments.seconds,
                repeats=arguments.repeats,
                crowd=arguments.crowd,
            )
        )
    show(figures)
    save(figures, arguments.output)


if __name__ == "__main__":
    main()
