"""Opening a store by its URL."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from fairlead.core.errors import InvalidSettings
from fairlead.storage.protocol import Store

_EXTRAS: Final = {
    "memory": None,
    "sqlite": None,
    "redis": "redis",
    "rediss": "redis",
    "redis+sentinel": "redis",
    "rediss+sentinel": "redis",
    "redis+cluster": "redis",
    "rediss+cluster": "redis",
    "postgresql": "postgres",
    "postgres": "postgres",
}
"""The schemes, and the extra that must be installed for each."""


def check_url(url: str) -> None:
    """Raise InvalidSettings if no store can be at this URL."""
    scheme = urlsplit(url).scheme
    if scheme not in _EXTRAS:
        raise InvalidSettings(
            f"store URL {url!r} has the unknown scheme {scheme!r}; use memory://, sqlite:///path/to/file.db, "
            f"redis://host or postgresql://host/database"
        )


async def open_store(url: str, *, blocking: bool = False) -> Store:
    """The store at this URL, ready for use.

    With `blocking`, its coroutines do their work in the calling thread and never suspend, so that synchronous code can
    drive them without an event loop; it is then safe for threads.
    """
    check_url(url)
    scheme = urlsplit(url).scheme
    try:
        return await _open(scheme, url, blocking)
    except ModuleNotFoundError as error:
        extra = _EXTRAS[scheme]
        if extra is None or (error.name or "").startswith("fairlead"):
            raise
        raise InvalidSettings(
            f"store URL {url!r} needs the package {error.name!r}; pip install 'fairlead[{extra}]'"
        ) from None


async def _open(scheme: str, url: str, blocking: bool) -> Store:
    match scheme.partition("+")[0]:
        case "memory":
            from fairlead.storage.memory import MemoryStore

            return MemoryStore()
        case "sqlite":
            from fairlead.storage.sqlite.opening import open_sqlite

            return open_sqlite(url, blocking=blocking)
        case "redis" | "rediss":
            from fairlead.storage.redis.store import open_redis

            return await open_redis(url, blocking=blocking)
        case _:
            from fairlead.storage.postgres.store import open_postgres

            return await open_postgres(url, blocking=blocking)
