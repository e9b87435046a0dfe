"""Opening the SQLite store by its URL."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from fairlead.core.errors import InvalidSettings
from fairlead.storage.sqlite.store import SqliteStore


def open_sqlite(url: str, *, blocking: bool) -> SqliteStore:
    """The store at `sqlite:///relative/path.db` or `sqlite:////absolute/path.db`, `?synchronous=normal` if need be."""
    parts = urlsplit(url)
    path = unquote(parts.path.removeprefix("/"))
    if parts.netloc or not path:
        raise InvalidSettings(
            f"store URL {url!r} names no file; write sqlite:///tasks.db for a file in the working folder and "
            f"sqlite:////var/lib/tasks.db for one anywhere"
        )
    if path == ":memory:":
        raise InvalidSettings(f"store URL {url!r}: for tasks that need not outlive the process use memory://")
    options = parse_qs(parts.query)
    synchronous = options.pop("synchronous", ["FULL"])[-1]
    if options:
        raise InvalidSettings(f"store URL {url!r} has the unknown option {min(options)!r}; only synchronous is known")
    return SqliteStore(Path(path), blocking=blocking, synchronous=synchronous)
