"""The app that worker processes of the end-to-end tests run: its handlers write down when they start and end.

The ledger is a file that FLEET_LEDGER names. A line is one write to the kernel, which keeps it when the process is
killed: `start` or `end`, the number of the task, its attempt, the process, and the moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sqlite3
import time
from typing import Final

from fairlead import Backoff, Defaults, Fairlead, Settings, current_task
from fairlead.core.instant import SECOND

SETTINGS: Final = Settings(
    defaults=Defaults(max_crashes=20, backoff=Backoff(initial=0.1, ceiling=1)),
    lease=int(os.environ.get("FLEET_LEASE", "3")),
    heartbeat=0.5,
    grace=1,
    sweep_interval=0.25,
)
LEASE: Final = SETTINGS.lease / SECOND
"""In seconds."""

app = Fairlead("sqlite:///fleet.db", settings=SETTINGS)


def note(event: str, number: int) -> None:
    line = f"{event} {number} {current_task().attempt} {os.getpid()} {time.monotonic()}\n"
    ledger = os.open(os.environ["FLEET_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, line.encode())
    os.close(ledger)


@app.task
async def work(number: int, seconds: float = 0.0) -> int:
    note("start", number)
    await asyncio.sleep(seconds)
    note("end", number)
    return current_task().attempt


@app.task
def work_in_thread(number: int, seconds: float = 0.0) -> int:
    note("start", number)
    time.sleep(seconds)
    note("end", number)
    return current_task().attempt


@app.task(isolate=True)
def work_isolated(number: int, seconds: float = 0.0) -> int:
    note("start", number)
    time.sleep(seconds)
    note("end", number)
    return current_task().attempt


@app.task
async def block_loop(number: int, seconds: float = 0.0, gate: str | None = None) -> int:
    """Block the event loop, which one must not do and people do: for so long, or until a named pipe is opened."""
    note("start", number)
    if gate is None:
        time.sleep(seconds)  # noqa: ASYNC251
    else:
        os.close(os.open(gate, os.O_RDONLY))
    note("end", number)
    return current_task().attempt


@app.task
def hold_lock(number: int, seconds: float = 0.0, gate: str | None = None) -> int:
    """Hold the interpreter's lock, as careless C code does: no other thread of this process runs meanwhile."""
    note("start", number)
    if gate is None:
        ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    else:
        os.close(ctypes.PyDLL(None).open(os.fsencode(gate), os.O_RDONLY))
    note("end", number)
    return current_task().attempt


@app.task
def hold_lock_amid_a_write(number: int, file: str, gate: str) -> int:
    """Hold the interpreter's lock while this process has the store's file locked, as its writing thread may have."""
    note("start", number)
    with contextlib.closing(sqlite3.connect(file, isolation_level=None, timeout=60)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        os.close(ctypes.PyDLL(None).open(os.fsencode(gate), os.O_RDONLY))
    return current_task().attempt


@app.task
def fork_and_wait(number: int, seconds: float) -> int:
    """Leave a child behind that inherits whatever this process has open."""
    child = os.fork()
    if child == 0:
        time.sleep(seconds)
        os._exit(0)
    note(f"child-{child}", number)
    note("start", number)
    time.sleep(seconds)
    note("end", number)
    return current_task().attempt


@app.task
async def delegate(number: int, seconds: float) -> None:
    """Leave the work to a thread that no cancel reaches."""
    note("start", number)
    await asyncio.to_thread(time.sleep, seconds)


@app.task
async def stubborn(number: int) -> None:
    """Heed no cancel at all."""
    note("start", number)
    while True:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            note("cancelled", number)


@app.task
async def add_up(number: int) -> int:
    note("start", number)
    results: list[int] = await app.parent_results()
    return sum(results)
