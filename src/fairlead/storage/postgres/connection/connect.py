"""New connections, set up, with a limit on how long an exchange may take; and what PostgreSQL's errors mean to us."""

from __future__ import annotations

import math
import re
from typing import Any, Final, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor, Connection, OperationalError, RawCursor
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo, timeout_from_conninfo

from fairlead.core.errors import (
    StoreError,
    StoreFull,
    StoreMismatch,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
)
from fairlead.storage.deadline import Budget, left
from fairlead.storage.login import Login, ask, ask_in_thread
from fairlead.storage.postgres.rows import Row
from fairlead.storage.postgres.url import Address

SERIALIZATION_FAILURE: Final = "40001"
DEADLOCK: Final = "40P01"

_OUT_OF_SPACE: Final = frozenset({"53100", "53400"})
_READ_ONLY: Final = frozenset({"25006", "42501"})
_NO_SCHEMA: Final = frozenset({"42P01", "42703", "3F000", "42883"})
_CONSTRAINT: Final = "23"
_NO_DATABASE: Final = "3D"
_NOT_LET_IN: Final = "28"
_NOT_PREPARED: Final = frozenset({"26000", "42P05"})
_PASSING_CLASSES: Final = frozenset({"08", "40", "53", "55", "57", "58", "25"})


# Of a connection that failed libpq tells words alone, in the language of the server: what is said in another than
# English is taken for trouble that passes.
_NO_DATABASE_IN_WORDS: Final = re.compile(r'database ".*" does not exist|no such database')
_NOT_LET_IN_IN_WORDS: Final = re.compile(
    r"authentication failed|no password supplied|pg_hba\.conf|permission denied for database|no such user"
    r'|role ".*" (does not exist|is not permitted to log in)'
)


class Contradicted(StoreError):
    """A statement would have broken a constraint, and had no effect."""


def may_retry(error: psycopg.Error) -> bool:
    """Whether nothing happened and the same may succeed at once."""
    return error.sqlstate in {SERIALIZATION_FAILURE, DEADLOCK}


def named(error: psycopg.Error, address: Address) -> StoreError:
    """Our error for one of PostgreSQL's, with the place and the remedy."""
    place, code, text = address.shown, error.sqlstate, str(error).strip().split("\n")[0]
    if code in _OUT_OF_SPACE:
        return StoreFull(f"the disk of {place} is full ({text}); nothing was stored. Free some space and repeat it")
    if code in _READ_ONLY:
        return StoreReadOnly(
            f"{place} cannot be written ({text}); nothing was stored. Connect to the primary, with a role that may "
            f"write to schema {address.schema}"
        )
    if code in _NO_SCHEMA:
        return StoreMismatch(
            f"schema {address.schema} of {place} is not what this fairlead expects ({text}); run `fairlead migrate`"
        )
    if _says(error, _NO_DATABASE, _NO_DATABASE_IN_WORDS):
        return StoreMismatch(f"{place}: {text}; nothing was done. Create the database, or name another in the URL")
    if code in _NOT_PREPARED:
        return StoreError(
            f"{place}: {text}; nothing was done. A pooler, such as PgBouncer in transaction mode, does not keep what "
            f"is prepared: write prepare=off in the URL, or leave prepare=on out"
        )
    if is_refusal(error):
        return StoreRefused(
            f"{place} does not let us in: {text}; nothing was done. Check user and password in the URL, or what gives "
            f"the credentials, and what the server allows that user"
        )
    if code is not None and code[:2] == _CONSTRAINT:
        return Contradicted(f"{place}: {text}; nothing was done")
    if code is None or code[:2] in _PASSING_CLASSES:
        return StoreUnavailable(f"{place}: {text or type(error).__name__}; repeating the call is safe")
    return StoreError(f"{place}: {text} (SQLSTATE {code})")


def is_refusal(error: psycopg.Error) -> bool:
    """Whether the server does not let this user in, with this password."""
    return _says(error, _NOT_LET_IN, _NOT_LET_IN_IN_WORDS)


def _says(error: psycopg.Error, sqlstate_class: str, words: re.Pattern[str]) -> bool:
    """Whether this is what an error says: by its code, or if it has none by its words."""
    if error.sqlstate is not None:
        return error.sqlstate[:2] == sqlstate_class
    return words.search(str(error)) is not None


def timed_out(address: Address) -> StoreUnavailable:
    """Our error for a call that took too long."""
    return Budget(address.timeout, address.shown, blocking=False).spent()


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
