"""The feed: publishers take turns, so that no position is readable before a lower one."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.core.instant import Instant
from fairlead.storage.feed_positions import number_at, position_of, trims
from fairlead.storage.postgres import binary_arrays
from fairlead.storage.postgres.connection.pool import Connections
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
            rows = await self._connections.fetch(
                self._statements["feed.publish"], (now, binary_arrays.byteas(list(values)))
            )
            published = int(rows[0][0])
        if trims(published, len(values), keep):
            await self._connections.fetch(self._statements["feed.trim"], (keep,))

    async def feed(self, after: str | None, limit: int) -> list[FeedEntry]:
        """The entries beyond a position."""
        rows = await self._connections.fetch(self._statements["feed.read"], (number_at(after), max(limit, 0)))
        return [FeedEntry(position_of(position), value) for position, value in rows]

    async def end(self) -> str:
        """The position of the end."""
        rows = await self._connections.fetch(self._statements["feed.end"])
        return position_of(rows[0][0] if rows else 0)
