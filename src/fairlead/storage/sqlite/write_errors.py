"""Whose fault it is when a write fails in Python: the caller's, whose values cannot be stored, or the file's.

Reads are given nothing that might not be stored, so for them the file is to blame. A write is tried again on an empty
file of its own: what fails there as well has nothing to do with what is stored.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from fairlead.storage.quarantine import UNDECODABLE
from fairlead.storage.sqlite.database import Connection, connect, transact
from fairlead.storage.sqlite.write import apply, status_row
from fairlead.storage.values import Change

_NUMBER: Final = 1


def is_callers(write: Callable[[Connection], object]) -> bool:
    """Whether what a write was given cannot be stored anywhere."""
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(_empty(Path(folder))) as connection:
        try:
            transact(connection, "BEGIN IMMEDIATE", write)
        except UNDECODABLE:
            return True
    return False


def store_all(connection: Connection, changes: Sequence[Change]) -> None:
    """Store what changes would make of tasks, though the tasks are not there."""
    apply(connection, changes)
    for change in changes:
        if change.status is not None:
            status_row(_NUMBER, change.id, _NUMBER, change.status)


def _empty(folder: Path) -> Connection:
    return connect(folder / "empty.db", synchronous="OFF")
