"""The feed: functions of a connection inside a transaction of someone else's.

A file has one writer, so positions become readable in their order.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from fairlead.core.instant import Instant
from fairlead.storage.feed_positions import BEFORE_ALL, number_at, position_of, trims
from fairlead.storage.sqlite.database import statement
from fairlead.storage.values import FeedEntry


def publish(connection: sqlite3.Connection, values: Sequence[bytes], now: Instant, keep: int) -> None:
    end, published = _end(connection)
    if values:
        first = max(end + 1, now)
        connection.executemany(statement("feed.add"), enumerate(values, start=first))
        published += len(values)
        connection.execute(statement("feed.move"), (first + len(values) - 1, published))
    if trims(published, len(values), keep):
        connection.execute(statement("feed.trim"), (keep,))


def feed(connection: sqlite3.Connection, after: str | None, limit: int) -> list[FeedEntry]:
    number = number_at(after)
    if number > _end(connection)[0]:
        number = BEFORE_ALL
    rows = connection.execute(statement("feed.read"), (number, max(limit, 0)))
    return [FeedEntry(position_of(position), value) for position, value in rows]


def feed_end(connection: sqlite3.Connection) -> str:
    return position_of(_end(connection)[0])


def _end(connection: sqlite3.Connection) -> tuple[int, int]:
    """The last position, and how many values were ever published."""
    position, published = connection.execute(statement("feed.end")).fetchone() or (0, 0)
    return position, published
