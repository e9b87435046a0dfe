"""Opening a store by its URL."""

from __future__ import annotations

from urllib.parse import urlsplit

from fairlead.core.errors import InvalidSettings
from fairlead.storage.protocol import Store


async def open_store(url: str, *, blocking: bool = False) -> Store:
    """The store at this URL, ready for use.

    With `blocking`, its coroutines do their work in the calling thread and never suspend, so that synchronous code can
    drive them without an event loop; it is then safe for threads.
    """
    match urlsplit(url).scheme:
        case "memory":
            from fairlead.storage.memory import MemoryStore

            return MemoryStore()
        case "sqlite":
            from fairlead.storage.sqlite.opening import open_sqlite

            return open_sqlite(url, blocking=blocking)
        case scheme:
            raise InvalidSettings(
                f"store URL {url!r} has the unknown scheme {scheme!r}; use memory:// or sqlite:///path/to/file.db"
            )
