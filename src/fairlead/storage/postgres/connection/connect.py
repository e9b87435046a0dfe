"""New connections, set up, with a limit on how long an exchange may take."""

from __future__ import annotations

import math
from typing import Any, Final, TypeVar

from psycopg import AsyncConnection, AsyncRawCursor, Connection, OperationalError, RawCursor
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo, timeout_from_conninfo

from fairlead.storage.deadline import left
from fairlead.storage.login import Login, ask, ask_in_thread
from fairlead.storage.postgres.errors import is_refusal
from fairlead.storage.postgres.rows import Row
from fairlead.storage.postgres.url import Address

Result = TypeVar("Result")

_SERVER_SHARE: Final = 0.9
"""Of a call's time, what the server has: if it is alive, it says itself that it gave up."""

_SHORTEST: Final = 1e-3

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


def session_settings(address: Address) -> tuple[str, list[Any]]:
    """What a session is set up with, as a list of calls, and their parameters; the server limits every call too."""
    settings = _SESSION | {"statement_timeout": f"{address.timeout * _SERVER_SHARE * 1000:.0f}"}
    calls = ", ".join(f"set_config(${2 * n + 1}, ${2 * n + 2}, false)" for n in range(len(settings)))
    return calls, [word for setting in settings.items() for word in setting]


class LimitedConnection(Connection[Row]):
    """A connection whose every exchange with the server takes at most `limit` seconds."""

    limit: float | None = None
    prepares = False
    """Whether statements are prepared on it."""

    def wait(self, gen: PQGen[Result], interval: float = 0.1, timeout: float | None = None) -> Result:
        return super().wait(gen, interval, self.limit if timeout is None else timeout)


class LimitedAsyncConnection(AsyncConnection[Row]):
    """The same for an event loop."""

    limit: float | None = None
    prepares = False

    async def wait(self, gen: PQGen[Result], interval: float = 0.1, timeout: float | None = None) -> Result:
        return await super().wait(gen, interval, self.limit if timeout is None else timeout)


def open_connection(address: Address) -> LimitedConnection:
    """A new connection for synchronous code, as the server gives it."""
    login = None if address.credentials is None else ask(address.credentials)
    try:
        return LimitedConnection.connect(_told(address, login), autocommit=True, prepare_threshold=None)
    except OperationalError as error:
        # What was given may have been changed since, or be one that was kept too long.
        if address.credentials is None or not is_refusal(error) or (newer := ask(address.credentials)) == login:
            raise
    return LimitedConnection.connect(_told(address, newer), autocommit=True, prepare_threshold=None)


async def open_async_connection(address: Address) -> LimitedAsyncConnection:
    """A new connection for an event loop, as the server gives it."""
    asked = address.credentials
    login = None if asked is None else await ask_in_thread(asked, address.timeout)
    try:
        return await LimitedAsyncConnection.connect(_told(address, login), autocommit=True, prepare_threshold=None)
    except OperationalError as error:
        if asked is None or not is_refusal(error) or (newer := await ask_in_thread(asked, address.timeout)) == login:
            raise
    return await LimitedAsyncConnection.connect(_told(address, newer), autocommit=True, prepare_threshold=None)


def connect(address: Address) -> LimitedConnection:
    """A new connection for synchronous code, set up."""
    connection = open_connection(address)
    connection.limit = limit(address)
    if address.prepare is not False:
        text, parameters = _setup(address, connection.info.backend_pid)
        try:
            row = RawCursor(connection).execute(text, parameters, prepare=False).fetchone()
        except BaseException:
            connection.close()
            raise
        connection.prepares = row is not None and row[0] is True
    return connection


async def connect_async(address: Address) -> LimitedAsyncConnection:
    """A new connection for an event loop, set up."""
    connection = await open_async_connection(address)
    connection.limit = limit(address)
    if address.prepare is not False:
        text, parameters = _setup(address, connection.info.backend_pid)
        try:
            row = await (await AsyncRawCursor(connection).execute(text, parameters, prepare=False)).fetchone()
        except BaseException:
            await connection.close()
            raise
        connection.prepares = row is not None and row[0] is True
    return connection


def _setup(address: Address, process: int) -> tuple[bytes, list[Any]]:
    """A statement that sets up a session if it is ours, and its parameters; it answers whether it is.

    The server's process is known from the greeting. A pooler greets with a number that it made up, since it gives a
    client whichever server process is free: then what is set would be another client's, and so would be what is
    prepared.
    """
    setting, parameters = session_settings(address)
    if address.prepare:
        return f"SELECT true, {setting}".encode(), parameters
    ours = f"pg_backend_pid() = ${len(parameters) + 1}::int"
    return f"SELECT {ours}, CASE WHEN {ours} THEN row({setting}) END".encode(), [*parameters, str(process)]


def limit(address: Address) -> float:
    """Seconds that an exchange with the server may take now."""
    return max(left(address.timeout), _SHORTEST)


def _told(address: Address, login: Login | None) -> str:
    """What libpq is told: where to connect, as whom if that was asked, and by when if the call has a deadline.

    That is in whole seconds, as libpq counts them.
    """
    more: dict[str, str | int] = {}
    if login is not None:
        more["password"] = login.password
        if login.username is not None:
            more["user"] = login.username
    longest = left(math.inf)
    if longest != math.inf:
        asked = timeout_from_conninfo(conninfo_to_dict(address.conninfo))
        more["connect_timeout"] = max(math.ceil(min(longest, asked)), 1)
    return make_conninfo(address.conninfo, **more) if more else address.conninfo
