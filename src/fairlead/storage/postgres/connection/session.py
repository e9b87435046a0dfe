"""Sessions with the server: one connection each, with a limit on how long an exchange may take.

A session speaks to libpq itself. psycopg's cursors look up how to send each parameter, wait with timers and events of
their own and describe each answer, which takes longer than the exchange. Our parameters have the wire's form already;
what is left to psycopg is to connect, to say what an error is and to load rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result

from fairlead.storage.postgres.connection.connect import LimitedAsyncConnection, LimitedConnection, limit
from fairlead.storage.postgres.rows import Row as Row
from fairlead.storage.postgres.statements import Statement
from fairlead.storage.postgres.url import Address

Result = TypeVar("Result")

_IDLE_CHECK: Final = 1.0
"""Seconds after which an idle connection is looked at before use: the server may have gone meanwhile."""
_CANCEL_WITHIN: Final = 0.5
"""Seconds that a server has to give up on a call that was cancelled; then its connection is closed."""
_INT8: Final = struct.Struct("!q").pack
_BINARY: Final = pq.Format.BINARY

# The level is named also where a pooler keeps the session's own default from us: what is read after a lock must be what
# is there then.
_BEGIN: Final = Statement("BEGIN ISOLATION LEVEL READ COMMITTED", prepared=False)
_COMMIT: Final = Statement("COMMIT", prepared=False)
_ROLLBACK: Final = Statement("ROLLBACK", prepared=False)


class Late(psycopg.OperationalError):
    """The server did not answer in time."""


class Session(Protocol):
    """Runs statements, one after the other."""

    async def fetch(self, statement: Statement, parameters: Sequence[Any] = ()) -> list[Row]:
        """The rows a statement returns; none if it returns no rows."""
        ...


def _sent(value: Any) -> bytes | None:
    """A parameter in the wire's binary form, for the type that every statement names it with."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool):
        return b"\x01" if value else b"\x00"
    if isinstance(value, int):
        return _INT8(value)
    if isinstance(value, UUID):
        return value.bytes
    raise TypeError(f"{value!r} cannot be a parameter")


class _Exchanging(ABC):
    """Sends statements and takes in their answers, one after the other."""

    def __init__(self, connection: LimitedConnection | LimitedAsyncConnection, address: Address) -> None:
        self.used_at = time.monotonic()
        self._address = address
        self._prepare = connection.prepares
        self._libpq = connection.pgconn
        self._socket = connection.fileno()
        self._encoding = connection.info.encoding
        self._loader = Transformer(connection)
        self._names: dict[Statement, bytes] = {}
        """Of the statements that are prepared."""
        self._named = 0
        """How many names were given: none is given twice, as one that was interrupted may be prepared all the same."""
        self._result: pq.abc.PGresult | None = None

    async def fetch(self, statement: Statement, parameters: Sequence[Any] = ()) -> list[Row]:
        """The rows a statement returns; none if it returns no rows."""
        values = [_sent(value) for value in parameters]
        formats = [_BINARY] * len(values)
        if not (statement.prepared and self._prepare):
            self._libpq.send_query_params(statement.text, values, None, formats, _BINARY)
            return await self._rows()
        name = self._names.get(statement)
        if name is None:
            name = b"fairlead_%d" % self._named
            self._named += 1
            self._libpq.send_prepare(name, statement.text)
            await self._rows()
            self._names[statement] = name
        self._libpq.send_query_prepared(name, values, formats, _BINARY)
        return await self._rows()

    async def transaction(self, work: Callable[[Session], Awaitable[Result]]) -> Result:
        """What the work answers, committed; if it raises, nothing is."""
        await self.fetch(_BEGIN)
        try:
            answer = await work(self)
        except BaseException:
            # A connection that broke, or is still busy, is not used again; with it goes the transaction.
            with contextlib.suppress(psycopg.Error):
                await self.fetch(_ROLLBACK)
            raise
        await self.fetch(_COMMIT)
        return answer

    @property
    def broken(self) -> bool:
        """Whether a session that is not in use cannot be used again."""
        return self._libpq.transaction_status != pq.TransactionStatus.IDLE

    @property
    def stale(self) -> bool:
        """Whether an idle session has been closed by the server: only then has it something to say."""
        if self.broken:
            return True
        if time.monotonic() - self.used_at < _IDLE_CHECK:
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    @abstractmethod
    async def _answered(self) -> None:
        """Wait until what was sent is answered, and no longer than the limit."""

    async def _rows(self) -> list[Row]:
        await self._answered()
        result, self._result = self._result, None
        if result is None:
            raise psycopg.OperationalError("the connection was lost")
        match result.status:
            case pq.ExecStatus.TUPLES_OK:
                self._loader.set_pgresult(result, format=_BINARY)
                return self._loader.load_rows(0, result.ntuples, tuple)
            case pq.ExecStatus.COMMAND_OK:
                return []
            case _:
                raise error_from_result(result, self._encoding)

    def _take_in(self) -> bool:
        """Take in what has come; whether the answer is complete."""
        self._libpq.consume_input()
        while not self._libpq.is_busy():
            result = self._libpq.get_result()
            if result is None:
                return True
            self._result = result
        return False


