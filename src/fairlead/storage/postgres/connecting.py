"""New connections, set up, with a limit on how long an exchange may take."""

from __future__ import annotations

from typing import Final, TypeVar

from psycopg import AsyncConnection, AsyncRawCursor, Connection, RawCursor
from psycopg.abc import PQGen

from fairlead.storage.postgres.address import Address
from fairlead.storage.postgres.rows import Row

Result = TypeVar("Result")

GRACE: Final = 0.5
"""How much longer than the server's own limit a call waits for the answer."""

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
    connection.limit = address.timeout + GRACE
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
    connection.limit = address.timeout + GRACE
    if address.prepare:
        text, parameters = session_settings(address)
        try:
            await AsyncRawCursor(connection).execute(text.encode(), parameters, prepare=False)
        except BaseException:
            await connection.close()
            raise
    return connection
