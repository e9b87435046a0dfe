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

from fairlead.core.errors import StoreRefused
from fairlead.storage.deadline import left
from fairlead.storage.login import ask
from fairlead.storage.redis.client.resp import (
    Broken,
    Greeting,
    Patience,
    Release,
    Reply,
    greet,
    greet_sentinel,
    greeting,
    reader,
    tls_context,
    unreachable,
)
from fairlead.storage.redis.url import Address, Host

_CHUNK: Final = 65536
_FRESH: Final = 1.0
"""Seconds for which an idle connection is taken to be alive; after that we look."""

_NEAR: Final = 200e-6
"""Seconds within which a server nearby answers. For so long we look for its answer before we sleep: an idle processor
takes as long to wake up, and works slowly then. See ADR 0097."""

_LOST: Final = "the connection to Redis at {} was lost: {}"


_LEAST: Final = 1e-3
"""The shortest limit, in seconds: to a socket none at all means for ever."""


def _some(timeout: float) -> float:
    """How long an exchange may take."""
    return max(left(timeout), _LEAST)


async def pause(seconds: float) -> None:
    """Wait, in the calling thread."""
    time.sleep(seconds)  # noqa: ASYNC251 - this transport blocks, by contract


class _Connection:
    """One socket and its parser."""

    greeting: Greeting

    def __init__(self, host: Host, address: Address) -> None:
        self._host = host
        self._tls = address.tls
        self._timeout = 0.0
        self._near = False
        """Whether the last answer came as fast as from a server nearby."""
        self._reader = reader()
        self.used = time.monotonic()
        try:
            self._socket = _socket(host, _some(address.timeout))
        except OSError as error:
            raise unreachable(host, error) from error
        try:
            if address.tls is not None:
                name = address.tls.name_of(host)
                self._socket = tls_context(address.tls).wrap_socket(self._socket, server_hostname=name)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError | Broken):
                raise unreachable(host, error) from error
            raise

    def greet(self, commands: bytes, count: int, timeout: float) -> None:
        """Say the first words; raises Broken, or a store error when the server refuses us."""
        try:
            self.greeting = greeting(self.exchange(commands, count, timeout))
        except Broken as error:
            raise unreachable(self._host, error, self._tls) from error

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


def _socket(host: Host, timeout: float) -> socket.socket:
    if not host.is_socket:
        made = socket.create_connection((host.name, host.port), timeout=timeout)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return made
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(timeout)
        made.connect(host.name)
    except BaseException:
        made.close()
        raise
    return made


class BlockingNode:
    """One server over plain sockets. See `fairlead.storage.redis.client.resp.Node`."""

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
            replies = connection.exchange(payload, count, _some(self._address.timeout if timeout is None else timeout))
        except BaseException:
            connection.close()
            raise
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)
        return replies

    def renew(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def close(self) -> None:
        self._closed = True
        self.renew()

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
            time.sleep(left(seconds))
        try:
            connection = self._greeted()
        except Broken:
            self._patience.failed()
            raise
        self._patience.succeeded()
        self.greeted = connection.greeting
        return connection

    def _greeted(self) -> _Connection:
        """A new connection, on which the first words were said."""
        address = self._address
        credentials = None if self._sentinel else address.credentials
        # Before the server is there to wait for them.
        login = None if credentials is None else ask(credentials)
        connection = _Connection(self.host, address)
        try:
            if self._sentinel:
                connection.greet(*greet_sentinel(address), _some(address.timeout))
                return connection
            try:
                connection.greet(*greet(address, login), _some(address.timeout))
            except StoreRefused:
                # It may have been changed since, or be one that was kept too long.
                if credentials is None or (newer := ask(credentials)) == login:
                    raise
                connection.greet(*greet(address, newer), _some(address.timeout))
        except BaseException:
            connection.close()
            raise
        return connection
