"""Opening the SQLite store by its URL."""

from __future__ import annotations

from fairlead.storage.sqlite.store import SqliteStore
from fairlead.storage.sqlite.url import parse


def open_sqlite(url: str, *, blocking: bool) -> SqliteStore:
    """The store at this URL."""
    address = parse(url)
    return SqliteStore(address.path, blocking=blocking, synchronous=address.synchronous)
