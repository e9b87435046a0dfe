"""What is gone is forgotten: routes without tasks, and lane groups without routes.

A submit finds its route by name and may be anywhere between that and its commit. So a route first loses its name, when
nobody is known to rely on it, and is removed an hour later if no task has come to it.
"""

from __future__ import annotations

from typing import Any

from fairlead.storage.postgres import binary_arrays
from fairlead.storage.postgres.connection.pool import Connections
from fairlead.storage.postgres.connection.session import Session
from fairlead.storage.postgres.statements import Statements


class Routes:
    """The routes of a store, as far as they are to be forgotten."""

    def __init__(self, connections: Connections, statements: Statements) -> None:
        self._connections = connections
        self._statements = statements
        self._unused: frozenset[int] = frozenset()
        """Those that had no task when last looked at."""

    async def forget(self) -> None:
        """Forget what had no task the last time either: what is used now and then stays."""
        unused = frozenset(route for (route,) in await self._fetch("routes.unused"))
        hidden, self._unused = self._unused & unused, unused
        ((in_use,),) = await self._fetch("routes.in_use")
        if in_use:
            return

        async def work(session: Session) -> None:
            await session.fetch(self._statements["routes.lock"])
            if hidden:
                await session.fetch(self._statements["routes.hide"], (binary_arrays.int4s(sorted(hidden)),))
            await session.fetch(self._statements["routes.forget"])

        await self._connections.transaction(work)

    async def _fetch(self, name: str) -> list[Any]:
        return await self._connections.fetch(self._statements[name])
