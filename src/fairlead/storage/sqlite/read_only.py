"""Reads of a file that this process may not write: each opens the file as it is then, and leaves nothing beside it.

SQLite's readers share an index beside the file. Where there is none, making it is forbidden, or would leave one behind
that the file's owner may not write. There the file is read as if nobody could change it, and again if somebody did.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Final

from msgspec import Struct

from fairlead.core.errors import StoreReadOnly
from fairlead.storage.deadline import left
from fairlead.storage.sqlite.database import (
    PATIENCE,
    Connection,
    Memory,
    check_version,
    is_busy,
    locked,
    named,
    transact,
)
from fairlead.storage.sqlite.runner import Operation, Result

_PAUSE: Final = 0.005


class _Way(Struct, frozen=True):
    """How the file is opened."""

    query: str
    locking: str = "NORMAL"
    held: bool = False
    """Whether locks keep what is read as it is."""


_SHARED: Final = _Way("mode=ro&readonly_shm=1", held=True)
_LOGGED: Final = _Way("mode=ro&vfs=unix-none", locking="EXCLUSIVE")
"""With a log and no index beside the file: SQLite makes one in memory if it thinks that it is alone."""
_PLAIN: Final = _Way("mode=ro&immutable=1")


class _Changed(Exception):
    """Somebody wrote while we read without locks."""


def may_write(path: Path) -> bool:
    """Whether this process may write the file and all that belongs to it; or may try to make it."""
    parts = (path, *_beside(path))
    there = [part for part in parts if part.exists()]
    if path not in there:
        return True
    if not all(os.access(part, os.W_OK) for part in there):
        return False
    return len(there) == len(parts) or os.access(path.parent, os.W_OK)


def refusal(path: Path) -> StoreReadOnly:
    """Our error for a change of what was opened for reading."""
    error = StoreReadOnly(
        f"{path} cannot be written (it, or its folder, is read-only for this user); nothing was stored. Make the file "
        f"and its folder writable for this user, and start this process again"
    )
    error.lasting = True
    return error


class Refuser:
    """Runs nothing: it stands where operations that write would be run."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def run(self, operation: Operation[Result], *, alone: Operation[Result | None] | None = None) -> Result:
        raise refusal(self._path)

    async def close(self) -> None:
        """There is nothing to close."""


class Reader:
    """Runs operations that read, each on a connection of its own."""

    def __init__(self, path: Path, *, blocking: bool, synchronous: str, patience: float = PATIENCE) -> None:
        self._path = path
        self._blocking = blocking
        self._synchronous = synchronous
        self._patience = patience
        # What cannot be read is told when it is opened, like everywhere.
        self._read(lambda _: None)

    async def run(self, operation: Operation[Result], *, alone: Operation[Result | None] | None = None) -> Result:
        if self._blocking:
            return self._read(operation)
        return await asyncio.to_thread(self._read, operation)

    async def close(self) -> None:
        """Nothing is open between two reads."""

    def _read(self, operation: Operation[Result]) -> Result:
        deadline = time.monotonic() + left(self._patience)
        while True:
            try:
                return self._try(operation, deadline)
            except _Changed:
                if time.monotonic() >= deadline:
                    raise locked(self._path, self._patience) from None
            except sqlite3.Error as error:
                if not is_busy(error) or time.monotonic() >= deadline:
                    raise named(error, self._path, self._patience) from error
            time.sleep(_PAUSE)

    def _try(self, operation: Operation[Result], deadline: float) -> Result:
        before = _look(self._path)
        way = _way_to(self._path)
        try:
            return self._run(operation, way, deadline)
        finally:
            # Whatever came of it: half of what somebody wrote may also look like damage.
            if not way.held and _look(self._path) != before:
                raise _Changed

    def _run(self, operation: Operation[Result], way: _Way, deadline: float) -> Result:
        address = f"{self._path.as_uri()}?{way.query}"
        opened = sqlite3.connect(address, uri=True, isolation_level=None, factory=Connection)
        with contextlib.closing(opened) as connection:
            connection.memory = Memory()
            connection.execute(f"PRAGMA locking_mode = {way.locking}")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")

            def read(reading: Connection) -> Result:
                check_version(reading, self._path)
                return operation(reading)

            return transact(connection, "BEGIN", read, deadline)


def _beside(path: Path) -> tuple[Path, Path]:
    """The log and its index."""
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def _way_to(path: Path) -> _Way:
    log, index = _beside(path)
    if log.exists() and index.exists():
        return _SHARED
    return _LOGGED if log.exists() and log.stat().st_size else _PLAIN


def _look(path: Path) -> list[tuple[int, int, int] | None]:
    """What the file and what is beside it look like: a write shows."""
    return [_face(part) for part in (path, *_beside(path))]


def _face(part: Path) -> tuple[int, int, int] | None:
    try:
        found = part.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
