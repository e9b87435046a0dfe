"""What every adapter shares: its command line, and the one task that all queues run.

An adapter runs in the environment of its queue, which has no fairlead and nothing of this project in it: the standard
library only.

    adapter.py one COUNT         submit one by one, from synchronous code; prints the seconds it took
    adapter.py one-async COUNT   the same, awaited
    adapter.py crowd COUNT       submit from 50 coroutines at once
    adapter.py bulk COUNT        submit 1,000 at a time
    adapter.py mixed LOW HIGH    submit many of low priority, then some of high priority
    adapter.py pace COUNT        submit one at a time, with pauses; prints when each was submitted. One more, whose
                                 number is COUNT, goes ahead of them: when it has run, all is connected and awake.
    adapter.py work              run tasks until stopped
    adapter.py version           prints which version this is
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

try:
    import uvloop
except ImportError:
    uvloop = None

URL = os.environ.get("BENCH_URL", "")
"""The server, or the file, that the queue is on."""

CROWD = 50
BULK = 1_000
PAUSE = 0.015
PATIENCE = 30.0
"""Seconds within which a worker runs its first task."""

Answer = TypeVar("Answer")

_STARTED = time.perf_counter()
_log: int | None = None


def tick(number: int) -> int:
    """The work: append which task this is and when it began to a file in memory. All lines have one length."""
    global _log
    if _log is None:
        _log = os.open(os.environ["BENCH_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(_log, b"%09d %020d\n" % (number, time.monotonic_ns()))
    return number


def run(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Run a coroutine: on uvloop, which every queue that has coroutines gets."""
    factory = None if uvloop is None else uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


class Peer:
    """A queue. What it cannot do stays as it is, and is reported as missing."""

    package = ""
    """What it is installed as."""

    async def open(self) -> None:
        """Connect, for coroutines."""

    async def close(self) -> None:
        """Disconnect."""

    def open_sync(self) -> None:
        """Connect, for synchronous code."""

    def submit_sync(self, number: int) -> None:
        raise NotImplementedError

    async def submit(self, number: int) -> None:
        raise NotImplementedError

    async def submit_bulk(self, numbers: Sequence[int]) -> None:
        raise NotImplementedError

    async def submit_mixed(self, low: Sequence[int], high: Sequence[int]) -> None:
        """Submit all of the low priority, then all of the high one."""
        raise NotImplementedError

    def work(self) -> None:
        """Run tasks until stopped; may replace this process by the queue's own program."""
        raise NotImplementedError


def main(peer: Peer) -> None:
    """Do what the command line asks of an adapter."""
    command, *numbers = sys.argv[1:]
    counts = [int(number) for number in numbers]
    try:
        answer = _COMMANDS[command](peer, *counts)
    except NotImplementedError:
        answer = None
    print(json.dumps(answer))


def _one(peer: Peer, count: int) -> float:
    peer.open_sync()
    peer.submit_sync(0)
    began = time.perf_counter()
    for number in range(1, count + 1):
        peer.submit_sync(number)
    return time.perf_counter() - began


def _timed(peer: Peer, work: Callable[[], Awaitable[None]]) -> float:
    async def timed() -> float:
        await peer.open()
        began = time.perf_counter()
        await work()
        spent = time.perf_counter() - began
        await peer.close()
        return spent

    return run(timed())


def _one_async(peer: Peer, count: int) -> float:
    async def work() -> None:
        for number in range(count):
            await peer.submit(number)

    return _timed(peer, work)


def _crowd(peer: Peer, count: int) -> float:
    async def submit(first: int) -> None:
        for number in range(first, count, CROWD):
            await peer.submit(number)

    async def work() -> None:
        await asyncio.gather(*(submit(first) for first in range(CROWD)))

    return _timed(peer, work)


def _bulk(peer: Peer, count: int) -> float:
    async def work() -> None:
        for first in range(0, count, BULK):
            await peer.submit_bulk(range(first, min(first + BULK, count)))

    return _timed(peer, work)


def _mixed(peer: Peer, low: int, high: int) -> float:
    return _timed(peer, lambda: peer.submit_mixed(range(low), range(low, low + high)))


def _pace(peer: Peer, count: int) -> list[int]:
    if type(peer).submit_sync is Peer.submit_sync:
        return run(_pace_async(peer, count))
    peer.open_sync()
    peer.submit_sync(count)
    while not _has_run():
        time.sleep(PAUSE)
    moments = []
    for number in range(count):
        time.sleep(PAUSE)
        moments.append(time.monotonic_ns())
        peer.submit_sync(number)
    return moments


async def _pace_async(peer: Peer, count: int) -> list[int]:
    await peer.open()
    await peer.submit(count)
    while not _has_run():  # noqa: ASYNC110 - another process runs it
        await asyncio.sleep(PAUSE)
    moments = []
    for number in range(count):
        await asyncio.sleep(PAUSE)
        moments.append(time.monotonic_ns())
        await peer.submit(number)
    await peer.close()
    return moments


def _has_run() -> bool:
    """Whether any task has; gives up when none has for long."""
    if time.perf_counter() - _STARTED > PATIENCE:
        sys.exit(f"no task ran within {PATIENCE:g} s")
    return Path(os.environ["BENCH_LOG"]).exists()


def _work(peer: Peer) -> None:
    peer.work()


def _version(peer: Peer) -> str:
    return importlib.metadata.version(peer.package)


_COMMANDS: dict[str, Callable[..., object]] = {
    "one": _one,
    "one-async": _one_async,
    "crowd": _crowd,
    "bulk": _bulk,
    "mixed": _mixed,
    "pace": _pace,
    "work": _work,
    "version": _version,
}
