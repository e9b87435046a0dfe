"""Counts what the statements of a store read: pages and rows, by the database's own account."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import msgspec

from fairlead.storage.postgres.connection.connect import connect
from fairlead.storage.postgres.connection.pool import Connections
from fairlead.storage.postgres.connection.session import BlockingSession, Row
from fairlead.storage.postgres.statements import Statement
from fairlead.storage.postgres.store import PostgresStore
from fairlead.storage.postgres.url import parse


class Counting:
    """Explains what each statement does, undoes that and runs it."""

    def __init__(self, inner: Connections, url: str) -> None:
        address = parse(url)
        self._inner = inner
        self._session = BlockingSession(connect(address), address)
        self.pages = 0
        self.rows = 0
        self.plans: list[str] = []

    @classmethod
    def within(cls, store: PostgresStore, url: str) -> Counting:
        """Counts what this store reads from now on."""
        counting = cls(store._connections, url)
        parts: list[Any] = [store, store._adder, store._claimer, store._claimer._bounds, store._changer]
        for part in parts:
            part._connections = counting
        return counting

    async def fetch(self, statement: Statement, parameters: Sequence[Any] = ()) -> list[Row]:
        text = statement.text.decode()
        if not text.startswith(("SET ", "LOCK ")):
            await self._session.fetch(Statement("BEGIN", prepared=False))
            explain = Statement(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}", prepared=False)
            try:
                ((found,),) = await self._session.fetch(explain, parameters)
                plan = (found if isinstance(found, list) else msgspec.json.decode(found))[0]["Plan"]
                self.pages += sum(_pages(node) for node in [plan, *_unread(plan)])
                self.rows += sum(_rows(node) for node in _nodes(plan))
                self.plans.append(text)
            finally:
                await self._session.fetch(Statement("ROLLBACK", prepared=False))
        return await self._inner.fetch(statement, parameters)

    async def transaction(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        return await work(self)

    async def close(self) -> None:
        self._session.close()
        await self._inner.close()

    def stop(self) -> None:
        """Count no more."""
        self._session.close()

    async def steps(self, call: Awaitable[Any]) -> int:
        """The pages and rows that a call reads."""
        return await self.reads(call) + self.rows

    async def reads(self, call: Awaitable[Any]) -> int:
        """The pages that a call reads."""
        self.pages = self.rows = 0
        await call
        return self.pages


def _pages(node: dict[str, Any]) -> int:
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])


def _unread(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts that nothing reads: they run when the rest is done, and are not in its account."""
    nodes = list(_nodes(plan))
    read = {f"CTE {node['CTE Name']}" for node in nodes if "CTE Name" in node}
    return [
        node for node in nodes if node.get("Subplan Name", "").startswith("CTE ") and node["Subplan Name"] not in read
    ]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)


def _rows(node: dict[str, Any]) -> int:
    """The rows that a part of a plan gave and those that it passed over."""
    passed = sum(number for name, number in node.items() if name.startswith("Rows Removed by"))
    return int((node["Actual Rows"] + passed) * node["Actual Loops"])
