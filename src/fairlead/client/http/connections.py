"""Connections to a server, each carrying one request at a time: from an event loop, and from synchronous code.

Threads share the connections: each takes one for a request and puts it back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import time
from collections import deque
from collections.abc import Mapping
from typing import Final, Generic, Protocol, TypeVar, cast

from fairlead.client.http.http1 import Reading, Route
from fairlead.client.http.transport import CONNECTING, PATIENCE, Address, Broken, Reply, unreachable

_KEPT: Final = 5.0
"""How many seconds a connection is kept that nobody uses: servers and proxies keep theirs for no less."""


class Connection(Protocol):
    """What can wait for the next request."""

    used: float
    """When a reply last came, by the monotonic clock."""

    def is_alive(self) -> bool:
        """Whether the server has, as far as can be seen from here, not hung up."""
        ...

    def close(self) -> None: ...


C = TypeVar("C", bound=Connection)


class Idle(Generic[C]):
    """The connections to one server that nobody uses; safe for threads."""

    def __init__(self) -> None:
        self._connections: deque[C] = deque()
        self._process = os.getpid()

    def take(self) -> C | None:
        """The one that was used last and is still good; None if a new one is needed."""
        if self._process != os.getpid():
            # A fork shares its parent's sockets; talking on them would mix up both conversations.
            self._connections, self._process = deque(), os.getpid()
        with contextlib.suppress(IndexError):
            while True:
                connection = self._connections.pop()
                if time.monotonic() - connection.used < _KEPT and connection.is_alive():
                    return connection
                connection.close()
        return None

    def put(self, connection: C) -> None:
        """Keep one for a while, and let go of those that were not needed for long."""
        connection.used = time.monotonic()
        self._connections.append(connection)
        with contextlib.suppress(IndexError):
            while connection.used - self._connections[0].used > _KEPT:
                self._connections.popleft().close()

    def close(self) -> None:
        """Let go of all."""
        with contextlib.suppress(IndexError):
            while True:
                self._connections.pop().close()


def has_news(fileno: int) -> bool:
    """Whether there is something to read from a socket. Where nothing is due, it is a farewell."""
    if not hasattr(select, "poll"):
        return bool(select.select([fileno], [], [], 0)[0])
    poll = select.poll()
    poll.register(fileno, select.POLLIN)
    return bool(poll.poll(0))


_AT_ONCE: Final = 100
"""How many requests are under way at once; the others wait for their turn."""


class Streaming:
    """A `Transport` for an event loop."""

    def __init__(self, address: Address, route: Route) -> None:
        self.address = address
        self._route = route
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._idle: Idle[_Stream] = Idle()
        self._busy: set[_Stream] = set()
        self._closed = False

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
    ) -> Reply:
        request = self._route.requests.write(method, path, body, query)
        async with self._room:
            try:
                return await self._exchange(self._idle.take() or await self._connect(), request, patience)
            except (OSError, UnicodeError, Broken) as error:
                raise unreachable(self.address, error) from None

    async def close(self) -> None:
        self._closed = True
        self._idle.close()
        for stream in tuple(self._busy):
            stream.close()

    async def _exchange(self, stream: _Stream, request: bytes, patience: float) -> Reply:
        self._busy.add(stream)
        try:
            reply = await stream.ask(request, patience)
        except BaseException:
            # Cancelled, perhaps: a reply may still come, and must not be taken for the next one's.
            stream.close()
            raise
        finally:
            self._busy.discard(stream)
        if self._closed:
            stream.close()
        else:
            self._idle.put(stream)
        return reply

    async def _connect(self) -> _Stream:
        if self._closed:
            raise Broken("this client was closed")
        try:
            async with asyncio.timeout(CONNECTING):
                return await _connected(self._route)
        except TimeoutError:
            raise Broken(f"no connection within {CONNECTING:g} s") from None


class _Stream(asyncio.Protocol):
    """One connection. Once it was lost, or has carried what nobody asked for, it is not used again."""

    def __init__(self) -> None:
        self.used = 0.0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._fileno = -1
        self._reading = Reading()
        self._answer: asyncio.Future[Reply] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._patience = PATIENCE
        self._moved = 0.0
        """When something last came or went."""
        self._unsent = 0

    def is_alive(self) -> bool:
        if self._transport is None or self._transport.is_closing():
            return False
        # The loop may not have come to read what is there.
        return not has_news(self._fileno)

    def close(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    async def ask(self, request: bytes, patience: float) -> Reply:
        """The reply to a request."""
        if self._transport is None:
            raise Broken("it closed the connection")
        self._reading, self._answer = Reading(), self._loop.create_future()
        self._patience, self._moved = patience, self._loop.time()
        self._timer = self._loop.call_later(patience, self._look)
        try:
            self._transport.write(request)
            self._unsent = self._transport.get_write_buffer_size()
            return await self._answer
        finally:
            self._answer = None
            self._timer.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._fileno = transport.get_extra_info("socket").fileno()

    def data_received(self, data: bytes) -> None:
        self._moved = self._loop.time()
        self._read(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if exc is None:
            self._read(b"")
        else:
            self._fail(str(exc))

    def _read(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()
            return
        try:
            reply = self._reading.feed(data)
        except Broken as error:
            self._fail(str(error))
            return
        if reply is not None:
            if not self._reading.keeps:
                self.close()
            self._answer.set_result(reply)

    def _look(self) -> None:
        """Give up if neither the reply nor the request has moved for too long."""
        now, unsent = self._loop.time(), 0 if self._transport is None else self._transport.get_write_buffer_size()
        if unsent < self._unsent:
            self._moved, self._unsent = now, unsent
        if (left := self._moved + self._patience - now) > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self._fail(f"nothing came within {self._patience:g} s")

    def _fail(self, reason: str) -> None:
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Broken(reason))


async def _connected(route: Route) -> _Stream:
    """A connection to the first of a server's addresses that takes it; each has its share of the time."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(route.host, route.port, type=socket.SOCK_STREAM)
    name = route.host if route.tls else None
    trouble: OSError | None = None
    for family, _, _, _, (host, port, *_) in found:
        try:
            async with asyncio.timeout(CONNECTING / len(found)):
                _, stream = await loop.create_connection(
                    _Stream, str(host), int(port), family=family, ssl=route.tls, server_hostname=name
                )
                return stream
        except OSError as error:
            trouble = error
    raise trouble or Broken("its name leads nowhere")


