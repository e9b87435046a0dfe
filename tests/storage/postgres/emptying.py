"""Openings that give an empty store again and again, in one database: far quicker than a database each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg

from fairlead.storage.postgres.store import open_postgres
from fairlead.storage.postgres.url import parse
from fairlead.storage.protocol import Store
from fairlead.testing.steps import Opening


def emptied(url: str, *, blocking: bool = False) -> Opening:
    """Opens the store at this URL with nothing in it."""

    @asynccontextmanager
    async def opening() -> AsyncIterator[Store]:
        empty(url)
        store = await open_postgres(url, blocking=blocking)
        try:
            yield store
        finally:
            await store.close()

    return opening


def empty(url: str, *, thoroughly: bool = False) -> None:
    """Remove all tasks and records; thoroughly, to leave no trace of many of them in the files either."""
    address = parse(url)
    with psycopg.connect(address.conninfo, autocommit=True) as connection:
        names = (
            "task",
            "dependent",
            "tally",
            "key",
            "record",
            "front",
            "nudge",
            "look",
            "due",
            "route",
            "bound",
            "lowered",
            "type_set_member",
            "type_set",
            "lane_group",
            "feed",
            "feed_end",
        )
        tables = [f'"{address.schema}".{name}' for name in names]
        with connection.transaction():
            # Waits for whoever a failed test left at work; truncating would take longer than most tests.
            for table in tables:
                connection.execute(f"{'TRUNCATE' if thoroughly else 'DELETE FROM'} {table}".encode())
