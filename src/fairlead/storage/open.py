"""Opening a store by its URL."""

from __future__ import annotations

import contextlib
import importlib
from typing import Final

from fairlead.core import extras
from fairlead.core.errors import InvalidSettings
from fairlead.core.secret_mask import masked
from fairlead.core.validation import bad_setting, check_type, shown
from fairlead.storage.credentials import Credentials, check
from fairlead.storage.protocol import Store

_EXTRAS: Final = {
    "memory": (),
    "sqlite": (),
    "redis": ("redis",),
    "rediss": ("redis",),
    "redis+unix": ("redis",),
    "unix": ("redis",),
    "redis+sentinel": ("redis",),
    "rediss+sentinel": ("redis",),
    "redis+cluster": ("redis",),
    "rediss+cluster": ("redis",),
    "postgresql": ("postgres",),
    "postgres": ("postgres",),
}
"""The schemes, and the extras that must be installed for each."""
_MODULES: Final = {
    "memory": "memory",
    "sqlite": "sqlite.store",
    "redis": "redis.store",
    "rediss": "redis.store",
    "unix": "redis.store",
    "postgresql": "postgres.store",
    "postgres": "postgres.store",
}
"""Where the store of each scheme is, but for what the scheme says after a plus."""


def is_redis(url: str) -> bool:
    """Whether a store's URL is one of Redis, which may have a journal behind it."""
    return "redis" in _EXTRAS.get(_scheme(url), ())


def is_postgres(url: str) -> bool:
    """Whether a store's URL is one of PostgreSQL."""
    return "postgres" in _EXTRAS.get(_scheme(url), ())


def _scheme(url: str) -> str:
    """What a URL begins with. All else is read by those who know the scheme."""
    return url.partition(":")[0].lower()


def check_url(url: str) -> None:
    """Raise InvalidSettings if no store can be at this URL: what it says is read to the end, and nothing is opened."""
    check_type("store", url, str, "use a URL such as sqlite:///tasks.db", bad_setting)
    try:
        match (scheme := _scheme(url)).partition("+")[0]:
            case _ if scheme not in _EXTRAS:
                # What stands before a colon alone may be anything.
                unknown = f"the unknown scheme {shown(scheme)}" if "://" in url else "no scheme that is known"
                raise InvalidSettings(
                    f"store URL {shown(masked(url))} has {unknown}; use memory://, "
                    f"sqlite:///path/to/file.db, redis://host or postgresql://host/database"
                )
            case "sqlite":
                from fairlead.storage.sqlite import url as sqlite

                sqlite.parse(url)
            case "redis" | "rediss" | "unix":
                from fairlead.storage.redis import url as redis

                redis.parse_address(url)
            case "postgresql" | "postgres":
                # What is not installed is for `open_store` to say.
                with contextlib.suppress(ImportError):
                    from fairlead.storage.postgres import url as postgres

                    postgres.parse(url)
            case _:
                pass
    except InvalidSettings:
        raise
    except ValueError:
        # What Python says of it may hold a password.
        raise InvalidSettings("the store URL cannot be read: its host is not valid; write scheme://host:port") from None


def prepare_store(url: str, *, journal: str | None = None) -> None:
    """Import what it takes to open this store, so that whoever uses it first need not wait for that too."""
    scheme = _scheme(url).partition("+")[0]
    # What is not installed is for `open_store` to say.
    with contextlib.suppress(ImportError):
        for module in (_MODULES[scheme],) if journal is None else ("redis.outbox", "journal.store"):
            importlib.import_module(f"fairlead.storage.{module}")


async def open_store(
    url: str,
    *,
    journal: str | None = None,
    blocking: bool = False,
    credentials: Credentials | None = None,
    journal_credentials: Credentials | None = None,
) -> Store:
    """The store at this URL, ready for use; with the URL of a journal, that is behind it.

    With `blocking`, its coroutines do their work in the calling thread and never suspend, so that synchronous code can
    drive them without an event loop; it is then safe for threads. Credentials are asked for at each new connection to a
    server, unless the URL names a command that gives them.
    """
    check_url(url)
    check_credentials(url, journal, credentials, journal_credentials)
    scheme = _scheme(url)
    try:
        if journal is not None:
            check_journal(url, journal)
            return await _open_with_journal(url, journal, blocking, credentials, journal_credentials)
        return await _open(scheme, url, blocking, credentials)
    except ModuleNotFoundError as error:
        if extras.extra_of(error) is None:
            raise
        needed = _EXTRAS[scheme] if journal is None else ("redis", "postgres")
        raise InvalidSettings(
            f"store URL {masked(url)!r} needs the package {error.name!r}; {extras.install(*needed)}"
        ) from None


def check_journal(url: str, journal: str | None) -> None:
    """Raise InvalidSettings if a store at this URL cannot have this journal."""
    if journal is None:
        return
    check_type("journal", journal, str, "use a URL such as postgresql://host/database", bad_setting)
    if not is_postgres(journal):
        raise InvalidSettings("a journal is kept in PostgreSQL; use postgresql://host/database for it")
    if not is_redis(url):
        raise InvalidSettings(
            f"a store at {_scheme(url)}:// has no use for a journal; give it to redis://host, or leave it out"
        )
    # What is not installed is for `open_store` to say.
    with contextlib.suppress(ImportError):
        from fairlead.storage.journal import url as address

        address.parse_journal(journal)


def check_credentials(
    url: str, journal: str | None, credentials: object | None, journal_credentials: object | None
) -> None:
    """Raise InvalidSettings if these cannot be asked for, or would be asked by nobody."""
    if credentials is not None:
        check(credentials)
        if not is_redis(url) and not is_postgres(url):
            raise InvalidSettings(
                f"a store at {_scheme(url)}:// asks for no credentials; give them to redis:// or postgresql://, or "
                f"leave them out"
            )
    if journal_credentials is not None:
        check(journal_credentials, "journal_credentials")
        if journal is None:
            raise InvalidSettings("journal_credentials are given and there is no journal; name it, or leave them out")


async def _open_with_journal(
    url: str,
    journal: str,
    blocking: bool,
    credentials: Credentials | None,
    journal_credentials: Credentials | None,
) -> Store:
    from fairlead.storage.journal.store import open_journal
    from fairlead.storage.redis.outbox import open_noting_redis

    hot = await open_noting_redis(url, blocking=blocking, credentials=credentials)
    try:
        return await open_journal(hot, journal, blocking=blocking, credentials=journal_credentials)
    except BaseException:
        await hot.close()
        raise


async def _open(scheme: str, url: str, blocking: bool, credentials: Credentials | None) -> Store:
    match scheme.partition("+")[0]:
        case "memory":
            from fairlead.storage.memory import MemoryStore

            return MemoryStore()
        case "sqlite":
            from fairlead.storage.sqlite.store import open_sqlite

            return open_sqlite(url, blocking=blocking)
        case "redis" | "rediss" | "unix":
            from fairlead.storage.redis.store import open_redis

            return await open_redis(url, blocking=blocking, credentials=credentials)
        case _:
            from fairlead.storage.postgres.store import open_postgres

            return await open_postgres(url, blocking=blocking, credentials=credentials)