class BlockingSession(_Exchanging):
    """A session of a thread, which waits for answers."""

    def __init__(self, connection: LimitedConnection, address: Address) -> None:
        super().__init__(connection, address)
        self._poll = select.poll()
        self._connection = connection

    def close(self) -> None:
        self._connection.close()

    async def _answered(self) -> None:
        deadline = time.monotonic() + limit(self._address)
        while True:
            unsent = self._libpq.flush()
            self._poll.register(self._socket, select.POLLIN | select.POLLOUT if unsent else select.POLLIN)
            if not self._poll.poll(max(deadline - time.monotonic(), 0) * 1_000):
                raise Late
            if self._take_in():
                return


class AsyncSession(_Exchanging):
    """A session of an event loop, which tells when there is something to take in."""

    def __init__(self, connection: LimitedAsyncConnection, address: Address) -> None:
        super().__init__(connection, address)
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[None] | None = None
        self._deadline = 0.0
        """When the exchange under way must have its answer."""
        self._watch: asyncio.TimerHandle | None = None
        """Rings for one exchange and then, if another is under way by now, for that: none pays for a timer."""
        self._writing = False
        self._hears = True
        self._loop.add_reader(self._socket, self._readable)

    async def close(self) -> None:
        self._deafen()
        if self._watch is not None:
            self._watch.cancel()
        await self._connection.close()

    async def _answered(self) -> None:
        self._answer = answer = self._loop.create_future()
        self._deadline = deadline = self._loop.time() + limit(self._address)
        if self._watch is None or deadline < self._watch.when():
            self._ring_at(deadline)
        self._writable()
        try:
            await answer
        except asyncio.CancelledError:
            await self._cancel()
            raise
        finally:
            self._answer = None

    async def _cancel(self) -> None:
        """Have the server give up on what was sent. A session for which that fails stays busy and is not used again."""
        if self._libpq.transaction_status == pq.TransactionStatus.ACTIVE:
            self._answer = answer = self._loop.create_future()
            with contextlib.suppress(psycopg.Error, TimeoutError):
                async with asyncio.timeout(_CANCEL_WITHIN):
                    await self._connection.cancel_safe(timeout=_CANCEL_WITHIN)
                    await answer
        self._result = None

    def _readable(self) -> None:
        try:
            complete = self._take_in()
        except psycopg.Error as error:
            self._deafen()
            self._fail(error)
            return
        if complete and self._answer is not None and not self._answer.done():
            self._answer.set_result(None)

    def _writable(self) -> None:
        try:
            unsent = self._libpq.flush()
        except psycopg.Error as error:
            self._deafen()
            self._fail(error)
            return
        if unsent and not self._writing:
            self._loop.add_writer(self._socket, self._writable)
        elif self._writing and not unsent:
            self._loop.remove_writer(self._socket)
        self._writing = bool(unsent)

    def _ring_at(self, deadline: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self._loop.call_at(deadline, self._check)

    def _check(self) -> None:
        self._watch = None
        if self._answer is None:
            return
        if self._deadline <= self._loop.time():
            self._fail(Late())
        else:
            self._ring_at(self._deadline)

    def _fail(self, error: psycopg.Error) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def _deafen(self) -> None:
        """Once only: libpq closes the socket of a connection that broke, and its number is soon another's."""
        if self._hears:
            self._hears = False
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
