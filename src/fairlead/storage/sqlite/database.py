"""The file: opening it, its settings, its schema, and what its errors mean."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Final

from fairlead.core.errors import StoreError, StoreFull, StoreMismatch, StoreReadOnly, StoreUnavailable

_APPLICATION_ID: Final = 0x66_6C_65_64
"""Marks the file as ours, so that another program's database is not written into."""

BUSY_TIMEOUT: Final = 5_000
"""Milliseconds that a write waits for another process's."""

_PRAGMAS: Final = (
    f"PRAGMA busy_timeout = {BUSY_TIMEOUT}",
    "PRAGMA journal_mode = WAL",
    "PRAGMA foreign_keys = OFF",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -65536",
    "PRAGMA wal_autocheckpoint = 1000",
    "PRAGMA journal_size_limit = 67108864",
)


def connect(path: Path, *, synchronous: str) -> sqlite3.Connection:
    """A connection to the file, which is created if it is not there; transactions are the caller's."""
    with errors_named(path):
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
        try:
            for pragma in _PRAGMAS:
                connection.execute(pragma)
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            migrate(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the schema up to date; a file that is not ours or is newer than this code is refused."""
    steps = _migrations()
    if _version(connection, path) == len(steps):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection, path)
        for number, script in enumerate(steps[version:], start=version + 1):
            for statement in script.split(";\n"):
                connection.execute(statement)
            connection.execute("INSERT INTO migration (version) VALUES (?)", (number,))
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection, path: Path) -> int:
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if mark == 0 and tables == 0:
        return 0
    if mark != _APPLICATION_ID:
        raise StoreMismatch(f"{path} is a database of another program; give fairlead a file of its own")
    (version,) = connection.execute("SELECT max(version) FROM migration").fetchone()
    newest = len(_migrations())
    if version > newest:
        raise StoreMismatch(
            f"{path} has schema version {version} and this fairlead knows {newest}; upgrade fairlead to open it"
        )
    return int(version)


def _migrations() -> list[str]:
    folder = resources.files(__package__) / "migrations"
    return [file.read_text() for file in sorted(folder.iterdir(), key=lambda file: file.name) if file.name[0].isdigit()]


@contextlib.contextmanager
def errors_named(path: Path) -> Iterator[None]:
    """Turns SQLite's errors into ours, with the file and the remedy."""
    try:
        yield
    except sqlite3.Error as error:
        raise named(error, path) from error


def named(error: sqlite3.Error, path: Path) -> StoreError:
    """Our error for one of SQLite's."""
    # The low byte is the primary code; the rest only says more closely where it happened.
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_FULL:
            return StoreFull(f"the disk of {path} is full; nothing was stored. Free some space and repeat the call")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return StoreReadOnly(
                f"{path} cannot be written ({error}); nothing was stored. Make the file and its folder writable for "
                f"this user"
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreUnavailable(
                f"{path} was locked by another process for {BUSY_TIMEOUT / 1000:g} s; nothing was stored. Repeat the "
                f"call, and look for a process that holds the file"
            )
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return StoreMismatch(f"{path} is not a readable SQLite database ({error}); restore it or use another file")
        case sqlite3.SQLITE_CANTOPEN:
            return StoreUnavailable(f"{path} cannot be opened ({error}); check that its folder exists and is writable")
        case _:
            return StoreUnavailable(f"{path}: {error}; whether the call took effect is unknown, repeating it is safe")
