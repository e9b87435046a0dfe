"""Openings that give an empty store again and again, in one database: far quicker than a database each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fairlead.storage.journal.url import parse_journal
from fairlead.storage.postgres.store import open_postgres
from fairlead.storage.postgres.url import parse
from fairlead.storage.protocol import Store
from fairlead.testing.steps import Opening
from tests.servers.postgres import run_together

_TABLES: Final = (
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
    "line_turn",
    "feed",
    "feed_end",
)
_JOURNAL_TABLES: Final = ("task", "status", "record", "marked")


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
    # Waits for whoever a failed test left at work; truncating would take longer than most tests.
    words = "TRUNCATE" if thoroughly else "DELETE FROM"
    run_together(address.conninfo, [f'{words} "{address.schema}".{table}' for table in _TABLES])


def empty_journal(url: str) -> None:
    """Leave a journal as it is at first."""
    address = parse_journal(url).database
    schema = f'"{address.schema}"'
    run_together(
        address.conninfo,
        [
            *(f"DELETE FROM {schema}.{table}" for table in _JOURNAL_TABLES),
            f"UPDATE {schema}.mark SET name = md5(random()::text), number = 0, whole = true",
            f"UPDATE {schema}.duty SET until = 0, at = 0, id = '{'0' * 32}'::uuid",
        ],
    )
