"""The feed: publishers take turns, so that no position is readable before a lower one."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.core.instant import Instant
from fairlead.storage.positions import number_at, position_of, trims
from fairlead.storage.postgres import arrays
from fairlead.storage.postgres.connections import Connections
from fairlead.storage.postgres.statements import Statements
from fairlead.storage.values import FeedEntry


class Feeder:
    """The part of a store that keeps the feed."""

    def __init__(self, connections: Connections, statements: Statements) -> None:
        self._connections = connections
        self._statements = statements

    async def publish(self, values: Sequence[bytes], now: Instant, keep: int) -> None:
        """Put values into the feed, and now and then trim it."""
        published = 0
        if values:
            rows = await self._connections.fetch(self._statements["publish"], (now, arrays.byteas(list(values))))
            published = int(rows[0][0])
        if trims(published, len(values), keep):
            await self._connections.fetch(self._statements["trim"], (keep,))

    async def feed(self, after: str | None, limit: int) -> list[FeedEntry]:
        """The entries beyond a position."""
        rows = await self._connections.fetch(self._statements["feed"], (number_at(after), max(limit, 0)))
        return [FeedEntry(position_of(position), value) for position, value in rows]

    async def end(self) -> str:
        """The position of the end."""
        rows = await self._connections.fetch(self._statements["feed_end"])
        return position_of(rows[0][0] if rows else 0)
