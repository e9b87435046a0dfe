"""Where a SQLite store is: everything its URL says."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Struct

from fairlead.core.errors import InvalidSettings
from fairlead.core.secret_mask import masked

SYNCHRONOUS: Final = ("FULL", "NORMAL", "EXTRA")


class Address(Struct, frozen=True):
    """A file, and how durable what is written to it is."""

    path: Path
    synchronous: str


def parse(url: str) -> Address:
    """The file at `sqlite:///relative/path.db` or `sqlite:////absolute/path.db`, `?synchronous=normal` if need be."""
    parts = urlsplit(url)
    path = unquote(parts.path.removeprefix("/"))
    if parts.netloc or not path:
        raise InvalidSettings(
            f"store URL {masked(url)!r} names no file; write sqlite:///tasks.db for a file in the working folder and "
            f"sqlite:////var/lib/tasks.db for one anywhere"
        )
    if path == ":memory:":
        raise InvalidSettings(f"store URL {masked(url)!r}: for tasks that need not outlive the process use memory://")
    options = parse_qs(parts.query, keep_blank_values=True)
    synchronous = options.pop("synchronous", ["FULL"])[-1]
    if options:
        raise InvalidSettings(
            f"store URL {masked(url)!r} has the unknown option {min(options)!r}; only synchronous is known"
        )
    if synchronous.upper() not in SYNCHRONOUS:
        raise InvalidSettings(f"synchronous={synchronous!r} is unknown; use one of {', '.join(SYNCHRONOUS)}")
    return Address(Path(path), synchronous)
