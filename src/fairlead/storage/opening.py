"""Opening a store by its URL."""

from __future__ import annotations

import contextlib
import importlib
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
_MODULES: Final = {
    "memory": "memory",
    "sqlite": "sqlite.opening",
    "redis": "redis.store",
    "rediss": "redis.store",
    "postgresql": "postgres.store",
    "postgres": "postgres.store",
}
"""Where the store of each scheme is, but for what the scheme says after a plus."""


def check_url(url: str) -> None:
    """Raise InvalidSettings if no store can be at this URL."""
    scheme = urlsplit(url).scheme
    if scheme not in _EXTRAS:
        raise InvalidSettings(
            f"store URL {url!r} has the unknown scheme {scheme!r}; use memory://, sqlite:///path/to/file.db, "
            f"redis://host or postgresql://host/database"
        )


def prepare_store(url: str, *, journal: str | None = None) -> None:
    """Import what it takes to open this store, so that whoever uses it first need not wait for that too."""
    scheme = urlsplit(url).scheme.partition("+")[0]
    # What is not installed is for `open_store` to say.
    with contextlib.suppress(ImportError):
        for module in (_MODULES[scheme],) if journal is None else ("redis.noting", "journal.opening"):
            importlib.import_module(f"fairlead.storage.{module}")


async def open_store(url: str, *, journal: str | None = None, blocking: bool = False) -> Store:
    """The store at this URL, ready for use; with the URL of a journal, that is behind it.

    With `blocking`, its coroutines do their work in the calling thread and never suspend, so that synchronous code can
    drive them without an event loop; it is then safe for threads.
    """
    check_url(url)
    scheme = urlsplit(url).scheme
    try:
        if journal is not None:
            return await _open_with_journal(url, journal, blocking)
        return await _open(scheme, url, blocking)
    except ModuleNotFoundError as error:
        extra = _EXTRAS[scheme] if journal is None else "redis,postgres"
        if extra is None or (error.name or "").startswith("fairlead"):
            raise
        raise InvalidSettings(
            f"store URL {url!r} needs the package {error.name!r}; pip install 'fairlead[{extra}]'"
        ) from None


def check_journal(url: str, journal: str | None) -> None:
    """Raise InvalidSettings if a store at this URL cannot have this journal."""
    if journal is None:
        return
    if urlsplit(journal).scheme not in {"postgresql", "postgres"}:
        raise InvalidSettings("a journal is kept in PostgreSQL; use postgresql://host/database for it")
    if not urlsplit(url).scheme.startswith("redis"):
        raise InvalidSettings(
            f"a store at {urlsplit(url).scheme}:// has no use for a journal; give it to redis://host, or leave it out"
        )


async def _open_with_journal(url: str, journal: str, blocking: bool) -> Store:
    check_journal(url, journal)
    from fairlead.storage.journal.opening import open_journal
    from fairlead.storage.redis.noting import open_noting_redis

    hot = await open_noting_redis(url, blocking=blocking)
    try:
        return await open_journal(hot, journal, blocking=blocking)
    except BaseException:
        await hot.close()
        raise


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
