"""The blocking transport: a pool of plain sockets, used in the calling thread.

Its coroutines never suspend, so synchronous code can drive the store without an event loop. Threads share the pool:
each takes a connection for one exchange and puts it back.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import ssl
import struct
import time
from typing import Final

import hiredis

from fairlead.storage.redis.address import Address, Host
from fairlead.storage.redis.node import Patience, Release
from fairlead.storage.redis.wire import Broken, Greeting, Reply, greet, greeting, reader, tls_context

_CHUNK: Final = 65536
_FRESH: Final = 1.0
"""Seconds for which an idle connection is taken to be alive; after that we look."""

_NEAR: Final = 200e-6
"""Seconds within which a server nearby answers. For so long we look for its answer before we sleep: an idle processor
takes as long to wake up, and works slowly then. See ADR 0097."""

_LOST: Final = "the connection to Redis at {} was lost: {}"


async def pause(seconds: float) -> None:
    """Wait, in the calling thread."""
    time.sleep(seconds)  # noqa: ASYNC251 - this transport blocks, by contract


class _Connection:
    """One socket and its parser."""

    def __init__(self, host: Host, address: Address, *, sentinel: bool) -> None:
        self._host = host
        self._timeout = 0.0
        self._near = False
        """Whether the last answer came as fast as from a server nearby."""
        self._reader = reader()
        self.used = time.monotonic()
        try:
            self._socket = socket.create_connection((host.name, host.port), timeout=address.timeout)
        except OSError as error:
            raise Broken(f"Redis at {host} cannot be reached: {error}", sent=False) from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if (context := tls_context(address)) is not None:
                self._socket = context.wrap_socket(self._socket, server_hostname=host.name)
            self.greeting = greeting(self.exchange(*greet(address, sentinel=sentinel), address.timeout))
        except BaseException as error:
            self.close()
            if isinstance(error, OSError | Broken):
                raise Broken(f"Redis at {host} cannot be reached: {error}", sent=False) from error
            raise

    def exchange(self, payload: bytes, count: int, timeout: float) -> list[Reply]:
        if timeout != self._timeout:
            self._limit(timeout)
        receive, gets = self._socket.recv, self._reader.gets
        replies: list[Reply] = []
        try:
            self._socket.sendall(payload)
            sent = time.monotonic()
            while True:
                data = self._look_until(sent + _NEAR) if self._near else None
                if data is None:
                    data = receive(_CHUNK)
                if not data:
                    raise Broken(_LOST.format(self._host, "the server closed it"), sent=True)
                self._reader.feed(data)
                while (reply := gets()) is not False:
                    replies.append(reply)
                if len(replies) >= count:
                    break
        except (BlockingIOError, TimeoutError, ssl.SSLWantReadError) as error:
            raise Broken(f"Redis at {self._host} gave no answer within {timeout:g} s", sent=True) from error
        except OSError as error:
            raise Broken(_LOST.format(self._host, error), sent=True) from error
        except hiredis.ProtocolError as error:
            raise Broken(_LOST.format(self._host, error), sent=True) from error
        self.used = time.monotonic()
        self._near = self.used - sent < _NEAR and not isinstance(self._socket, ssl.SSLSocket)
        return replies

    def _look_until(self, end: float) -> bytes | None:
        """What has come by then; None if nothing has."""
        receive, flag = self._socket.recv, socket.MSG_DONTWAIT
        while True:
            try:
                return receive(_CHUNK, flag)
            except BlockingIOError:
                if time.monotonic() >= end:
                    return None
                os.sched_yield()  # the server may be waiting for this very processor

    def _limit(self, timeout: float) -> None:
        """Let the kernel keep the time: Python's own way costs a further system call per read."""
        if isinstance(self._socket, ssl.SSLSocket):
            self._socket.settimeout(timeout)
        else:
            self._socket.settimeout(None)
            whole, part = divmod(timeout, 1)
            moment = struct.pack("ll", int(whole), int(part * 1e6))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, moment)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, moment)
        self._timeout = timeout

    def is_alive(self) -> bool:
        """Whether the server has, as far as can be seen from here, not hung up."""
        if time.monotonic() - self.used < _FRESH:
            return True
        if isinstance(self._socket, ssl.SSLSocket):
            # Nothing can be peeked at, but nothing is due either: whatever there is to read, it is a farewell.
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                return not selector.select(0)
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        # It hung up, or said something no one asked for.
        return False

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()


class BlockingNode:
    """One server over plain sockets. See `fairlead.storage.redis.node.Node`."""

    def __init__(self, host: Host, address: Address, *, sentinel: bool) -> None:
        self.host = host
        self._address = address
        self._sentinel = sentinel
        self._patience = Patience()
        self._idle: list[_Connection] = []
        self.greeted: Greeting | None = None
        self._process = os.getpid()
        self._closed = False

    async def greeting(self) -> Greeting:
        if self.greeted is None:
            self._idle.append(self._take())
        assert self.greeted is not None  # noqa: S101 - a connection was just made
        return self.greeted

    async def exchange(
        self,
        payload: bytes,
        count: int,
        *,
        timeout: float | None = None,
        alone: bool = False,
        release: Release | None = None,
    ) -> list[Reply]:
        connection = self._take()
        try:
            replies = connection.exchange(payload, count, self._address.timeout if timeout is None else timeout)
        except BaseException:
            connection.close()
            raise
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)
        return replies

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> _Connection:
        if self._process != os.getpid():
            # A fork shares its parent's sockets; talking on them would mix up both conversations.
            self._idle, self._process = [], os.getpid()
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._connect()
            if connection.is_alive():
                return connection
            connection.close()

    def _connect(self) -> _Connection:
        if self._closed:
            raise Broken(f"the connection to Redis at {self.host} was closed", sent=False)
        if (seconds := self._patience.pause()) > 0:
            time.sleep(seconds)
        try:
            connection = _Connection(self.host, self._address, sentinel=self._sentinel)
        except Broken:
            self._patience.failed()
            raise
        self._patience.succeeded()
        self.greeted = connection.greeting
        return connection
