"""SQLite alone: one table, one connection, synchronous=FULL."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from typing import Final

from bench.ceilings import Ceiling

_TABLE: Final = """
CREATE TABLE waiting (
    id INTEGER PRIMARY KEY,
    priority INTEGER NOT NULL,
    state INTEGER NOT NULL DEFAULT 0,
    payload BLOB NOT NULL
);
CREATE INDEX ready ON waiting (priority, id) WHERE state = 0;
"""
_INSERT: Final = "INSERT INTO waiting (priority, payload) VALUES (2, ?)"
_CLAIM: Final = """
UPDATE waiting SET state = 1 WHERE id IN (
    SELECT id FROM waiting WHERE state = 0 ORDER BY priority, id LIMIT ?
) RETURNING id
"""
_PAYLOAD: Final = (b'{"number":1}',)
_BULK: Final = 1_000
_CLAIMED: Final = 100


def measure(path: str, *, single: int, waiting: int) -> list[Ceiling]:
    """What SQLite does with statements that nobody thought about for long."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(_TABLE)
        return [
            Ceiling("INSERT, a commit for each", _inserted(connection, single, 1), "submit one by one"),
            Ceiling("INSERT, a commit for 1,000", _inserted(connection, waiting, _BULK), "submit in bulk of 1,000"),
            Ceiling("INSERT, one commit for all", _inserted(connection, waiting, waiting)),
            Ceiling("UPDATE by 100 to claim, then to settle", _claimed(connection, waiting), "run, 1 process"),
        ]


def _inserted(connection: sqlite3.Connection, count: int, by: int) -> float:
    began = time.perf_counter()
    for _ in range(count // by):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(_INSERT, [_PAYLOAD] * by)
        connection.execute("COMMIT")
    return count / (time.perf_counter() - began)


def _claimed(connection: sqlite3.Connection, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count // _CLAIMED):
        held = connection.execute(_CLAIM, (_CLAIMED,)).fetchall()
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("UPDATE waiting SET state = 2 WHERE id = ?", held)
        connection.execute("COMMIT")
    return count / (time.perf_counter() - began)
