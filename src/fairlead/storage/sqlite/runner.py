"""Who runs an operation, and in which transaction.

Operations are functions of a connection. `InlineRunner` runs each in the calling thread, in a transaction of its own,
for synchronous code. `ThreadRunner` runs them in a thread beside the event loop and commits together all that arrived
while the last commit was under way: one fsync for many.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct

from fairlead.core.errors import StoreUnavailable
from fairlead.storage.sqlite.database import named

Result = TypeVar("Result")
Operation = Callable[[sqlite3.Connection], Result]

_GROUP_LIMIT: Final = 256


class Runner(Protocol):
    """Runs operations on one connection."""

    async def run(self, operation: Operation[Result]) -> Result: ...

    async def close(self) -> None: ...


class InlineRunner:
    """Runs each operation where it is called."""

    def __init__(self, connection: sqlite3.Connection, path: Path, begin: str) -> None:
        self._connection = connection
        self._path = path
        self._begin = begin
        self._lock = threading.Lock()

    async def run(self, operation: Operation[Result]) -> Result:
        with self._lock:
            try:
                return _transact(self._connection, self._begin, operation)
            except sqlite3.Error as error:
                raise named(error, self._path) from error

    async def close(self) -> None:
        with self._lock:
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

    def __init__(self, connection: sqlite3.Connection, path: Path, begin: str, name: str) -> None:
        self._connection = connection
        self._path = path
        self._begin = begin
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, operation: Operation[Result]) -> Result:
        if self._closed:
            raise StoreUnavailable(f"{self._path} was closed; open the store again")
        loop = asyncio.get_running_loop()
        call = _Call(operation, loop, loop.create_future())
        self._calls.put(call)
        result: Result = await call.future
        return result

    async def close(self) -> None:
        """Finish what was asked for and close the connection."""
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
        def operate(connection: sqlite3.Connection) -> None:
            for call in group:
                call.result = call.operation(connection)

        try:
            _transact(self._connection, self._begin, operate)
        except Exception as error:
            if len(group) > 1:
                # One call's fault, or one call too much for the disk, must not be the others': each gets its own try.
                for call in group:
                    self._run_group([call])
            else:
                group[0].error = named(error, self._path) if isinstance(error, sqlite3.Error) else error

    def _deliver(self, group: list[_Call]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[_Call]] = {}
        for call in group:
            by_loop.setdefault(call.loop, []).append(call)
        for loop, calls in by_loop.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, calls)


def _resolve(calls: list[_Call]) -> None:
    for call in calls:
        if call.future.done():
            continue
        if call.error is None:
            call.future.set_result(call.result)
        else:
            call.future.set_exception(call.error)


def _transact(connection: sqlite3.Connection, begin: str, operation: Operation[Result]) -> Result:
    connection.execute(begin)
    try:
        result = operation(connection)
        connection.execute("COMMIT")
    except BaseException:
        # Some errors, a full disk among them, have rolled back already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result
