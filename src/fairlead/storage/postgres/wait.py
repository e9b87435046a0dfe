"""Waiting for work: LISTEN on a connection of its own, and polling where that does not work.

Notifications are hints. One is sent per call that makes tasks ready, as "queue count", and wakes as many waiters of
this process. When a listening connection is new, has broken, or turns out to be deaf (PgBouncer in transaction mode
accepts LISTEN and delivers nothing), waiting is a short sleep.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, Self

import psycopg
from msgspec import Struct

from fairlead.core.errors import StoreError
from fairlead.storage.postgres.connection.connect import (
    LimitedAsyncConnection,
    LimitedConnection,
    connect,
    connect_async,
)
from fairlead.storage.postgres.url import Address

POLL: Final = 0.5
"""Seconds between looks when no one tells us, on average."""
_PROBE_WITHIN: Final = 2.0
_RECONNECT_AFTER: Final = 1.0
_DEAF_FOR: Final = 60.0
"""Seconds until a deaf connection is tried again."""
_RINGS_KEPT: Final = 64

Say = Callable[[str], Awaitable[None]]
"""Says something on the channel, from another connection than the one that listens."""


class Listener(Protocol):
    """Where calls of `wait` sleep."""

    async def wait(self, queues: Sequence[str], timeout: float) -> None: ...

    def looked(self, queues: Sequence[str]) -> None:
        """Someone is about to look for work in these queues: earlier rings say nothing new."""
        ...

    async def close(self) -> None: ...


class BlockingListener:
    """Sleeps in the calling thread; each waiting thread has a listening connection for the time."""

    def __init__(self, address: Address, say: Say) -> None:
        self._address = address
        self._say = say
        self._lock = threading.Lock()
        self._idle: list[LimitedConnection] = []
        self._closed = False
        self._poll_until = 0.0 if address.listen else float("inf")

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        if time.monotonic() < self._poll_until:
            time.sleep(min(timeout, _poll()))  # noqa: ASYNC251 - it is there to block
            return
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            # What came before we listened went unheard, so the caller looks once more.
            await self._connect()
            return
        try:
            _listen_for(connection, queues, timeout)
        except psycopg.Error:
            connection.close()
            return
        self._keep(connection)

    def looked(self, queues: Sequence[str]) -> None:
        """Nothing to forget: what a connection has received is read by its next wait."""

    async def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    async def _connect(self) -> None:
        try:
            connection = connect(self._address)
        except (psycopg.Error, StoreError):
            self._poll_until = time.monotonic() + _RECONNECT_AFTER
            return
        try:
            heard = await self._is_heard(connection)
        except (psycopg.Error, StoreError):
            connection.close()
            self._poll_until = time.monotonic() + _RECONNECT_AFTER
            return
        if not heard:
            connection.close()
            self._poll_until = time.monotonic() + _DEAF_FOR
            return
        self._keep(connection)

    async def _is_heard(self, connection: LimitedConnection) -> bool:
        connection.execute(f'LISTEN "{self._address.channel}"')
        probe = f"?{os.urandom(8).hex()}"
        await self._say(probe)
        return any(note.payload == probe for note in connection.notifies(timeout=_PROBE_WITHIN, stop_after=1))

    def _keep(self, connection: LimitedConnection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()


def _listen_for(connection: LimitedConnection, queues: Sequence[str], timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while (left := deadline - time.monotonic()) > 0:
        for note in connection.notifies(timeout=left, stop_after=1):
            if queue_of(note.payload) in queues:
                return


class _Ear:
    """What is said on a connection that listens.

    It wakes up when its socket does. psycopg's own way of waiting looks ten times a second.
    """

    def __init__(self, connection: LimitedAsyncConnection) -> None:
        self._libpq = connection.pgconn
        self._socket = connection.fileno()
        self._encoding = connection.info.encoding
        self._loop = asyncio.get_running_loop()
        self._heard = asyncio.Event()
        self._error: psycopg.Error | None = None

    def __enter__(self) -> Self:
        self._loop.add_reader(self._socket, self._readable)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.remove_reader(self._socket)

    async def hear(self) -> str:
        """What is said next; raises if the connection breaks."""
        while (note := self._libpq.notifies()) is None:
            if self._error is not None:
                raise self._error
            self._heard.clear()
            await self._heard.wait()
        return note.extra.decode(self._encoding)

    def _readable(self) -> None:
        try:
            self._libpq.consume_input()
        except psycopg.Error as error:
            self._error = error
            self._loop.remove_reader(self._socket)
        self._heard.set()


class _Waiter(Struct, eq=False):
    queues: frozenset[str]
    rung: asyncio.Event


class AsyncListener:
    """Sleeps on an event loop; one listening connection serves all waiters of the process."""

    def __init__(self, address: Address, say: Say) -> None:
        self._address = address
        self._say = say
        self._waiters: deque[_Waiter] = deque()
        self._rings: Counter[str] = Counter()
        self._listening = False
        self._reader: asyncio.Task[None] | None = None

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        if self._reader is None and self._address.listen:
            self._reader = asyncio.get_running_loop().create_task(self._read())
        for queue in queues:
            if self._rings[queue] > 0:
                self._rings[queue] -= 1
                return
        waiter = _Waiter(frozenset(queues), asyncio.Event())
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout if self._listening else min(timeout, _poll())):
                await waiter.rung.wait()
        except TimeoutError:
            pass
        finally:
            with contextlib.suppress(ValueError):
                self._waiters.remove(waiter)

    def looked(self, queues: Sequence[str]) -> None:
        for queue in queues:
            self._rings.pop(queue, None)

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader
            self._reader = None

    async def _read(self) -> None:
        """Listen until cancelled; a connection that breaks is replaced."""
        while True:
            pause = _RECONNECT_AFTER
            try:
                pause = await self._listen()
            except (psycopg.Error, StoreError, OSError):
                pass
            finally:
                self._listening = False
            await asyncio.sleep(pause)

    async def _listen(self) -> float:
        """Ring for what is heard, until the connection breaks; how long to pause before the next if it is deaf."""
        connection = await connect_async(self._address)
        try:
            await connection.execute(f'LISTEN "{self._address.channel}"')
            with _Ear(connection) as ear:
                if not await self._is_heard(ear):
                    return _DEAF_FOR
                self._listening = True
                # What came before went unheard: one of those who began to wait before looks once more, for any queues.
                for waiter in {waiter.queues: waiter for waiter in self._waiters}.values():
                    waiter.rung.set()
                while True:
                    self._ring(await ear.hear())
        finally:
            await connection.close()

    async def _is_heard(self, ear: _Ear) -> bool:
        probe = f"?{os.urandom(8).hex()}"
        await self._say(probe)
        try:
            async with asyncio.timeout(_PROBE_WITHIN):
                while await ear.hear() != probe:
                    pass
        except TimeoutError:
            return False
        return True

    def _ring(self, payload: str) -> None:
        queue = queue_of(payload)
        if queue is None:
            return
        count = int(payload.rpartition(" ")[2])
        waiting = [waiter for waiter in self._waiters if queue in waiter.queues][:count]
        for waiter in waiting:
            self._waiters.remove(waiter)
            waiter.rung.set()
        if len(waiting) < count:
            self._rings[queue] = min(self._rings[queue] + count - len(waiting), _RINGS_KEPT)


def _poll() -> float:
    """Pollers do not coordinate, they spread out."""
    return POLL * (0.5 + random.random())  # noqa: S311


def queue_of(payload: str) -> str | None:
    """The queue that a notification tells of; None for anything else."""
    queue, _, count = payload.rpartition(" ")
    return queue if count.isdigit() else None