_CHUNK: Final = 65_536


class Blocking:
    """A `Transport` whose coroutines never suspend; safe for threads."""

    def __init__(self, address: Address, route: Route) -> None:
        self.address = address
        self._route = route
        self._idle: Idle[_Connection] = Idle()
        self._closed = False

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        query: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
    ) -> Reply:
        request = self._route.requests.write(method, path, body, query)
        try:
            connection = self._take()
            try:
                reply = connection.ask(request, patience)
            except BaseException:
                connection.close()
                raise
        except (OSError, UnicodeError, Broken) as error:
            raise unreachable(self.address, error) from None
        if connection.keeps and not self._closed:
            self._idle.put(connection)
        else:
            connection.close()
        return reply

    async def close(self) -> None:
        self._closed = True
        self._idle.close()

    def _take(self) -> _Connection:
        if self._closed:
            raise Broken("this client was closed")
        return self._idle.take() or _Connection(self._route)


class _Connection:
    """One socket."""

    def __init__(self, route: Route) -> None:
        self.keeps = True
        self.used = 0.0
        self._patience = CONNECTING
        self._socket = socket.create_connection((route.host, route.port), timeout=CONNECTING)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if route.tls is not None:
                self._socket = route.tls.wrap_socket(self._socket, server_hostname=route.host)
        except BaseException:
            self.close()
            raise

    def ask(self, request: bytes, patience: float) -> Reply:
        """The reply to a request."""
        if patience != self._patience:
            self._socket.settimeout(patience)
            self._patience = patience
        self._socket.sendall(request)
        reading = Reading()
        while (reply := reading.feed(self._socket.recv(_CHUNK))) is None:
            pass
        self.keeps = reading.keeps
        return reply

    def is_alive(self) -> bool:
        return not has_news(self._socket.fileno())

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()
