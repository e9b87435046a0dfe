"""Sessions with the server: one connection each, set up, with a limit on how long an exchange may take."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeVar

from psycopg import AsyncConnection, AsyncRawCursor, Connection, IsolationLevel, RawCursor, pq
from psycopg.abc import PQGen

from fairlead.storage.postgres import arrays
from fairlead.storage.postgres.address import Address
from fairlead.storage.postgres.rows import Row as Row
from fairlead.storage.postgres.statements import Statement

Result = TypeVar("Result")

_IDLE_CHECK: Final = 1.0
"""Seconds after which an idle connection is looked at before use: the server may have gone meanwhile."""
_GRACE: Final = 0.5
"""How much longer than the server's own limit a call waits for the answer."""
_ISOLATION: Final = IsolationLevel.READ_COMMITTED
"""Of transactions, also where a pooler keeps the session's own default from us: what is read after a lock must be what
is there then."""

_SESSION: Final = {
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": "10s",
    # A plan made while the table was small must still be right when it is large.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}


class Session(Protocol):
    """Runs statements, one after the other."""

    async def fetch(self, statement: Statement, parameters: Sequence[Any] = ()) -> list[Row]:
        """The rows a statement returns; none if it returns no rows."""
        ...


def session_settings(address: Address) -> tuple[str, list[str]]:
    """A statement that sets up a session, and its parameters; every call is limited on the server's side too."""
    settings = _SESSION | {"statement_timeout": f"{address.timeout * 1000:.0f}"}
    calls = ", ".join(f"set_config(${2 * n + 1}, ${2 * n + 2}, false)" for n in range(len(settings)))
    return f"SELECT {calls}", [word for setting in settings.items() for word in setting]


class LimitedConnection(Connection[Row]):
    """A connection whose every exchange with the server takes at most `limit` seconds."""

    limit: float | None = None

    def wait(self, gen: PQGen[Result], interval: float = 0.1, timeout: float | None = None) -> Result:
        return super().wait(gen, interval, self.limit if timeout is None else timeout)


class LimitedAsyncConnection(AsyncConnection[Row]):
    """The same for an event loop."""

    limit: float | None = None

    async def wait(self, gen: PQGen[Result], interval: float = 0.1, timeout: float | None = None) -> Result:
        return await super().wait(gen, interval, self.limit if timeout is None else timeout)


def connect(address: Address) -> LimitedConnection:
    """A new connection for synchronous code, set up."""
    connection = LimitedConnection.connect(address.conninfo, autocommit=True)
    connection.limit = address.timeout + _GRACE
    connection.isolation_level = _ISOLATION
    connection.prepare_threshold = 0 if address.prepare else None
    arrays.register(connection)
    if address.prepare:
        text, parameters = session_settings(address)
        try:
            RawCursor(connection).execute(text.encode(), parameters, prepare=False)
        except BaseException:
            connection.close()
            raise
    return connection


async def connect_async(address: Address) -> LimitedAsyncConnection:
    """A new connection for an event loop, set up."""
    connection = await LimitedAsyncConnection.connect(address.conninfo, autocommit=True)
    connection.limit = address.timeout + _GRACE
    await connection.set_isolation_level(_ISOLATION)
    connection.prepare_threshold = 0 if address.prepare else None
    arrays.register(connection)
    if address.prepare:
        text, parameters = session_settings(address)
        try:
            await AsyncRawCursor(connection).execute(text.encode(), parameters, prepare=False)
        except BaseException:
            await connection.close()
            raise
    return connection


class BlockingSession:
    """Runs statements on one connection, in the calling thread."""

    def __init__(self, connection: LimitedConnection, prepare: bool) -> None:
        self.connection = connection
        self.used_at = time.monotonic()
        self._cursor = RawCursor(connection)
        self._prepare = prepare

    async def fetch(self, statement: Statement, parameters: Sequence[Any] = ()) -> list[Row]:
        cursor = self._cursor
        cursor.execute(statement.text, parameters, prepare=statement.prepared and self._prepare, binary=True)
        return cursor.fetchall() if has_rows(cursor) else []


class AsyncSession:
    """Runs statements on one connection of an event loop."""

    def __init__(self, connection: LimitedAsyncConnection, prepare: bool) -> None:
        self.connection = connection
        self.used_at = time.monotonic()
        self._cursor = AsyncRawCursor(connection)
        self._prepare = prepare

    async def fetch(self, statement: Statement, parameters: Sequence[Any] = ()) -> list[Row]:
        cursor = self._cursor
        await cursor.execute(statement.text, parameters, prepare=statement.prepared and self._prepare, binary=True)
        return await cursor.fetchall() if has_rows(cursor) else []


def has_rows(cursor: RawCursor[Row] | AsyncRawCursor[Row]) -> bool:
    """Whether a statement that was run returns rows. The cursor's description would say so too, by building it."""
    return cursor.pgresult is not None and cursor.pgresult.status == pq.ExecStatus.TUPLES_OK


def is_broken(session: BlockingSession | AsyncSession) -> bool:
    """Whether a session that is not in use cannot be used again."""
    connection = session.connection
    return connection.closed or connection.pgconn.transaction_status != pq.TransactionStatus.IDLE


def is_stale(session: BlockingSession | AsyncSession) -> bool:
    """Whether an idle session has been closed by the server: only then has it something to say."""
    if is_broken(session):
        return True
    if time.monotonic() - session.used_at < _IDLE_CHECK:
        return False
    poll = select.poll()
    poll.register(session.connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
