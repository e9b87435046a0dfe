"""The asyncio transport: one connection per server carries all calls, one behind the other.

Replies come in the order of their commands, so concurrent calls need no pool and share system calls. Commands that hold
a connection up get one of their own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, cast

import hiredis

from fairlead.core.errors import StoreError, StoreRefused
from fairlead.storage.deadline import left
from fairlead.storage.login import ask_in_thread
from fairlead.storage.redis.client.resp import (
    Broken,
    Greeting,
    Interrupted,
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

    def __init__(self, host: Host, patience: float) -> None:
        """`patience` is how many seconds a server has, once an exchange is cancelled, to say what it has done."""
        self._host = host
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._reader = reader()
        self._under_way: deque[_Exchange] = deque()
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._trouble = "it was closed"
        self.is_open = False

    @property
    def is_made(self) -> bool:
        """Whether it ever was open."""
        return self._transport is not None

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
        """Raise what an exchange that was cancelled has come to; Broken if that cannot be learnt any more."""
        if len(exchange.replies) < exchange.count:
            if not self.is_open:
                raise Broken(f"the connection to Redis at {self._host} was lost: {self._trouble}", sent=True)
            exchange.answer = self._loop.create_future()
            # It may end after no one waits for it any more, and then asyncio would complain that no one looked.
            exchange.answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
            calling_back = self._loop.create_task(self._call_back(exchange, release))
            try:
                # Not by asyncio.timeout: in a task that was cancelled before, Python 3.11.2 does not tell its own
                # cancellation from that.
                if not (await asyncio.wait([calling_back], timeout=self._patience))[0]:
                    raise TimeoutError
                calling_back.result()
            except (StoreError, TimeoutError) as error:
                message = f"Redis at {self._host} does not say what became of a claim that was called back"
                raise Broken(message, sent=True) from error
            finally:
                calling_back.cancel()
        raise Interrupted(exchange.replies)

    async def _call_back(self, exchange: _Exchange, release: Release) -> None:
        await release()
        await exchange.answer

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
    """One server over asyncio. See `fairlead.storage.redis.client.resp.Node`."""

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

    def exchange(
        self,
        payload: bytes,
        count: int,
        *,
        timeout: float | None = None,
        alone: bool = False,
        release: Release | None = None,
    ) -> Coroutine[Any, Any, list[Reply]]:
        limit = self._address.timeout if timeout is None else timeout
        if alone:
            return self._exchange_alone(payload, count, left(limit), release)
        stream = self._stream
        if stream is None or not stream.is_open:
            return self._exchange_anew(payload, count, limit)
        # Not what is left of this call: the connection is others' too, and breaks when the server hangs.
        return stream.exchange(payload, count, limit)

    def renew(self) -> None:
        while self._idle:
            self._idle.pop().close()
        if (stream := self._stream) is not None:
            self._stream = None
            # Others' replies may be on their way, and say what was done.
            self._alone.add(stream)
            asyncio.get_running_loop().call_later(self._address.timeout, self._retire, stream)

    def close(self) -> None:
        self._closed = True
        for stream in (*self._idle, *self._alone, self._stream):
            if stream is not None:
                stream.close()
        self._idle.clear()

    def _retire(self, stream: _Stream) -> None:
        self._alone.discard(stream)
        stream.close()

    def _is_closed(self) -> bool:
        """Asked anew after an await: another task may have closed the node meanwhile."""
        return self._closed

    async def _exchange_anew(self, payload: bytes, count: int, timeout: float) -> list[Reply]:
        stream = await self._shared()
        return await stream.exchange(payload, count, timeout)

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
        limit = left(self._address.timeout)
        if (seconds := self._patience.pause()) > 0:
            await asyncio.sleep(min(seconds, limit))
        stream = _Stream(self.host, self._address.timeout)
        try:
            self.greeted = await self._greet(stream)
        except (OSError, TimeoutError, Broken) as error:
            self._patience.failed()
            stream.close()
            trouble = str(error) or f"no connection within {limit:g} s"
            tls = self._address.tls if stream.is_made else None
            raise unreachable(self.host, trouble, tls) from error
        except BaseException:
            stream.close()
            raise
        if self._is_closed():
            # Closed while it was being made, as in a failover: no one else would close it.
            stream.close()
            raise Broken(f"the connection to Redis at {self.host} was closed", sent=False)
        self._patience.succeeded()
        return stream

    async def _greet(self, stream: _Stream) -> Greeting:
        """Connect a stream and say the first words; raises a store error when the server refuses us."""
        address, timeout = self._address, self._address.timeout
        if self._sentinel:
            await self._open(stream)
            return greeting(await stream.exchange(*greet_sentinel(address), left(timeout)))
        credentials = address.credentials
        # Before the server is there to wait for them.
        login = None if credentials is None else await ask_in_thread(credentials, timeout)
        await self._open(stream)
        try:
            return greeting(await stream.exchange(*greet(address, login), left(timeout)))
        except StoreRefused:
            # It may have been changed since, or be one that was kept too long.
            if credentials is None or (newer := await ask_in_thread(credentials, timeout)) == login:
                raise
            return greeting(await stream.exchange(*greet(address, newer), left(timeout)))

    async def _open(self, stream: _Stream) -> None:
        loop, host, tls = asyncio.get_running_loop(), self.host, self._address.tls
        async with asyncio.timeout(left(self._address.timeout)):
            if host.is_socket:
                await loop.create_unix_connection(lambda: stream, host.name)
            elif tls is None:
                await loop.create_connection(lambda: stream, host.name, host.port)
            else:
                context, name = tls_context(tls), tls.name_of(host)
                await loop.create_connection(lambda: stream, host.name, host.port, ssl=context, server_hostname=name)
