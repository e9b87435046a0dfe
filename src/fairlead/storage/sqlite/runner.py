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
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct

from fairlead.core.errors import StoreUnavailable
from fairlead.storage.deadline import remaining, until
from fairlead.storage.sqlite.database import (
    PATIENCE,
    Connection,
    check_file,
    is_busy,
    locked,
    named,
    patiently,
    transact,
)

Result = TypeVar("Result")
Operation = Callable[[Connection], Result]

_GROUP_LIMIT: Final = 256

_LOCKS: Final = "/proc/locks"
_WRITE_LOCK: Final = ["POSIX", "ADVISORY", "WRITE"]
_WRITE_BYTE: Final = 120
"""The byte of the log's index whose lock a writer holds, by SQLite's file format."""


class Runner(Protocol):
    """Runs operations on one connection."""

    async def run(self, operation: Operation[Result], *, alone: Operation[Result | None] | None = None) -> Result:
        """What an operation answers, committed.

        `alone` is the same by a single statement, which needs no transaction around it where nothing shares the commit;
        when it answers None it has done nothing, and the operation is run.
        """
        ...

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

    async def run(self, operation: Operation[Result], *, alone: Operation[Result | None] | None = None) -> Result:
        _check_process(self._process, self._path)
        deadline = until(self._patience)
        # Nearly always it is free, and then nobody need work out how long to wait for it.
        if not self._lock.acquire(blocking=False) and not self._lock.acquire(timeout=remaining(deadline)):
            raise locked(self._path, self._patience)
        try:
            if self._closed:
                raise _closed(self._path)
            result = None if alone is None else patiently(alone, self._connection, deadline)
            if result is None:
                result = transact(self._connection, self._begin, operation, deadline)
            check_file(self._connection)
            return result
        except sqlite3.Error as error:
            raise named(error, self._path, self._patience) from error
        finally:
            self._lock.release()

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
    deadline: float
    alone: Operation[Any] | None
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

    async def run(self, operation: Operation[Result], *, alone: Operation[Result | None] | None = None) -> Result:
        _check_process(self._process, self._path)
        loop = asyncio.get_running_loop()
        call = _Call(operation, loop, loop.create_future(), until(self._patience), alone)
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
                self._run_group(group)
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

    def _run_group(self, group: list[_Call]) -> None:
        """Run what arrived together; each call waits for other processes no longer than its own time."""
        while group:
            error = self._try_group(group)
            if error is None:
                return
            if not is_busy(error) and len(group) > 1:
                # One call's fault, or one call too much for the disk, must not be the others': each gets its own try.
                for call in group:
                    self._run_group([call])
                return
            now = time.monotonic()
            over = [call for call in group if not is_busy(error) or call.deadline <= now]
            for call in over:
                call.error = named(error, self._path, self._patience) if isinstance(error, sqlite3.Error) else error
            group = [call for call in group if call.error is None]

    def _try_group(self, group: list[_Call]) -> Exception | None:
        try:
            if len(group) == 1:
                self._run_call(group[0])
            else:
                deadline = min([call.deadline for call in group])
                transact(self._connection, self._begin, partial(_operate, group), deadline)
            check_file(self._connection)
        except Exception as error:
            return error
        return None

    def _run_call(self, call: _Call) -> None:
        # Not the result that it may have from a transaction with others, which was rolled back.
        result = None if call.alone is None else patiently(call.alone, self._connection, call.deadline)
        if result is None:
            result = transact(self._connection, self._begin, call.operation, call.deadline)
        call.result = result

    def _deliver(self, group: list[_Call]) -> None:
        by_loop = {group[0].loop: group}
        if len(group) > 1:
            by_loop = {}
            for call in group:
                by_loop.setdefault(call.loop, []).append(call)
        for loop, calls in by_loop.items():
            # A loop that was closed meanwhile has no one left who waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve, calls)


def writer_of(path: Path) -> int | None:
    """The process that holds the lock of writers; None if none does, or if the system does not tell.

    Asked of the system's list: a look at the file itself would end the locks that this process holds on it.
    """
    try:
        index = os.stat(f"{path}-shm").st_ino  # noqa: PTH116 - as `check_file` does
        with open(_LOCKS, encoding="ascii") as file:  # noqa: PTH123
            held = [line.split() for line in file]
    except OSError:
        return None
    for lock in held:
        # 1: POSIX ADVISORY WRITE 1234 fd:00:5678 120 120; a process that waits for a lock has an arrow in front.
        if lock[1:4] == _WRITE_LOCK and lock[5].endswith(f":{index}") and int(lock[6]) <= _WRITE_BYTE <= _last(lock[7]):
            return int(lock[4])
    return None


def _last(word: str) -> float:
    return float("inf") if word == "EOF" else int(word)


def _operate(group: list[_Call], connection: Connection) -> None:
    for call in group:
        call.result = call.operation(connection)


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
