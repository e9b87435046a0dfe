"""Connections, in two kinds with one face.

`BlockingConnections` works in the calling thread and never suspends, so that synchronous code can drive the store;
`AsyncConnections` works on an event loop. Both keep a few sessions, replace those that break, give up on a call after a
time, retry what the server asks to be retried, and turn its errors into ours.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

import psycopg

from fairlead.core.errors import StoreUnavailable
from fairlead.storage.deadline import Budget, left, timed
from fairlead.storage.postgres.connection.connect import connect, connect_async, may_retry, named, timed_out
from fairlead.storage.postgres.connection.session import (
    AsyncSession,
    BlockingSession,
    Late,
    Row,
    Session,
)
from fairlead.storage.postgres.statements import Statement
from fairlead.storage.postgres.url import Address

Result = TypeVar("Result")

_TRIES: Final = 10
"""How often a deadlock or serialization failure is retried."""
_FIRST_PAUSE: Final = 0.002


class Connections(Protocol):
    """Runs each statement by itself, or several in a transaction."""

    async def fetch(self, statement: Statement, parameters: Sequence[Any] = ()) -> list[Row]:
        """The rows a statement returns, committed."""
        ...

    async def transaction(self, work: Callable[[Session], Awaitable[Result]]) -> Result:
        """What the work answers, in one transaction; it may be done more than once."""
        ...

    async def close(self) -> None:
        """Close all connections: the idle ones now, those in use when they are given back."""
        ...


class BlockingConnections:
    """A few connections shared by threads."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self.budget = budget(address, blocking=True)
        self._idle: list[BlockingSession] = []
        self._closed = False
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(address.pool)

    @timed
    async def fetch(self, statement: Statement, parameters: Sequence[Any] = ()) -> list[Row]:
        for attempt in range(_TRIES):
            session = self._borrow()
            try:
                return await session.fetch(statement, parameters)
            except psycopg.Error as error:
                judge(error, self._address, attempt)
            finally:
                self._give_back(session)
            time.sleep(_FIRST_PAUSE * 2**attempt)  # noqa: ASYNC251 - it is there to block
        raise AssertionError("the last try answers or raises")

    @timed
    async def transaction(self, work: Callable[[Session], Awaitable[Result]]) -> Result:
        for attempt in range(_TRIES):
            session = self._borrow()
            try:
                return await session.transaction(work)
            except psycopg.Error as error:
                judge(error, self._address, attempt)
            finally:
                self._give_back(session)
            time.sleep(_FIRST_PAUSE * 2**attempt)  # noqa: ASYNC251 - it is there to block
        raise AssertionError("the last try answers or raises")

    async def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()

    def _borrow(self) -> BlockingSession:
        if not self._free.acquire(timeout=left(self._address.timeout)):
            raise all_busy(self._address)
        try:
            while self._idle:
                with self._lock:
                    if not self._idle:
                        break
                    session = self._idle.pop()
                if not session.stale:
                    return session
                session.close()
            return BlockingSession(connect(self._address), self._address)
        except BaseException as error:
            self._free.release()
            if isinstance(error, psycopg.Error):
                raise named(error, self._address) from error
            raise

    def _give_back(self, session: BlockingSession) -> None:
        if session.broken:
            session.close()
            with self._lock:
                doubt(self._idle)
        else:
            session.used_at = time.monotonic()
            with self._lock:
                kept = not self._closed
                if kept:
                    self._idle.append(session)
            if not kept:
                session.close()
        self._free.release()


class AsyncConnections:
    """A few connections shared by the tasks of one event loop."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self.budget = budget(address, blocking=False)
        self._idle: list[AsyncSession] = []
        self._closed = False
        self._free = asyncio.BoundedSemaphore(address.pool)

    @timed
    async def fetch(self, statement: Statement, parameters: Sequence[Any] = ()) -> list[Row]:
        for attempt in range(_TRIES):
            session = await self._borrow()
            try:
                return await session.fetch(statement, parameters)
            except psycopg.Error as error:
                judge(error, self._address, attempt)
            finally:
                await self._give_back(session)
            await asyncio.sleep(_FIRST_PAUSE * 2**attempt)
        raise AssertionError("the last try answers or raises")

    @timed
    async def transaction(self, work: Callable[[Session], Awaitable[Result]]) -> Result:
        for attempt in range(_TRIES):
            session = await self._borrow()
            try:
                return await session.transaction(work)
            except psycopg.Error as error:
                judge(error, self._address, attempt)
            finally:
                await self._give_back(session)
            await asyncio.sleep(_FIRST_PAUSE * 2**attempt)
        raise AssertionError("the last try answers or raises")

    async def close(self) -> None:
        self._closed = True
        idle, self._idle = self._idle, []
        for session in idle:
            await session.close()

    async def _borrow(self) -> AsyncSession:
        if self._free.locked():
            try:
                async with asyncio.timeout(left(self._address.timeout)):
                    await self._free.acquire()
            except TimeoutError:
                raise all_busy(self._address) from None
        else:
            await self._free.acquire()
        try:
            while self._idle:
                session = self._idle.pop()
                if not session.stale:
                    return session
                await session.close()
            return AsyncSession(await connect_async(self._address), self._address)
        except BaseException as error:
            self._free.release()
            if isinstance(error, psycopg.Error):
                raise named(error, self._address) from error
            raise

    async def _give_back(self, session: AsyncSession) -> None:
        self._free.release()
        if session.broken:
            doubt(self._idle)
            await session.close()
        elif self._closed:
            await session.close()
        else:
            session.used_at = time.monotonic()
            self._idle.append(session)


def judge(error: psycopg.Error, address: Address, attempt: int) -> None:
    """Raise our error, unless the call is to be tried again."""
    if isinstance(error, Late):
        raise timed_out(address) from error
    pause = _FIRST_PAUSE * 2**attempt
    if not may_retry(error) or attempt == _TRIES - 1 or left(pause) < pause:
        raise named(error, address) from error


def doubt(idle: Sequence[BlockingSession | AsyncSession]) -> None:
    """When one connection breaks the others probably have too: have them looked at before use."""
    for session in idle:
        session.used_at = 0.0


def all_busy(address: Address) -> StoreUnavailable:
    """Our error for a call that never got a connection."""
    return StoreUnavailable(
        f"all {address.pool} connections to {address.shown} were busy for {address.timeout:g} s; nothing was done. "
        f"Repeat the call, or allow more with ?pool=number in the store URL"
    )


def budget(address: Address, *, blocking: bool) -> Budget:
    """How long the calls of a store at this address may take."""
    return Budget(address.timeout, address.shown, blocking=blocking)
