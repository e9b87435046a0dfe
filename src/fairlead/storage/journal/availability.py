"""Whether the journal answers, as one process knows.

A journal that hangs takes the whole time of each call that asks it, and one command, or one request, may have to ask it
several times. So what was waited for in vain is remembered. After any vain wait, whoever can do without an answer does
not ask for a few seconds; once a whole call's time was waited for in vain, and nothing was answered meanwhile, nobody
does: they are told so at once. One answer ends that. So one statement that takes too long, of a journal that answers
others, keeps nobody away.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final, TypeVar

from fairlead.core.errors import StoreError, StoreUnavailable
from fairlead.storage.postgres.connection.pool import Connections
from fairlead.storage.postgres.connection.session import Row, Session
from fairlead.storage.postgres.statements import Statement
from fairlead.storage.postgres.url import Address

Result = TypeVar("Result")

PAUSE: Final = 3.0
"""Seconds for which a journal is not asked that did not answer."""

_ENOUGH: Final = 0.9
"""Of a call's time: a server that lives gives up by itself a little earlier."""


class Reach:
    """Remembers what was waited for in vain."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._waited = 0.0
        """Seconds since the last answer in which somebody waited."""
        self._failed_at: float | None = None
        """When the last one of them gave up; None after an answer."""

    @property
    def doubtful(self) -> bool:
        """Whether somebody has just waited in vain: who can do without an answer does not ask."""
        return self._failed_at is not None and time.monotonic() < self._failed_at + PAUSE

    async def ask(self, question: Callable[[], Awaitable[Result]], of_others: Collection[StoreError] = ()) -> Result:
        """The answer; raises StoreUnavailable at once if it would be waited for in vain.

        Errors that the question puts among those of others say nothing of the journal.
        """
        began = time.monotonic()
        if self.doubtful and self._waited >= self._address.timeout * _ENOUGH:
            raise StoreUnavailable(
                f"{self._address.shown} has just not answered within {self._address.timeout:g} s, so it was not asked; "
                f"nothing was done, and repeating the call is safe"
            )
        try:
            answer = await question()
        except StoreError as error:
            if error not in of_others:
                if isinstance(error, StoreUnavailable):
                    self._gave_up(began)
                else:
                    self._answered()
            raise
        self._answered()
        return answer

    def _gave_up(self, began: float) -> None:
        # Those who wait at the same time wait once.
        now = time.monotonic()
        self._waited += now - max(began, self._failed_at or began)
        self._failed_at = now

    def _answered(self) -> None:
        self._waited, self._failed_at = 0.0, None


class ReachedConnections:
    """Connections to the journal, which are not used while it does not answer."""

    def __init__(self, connections: Connections, reach: Reach) -> None:
        self._connections = connections
        self._reach = reach

    async def fetch(self, statement: Statement, parameters: Sequence[Any] = ()) -> list[Row]:
        """The rows a statement returns, committed."""
        return await self._reach.ask(lambda: self._connections.fetch(statement, parameters))

    async def transaction(self, work: Callable[[Session], Awaitable[Result]]) -> Result:
        """What the work answers, in one transaction; it may be done more than once."""
        theirs: list[StoreError] = []

        async def theirs_apart(session: Session) -> Result:
            try:
                return await work(session)
            except StoreError as error:
                # Not the journal's: its own are none of ours yet.
                theirs.append(error)
                raise

        return await self._reach.ask(lambda: self._connections.transaction(theirs_apart), theirs)

    async def close(self) -> None:
        """Close all connections."""
        await self._connections.close()
