"""The asyncio transport: one connection per server carries all calls, one behind the other.

Replies come in the order of their commands, so concurrent calls need no pool and share system calls. Commands that hold
a connection up get one of their own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, cast

import hiredis

from fairlead.core.errors import StoreError
from fairlead.storage.redis.address import Address, Host
from fairlead.storage.redis.node import Interrupted, Patience, Release
from fairlead.storage.redis.wire import Broken, Greeting, Reply, greet, greeting, reader, tls_context

_LAST_WORDS: Final = 2.0
"""Seconds that a server has, once an exchange is cancelled, to say what it has done."""


class _Exchange:
    """Commands under way."""

    __slots__ = ("answer", "count", "deadline", "replies")

    def __init__(self, answer: asyncio.Future[list[Reply]], count: int, deadline: float) -> None:
        self.answer = answer
        self.count = count
        self.deadline = deadline
        self.replies: list[Reply] = []


class _Stream(asyncio.Protocol):
    """One connection. When it breaks, everything under way on it fails, and it is not used again."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._reader = reader()
        self._under_way: deque[_Exchange] = deque()
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._trouble = "it was closed"
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                exchange = self._under_way[0]
                exchange.replies.append(reply)
                if len(exchange.replies) == exchange.count:
                    self._under_way.popleft()
                    if not exchange.answer.done():
                        exchange.answer.set_result(exchange.replies)
        except (hiredis.ProtocolError, IndexError) as error:
            self._break(f"it sent what is no reply: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._break(str(exc) if exc else self._trouble)

    async def exchange(self, payload: bytes, count: int, timeout: float, release: Release | None = None) -> list[Reply]:
        if not self.is_open or self._transport is None:
            raise Broken(f"the connection to Redis at {self._host} was lost: {self._trouble}", sent=False)
        exchange = _Exchange(self._loop.create_future(), count, self._loop.time() + timeout)
        self._under_way.append(exchange)
        self._transport.write(payload)
        if self._watch is None:
            self._watch = self._loop.call_at(exchange.deadline, self._check)
        try:
            return await exchange.answer
        except asyncio.CancelledError:
            if release is not None:
                await self._interrupt(exchange, release)
            raise

    def close(self) -> None:
        self._break("it was closed")

    async def _interrupt(self, exchange: _Exchange, release: Release) -> None:
        """Raise what an exchange that was cancelled has come to, if that can still be learnt."""
        if len(exchange.replies) < exchange.count:
            if not self.is_open:
                return
            exchange.answer = self._loop.create_future()
            # It may end after no one waits for it any more, and then asyncio would complain that no one looked.
            exchange.answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
            try:
                async with asyncio.timeout(_LAST_WORDS):
                    await release()
                    await exchange.answer
            except (StoreError, Broken, TimeoutError):
                return
        raise Interrupted(exchange.replies)

    def _check(self) -> None:
        """One timer for all that is under way: replies come in order, so the first is always the oldest."""
        self._watch = None
        if not self._under_way:
            return
        oldest = self._under_way[0]
        if oldest.deadline <= self._loop.time():
            self._break("it gave no answer in time")
        else:
            self._watch = self._loop.call_at(oldest.deadline, self._check)

    def _break(self, trouble: str) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self.is_open:
            self._trouble = trouble
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()
        while self._under_way:
            answer = self._under_way.popleft().answer
            if not answer.done():
                message = f"the connection to Redis at {self._host} was lost: {self._trouble}"
                answer.set_exception(Broken(message, sent=True))


class StreamingNode:
    """One server over asyncio. See `fairlead.storage.redis.node.Node`."""

    def __init__(self, host: Host, address: Address, *, sentinel: bool) -> None:
        self.host = host
        self._address = address
        self._sentinel = sentinel
        self._patience = Patience()
        self._connecting = asyncio.Lock()
        self._stream: _Stream | None = None
        self._idle: list[_Stream] = []
        self._alone: set[_Stream] = set()
        self.greeted: Greeting | None = None
        self._closed = False

    async def greeting(self) -> Greeting:
        if self.greeted is None:
            await self._shared()
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
        limit = self._address.timeout if timeout is None else timeout
        if alone:
            return await self._exchange_alone(payload, count, limit, release)
        stream = self._stream
        if stream is None or not stream.is_open:
            stream = await self._shared()
        return await stream.exchange(payload, count, limit)

    def close(self) -> None:
        self._closed = True
        for stream in (*self._idle, *self._alone, self._stream):
            if stream is not None:
                stream.close()
        self._idle.clear()

    def _is_closed(self) -> bool:
        """Asked anew after an await: another task may have closed the node meanwhile."""
        return self._closed

    async def _exchange_alone(self, payload: bytes, count: int, timeout: float, release: Release | None) -> list[Reply]:
        while self._idle and not self._idle[-1].is_open:
            self._idle.pop()
        stream = self._idle.pop() if self._idle else await self._connect()
        self._alone.add(stream)
        try:
            replies = await stream.exchange(payload, count, timeout, release)
        except BaseException:
            # Cancelled, perhaps: a reply may still come, and must not be taken for the next one's.
            stream.close()
            raise
        finally:
            self._alone.discard(stream)
        if self._is_closed():
            stream.close()
        else:
            self._idle.append(stream)
        return replies

    async def _shared(self) -> _Stream:
        """The connection that carries all calls; made by the first to need it while the others wait."""
        async with self._connecting:
            if self._stream is None or not self._stream.is_open:
                self._stream = await self._connect()
            return self._stream

    async def _connect(self) -> _Stream:
        if self._closed:
            raise Broken(f"the connection to Redis at {self.host} was closed", sent=False)
        if (seconds := self._patience.pause()) > 0:
            await asyncio.sleep(seconds)
        stream = _Stream(self.host)
        try:
            await self._open(stream)
        except (OSError, TimeoutError, Broken) as error:
            self._patience.failed()
            stream.close()
            trouble = str(error) or f"no connection within {self._address.timeout:g} s"
            raise Broken(f"Redis at {self.host} cannot be reached: {trouble}", sent=False) from error
        except BaseException:
            stream.close()
            raise
        if self._is_closed():
            # Closed while it was being made, as in a failover: no one else would close it.
            stream.close()
            raise Broken(f"the connection to Redis at {self.host} was closed", sent=False)
        self._patience.succeeded()
        return stream

    async def _open(self, stream: _Stream) -> None:
        context = tls_context(self._address)
        async with asyncio.timeout(self._address.timeout):
            await asyncio.get_running_loop().create_connection(
                lambda: stream,
                self.host.name,
                self.host.port,
                ssl=context,
                server_hostname=self.host.name if context else None,
            )
        replies = await stream.exchange(*greet(self._address, sentinel=self._sentinel), self._address.timeout)
        self.greeted = greeting(replies)
