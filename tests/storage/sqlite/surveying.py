"""Looking at a store's file from outside, with nothing but SQL."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

from fairlead.core.task import State


def survey(path: Path) -> Counter[str]:
    """Hold the file to what must always be true of it; how many tasks are in each state."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("BEGIN")
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert _lane_counts(connection) == _real_counts(connection)
        assert _numbers(connection, "status") == _numbers(connection, "task")
        keys_of_no_task = "SELECT count(*) FROM key WHERE id NOT IN (SELECT id FROM status)"
        assert connection.execute(keys_of_no_task).fetchone() == (0,)
        return Counter(dict(connection.execute("SELECT state, count(*) FROM status GROUP BY state")))


def completed(connection: sqlite3.Connection) -> int:
    """How many tasks the lanes say are completed."""
    (tasks,) = connection.execute("SELECT coalesce(sum(completed), 0) FROM lane").fetchone()
    return int(tasks)


def log_size(path: Path) -> int:
    """The bytes of the write-ahead log."""
    log = path.with_name(path.name + "-wal")
    return log.stat().st_size if log.exists() else 0


def _lane_counts(connection: sqlite3.Connection) -> dict[tuple[int, str], int]:
    columns = ", ".join(state.value for state in State)
    return {
        (lane, state.value): tasks
        for lane, *counts in connection.execute(f"SELECT lane, {columns} FROM lane")
        for state, tasks in zip(State, counts, strict=True)
        if tasks
    }


def _real_counts(connection: sqlite3.Connection) -> dict[tuple[int, str], int]:
    rows = connection.execute("SELECT lane, state, count(*) FROM status GROUP BY lane, state")
    return {(lane, state): tasks for lane, state, tasks in rows}


def _numbers(connection: sqlite3.Connection, table: str) -> list[int]:
    return [number for (number,) in connection.execute(f"SELECT number FROM {table} ORDER BY number")]
