"""Opening a store by its URL."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from fairlead.core.errors import InvalidSettings
from fairlead.storage.protocol import Store

SCHEMES: Final = ("memory", "sqlite")


def check_url(url: str) -> None:
    """Raise InvalidSettings if no store can be at this URL."""
    scheme = urlsplit(url).scheme
    if scheme not in SCHEMES:
        raise InvalidSettings(
            f"store URL {url!r} has the unknown scheme {scheme!r}; use memory:// or sqlite:///path/to/file.db"
        )


async def open_store(url: str, *, blocking: bool = False) -> Store:
    """The store at this URL, ready for use.

    With `blocking`, its coroutines do their work in the calling thread and never suspend, so that synchronous code can
    drive them without an event loop; it is then safe for threads.
    """
    check_url(url)
    match urlsplit(url).scheme:
        case "memory":
            from fairlead.storage.memory import MemoryStore

            return MemoryStore()
        case "sqlite":
            from fairlead.storage.sqlite.opening import open_sqlite

            return open_sqlite(url, blocking=blocking)
        case scheme:
            raise NotImplementedError(scheme)
