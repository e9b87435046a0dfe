"""Who runs an operation, and in which transaction.

Operations are functions of a connection. `InlineRunner` runs each in the calling thread, in a transaction of its own,
for synchronous code. `ThreadRunner` runs them in a thread beside the event loop and commits together all that arrived
while the last commit was under way: one fsync for many.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct

from fairlead.core.errors import StoreUnavailable
from fairlead.storage.sqlite.database import PATIENCE, Connection, is_busy, named, patiently, transact

Result = TypeVar("Result")
Operation = Callable[[Connection], Result]

_GROUP_LIMIT: Final = 256


class Runner(Protocol):
    """Runs operations on one connection."""

    async def run(self, operation: Operation[Result]) -> Result: ...

    async def close(self) -> None: ...


class InlineRunner:
    """Runs each operation where it is called."""

    def __init__(self, connection: Connection, path: Path, begin: str, patience: float = PATIENCE) -> None:
        self._connection = connection
        self._path = path
        self._begin = begin
        self._patience = patience
        self._lock = threading.Lock()
        self._closed = False
        self._process = os.getpid()

    async def run(self, operation: Operation[Result]) -> Result:
        return self._run(operation, single=False)

    def run_single(self, operation: Operation[Result]) -> Result:
        """Run an operation of a single statement, which is a transaction by itself."""
        return self._run(operation, single=True)

    def _run(self, operation: Operation[Result], *, single: bool) -> Result:
        _check_process(self._process, self._path)
        with self._lock:
            if self._closed:
                raise _closed(self._path)
            deadline = time.monotonic() + self._patience
            try:
                if single:
                    return patiently(operation, self._connection, deadline)
                return transact(self._connection, self._begin, operation, deadline)
            except sqlite3.Error as error:
                raise named(error, self._path, self._patience) from error

    async def close(self) -> None:
        if os.getpid() != self._process:
            return
        with self._lock:
            self._closed = True
            self._connection.close()


class _Call(Struct):
    """An operation under way and the future of its caller."""

    operation: Operation[Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None


class ThreadRunner:
    """Runs operations in a thread of its own, as many as wait in one transaction."""

    def __init__(self, connection: Connection, path: Path, begin: str, name: str, patience: float = PATIENCE) -> None:
        self._connection = connection
        self._path = path
        self._begin = begin
        self._patience = patience
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, operation: Operation[Result]) -> Result:
        _check_process(self._process, self._path)
        loop = asyncio.get_running_loop()
        call = _Call(operation, loop, loop.create_future())
        # A call behind the end of the line would never be answered.
        with self._lock:
            if self._closed:
                raise _closed(self._path)
            self._calls.put(call)
        result: Result = await call.future
        return result

    async def close(self) -> None:
        """Finish what was asked for and close the connection."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if not self._closed:
                self._closed = True
                self._calls.put(None)
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        try:
            while group := self._next_group():
                self._run_group(group, time.monotonic() + self._patience)
                self._deliver(group)
        finally:
            self._connection.close()

    def _next_group(self) -> list[_Call]:
        """All calls that wait, at least one; none when the runner is closed."""
        group: list[_Call] = []
        call = self._calls.get()
        while call is not None:
            group.append(call)
            if len(group) == _GROUP_LIMIT or self._calls.empty():
                return group
            call = self._calls.get()
        if group:
            self._calls.put(None)
        return group

    def _run_group(self, group: list[_Call], deadline: float) -> None:
        def operate(connection: Connection) -> None:
            for call in group:
                call.result = call.operation(connection)

        try:
            transact(self._connection, self._begin, operate, deadline)
        except Exception as error:
            if len(group) > 1 and not is_busy(error):
                # One call's fault, or one call too much for the disk, must not be the others': each gets its own try.
                for call in group:
                    self._run_group([call], deadline)
                return
            for call in group:
                call.error = named(error, self._path, self._patience) if isinstance(error, sqlite3.Error) else error

    def _deliver(self, group: list[_Call]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[_Call]] = {}
        for call in group:
            by_loop.setdefault(call.loop, []).append(call)
        for loop, calls in by_loop.items():
            # A loop that was closed meanwhile has no one left who waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve, calls)


def _resolve(calls: list[_Call]) -> None:
    for call in calls:
        if call.future.done():
            continue
        if call.error is None:
            call.future.set_result(call.result)
        else:
            call.future.set_exception(call.error)


def _closed(path: Path) -> StoreUnavailable:
    return StoreUnavailable(f"{path} was closed; open the store again")


def _check_process(opener: int, path: Path) -> None:
    """A fork copies neither the thread nor the locks of a connection: used on both sides, it would ruin the file."""
    if os.getpid() != opener:
        raise StoreUnavailable(f"{path} was opened before this process was forked; open the store after the fork")
