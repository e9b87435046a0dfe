"""Requests from an event loop, each on a connection that carries no other meanwhile."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Final, cast

from fairlead.client.http.connection_pool import Idle, has_news
from fairlead.client.http.http1 import Reading, Route
from fairlead.client.http.transport import CONNECTING, PATIENCE, Address, Broken, Reply, unreachable

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
