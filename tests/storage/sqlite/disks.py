"""Disks that are soon full."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from fairlead.storage.sqlite.store import SqliteStore

_SIZE = 1_500_000
_BALLAST = 500_000


class Disk(Protocol):
    """A disk with little space for a store's file."""

    path: Path

    def open(self) -> SqliteStore:
        """The store on this disk."""
        ...

    def free_some_space(self) -> None:
        """As someone does who is told that the disk is full."""
        ...


class TinyDisk:
    """A real filesystem, with a file on it that is not needed."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "tasks.db"
        self._ballast = folder / "ballast"
        self._ballast.write_bytes(bytes(_BALLAST))

    def open(self) -> SqliteStore:
        return SqliteStore(self.path)

    def free_some_space(self) -> None:
        self._ballast.unlink()


class TinyFile:
    """A file that SQLite itself keeps small, for users who may not mount: it answers as if the disk were full."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "tasks.db"
        self._connections: list[sqlite3.Connection] = []

    def open(self) -> SqliteStore:
        store = SqliteStore(self.path)
        connection: sqlite3.Connection = store._writer._connection  # type: ignore[attr-defined]
        connection.execute(f"PRAGMA max_page_count = {(_SIZE - _BALLAST) // 4_096}")
        self._connections.append(connection)
        return store

    def free_some_space(self) -> None:
        for connection in self._connections:
            connection.execute(f"PRAGMA max_page_count = {_SIZE // 4_096}")


@contextmanager
def tiny_disk(folder: Path) -> Iterator[Disk]:
    """A real filesystem; skips where it cannot be had."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root may mount a filesystem of its own; the tiny file stands for it")
    try:
        yield TinyDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
