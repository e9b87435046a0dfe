"""What a connection remembers of the tasks that it has claimed, so that their settle need not read them.

A worker settles nearly every task on the connection that claimed it, with nothing in between. SQLite tells whether
anyone else, in this process or another, has written to the file meanwhile: then nothing that was remembered counts.
What this connection writes itself it takes note of, and a transaction that is rolled back takes all memories with it.
"""

from __future__ import annotations

import sqlite3
from typing import TypeAlias

from fairlead.core.identity import TaskId
from fairlead.core.task import Status

Standing: TypeAlias = tuple[int, int, Status, str | None]
"""A task's number, its lane, how it stands, and its concurrency key."""


class Memory:
    """How claimed tasks stand, by id."""

    def __init__(self) -> None:
        self._tasks: dict[TaskId, Standing] = {}
        self._version: int | None = None

    def current(self, connection: sqlite3.Connection) -> dict[TaskId, Standing]:
        """Those that stand so in the transaction under way; the caller keeps it true of what it writes."""
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._version = version
            self._tasks.clear()
        return self._tasks

    def forget(self) -> None:
        self._tasks.clear()
