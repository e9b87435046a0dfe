"""The SQL, one file per statement, read once."""

from __future__ import annotations

import functools
import itertools
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).with_name("sql")
_ROWS_AT_ONCE: Final = (100, 10, 1)
"""Few sizes, so that each is prepared once and found again."""


@functools.cache
def statement(name: str) -> str:
    """The statement in `sql/<name>.sql`."""
    return (_FOLDER / f"{name}.sql").read_text()


def write_rows(connection: sqlite3.Connection, name: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Run a statement for rows of values, many at a time.

    It costs SQLite the same as one by one. But it is one long call, during which the interpreter's other threads run,
    where one by one they would be in each other's way at every row.
    """
    if not rows:
        return
    start = 0
    for size in _ROWS_AT_ONCE:
        while len(rows) - start >= size:
            chunk = rows[start : start + size]
            connection.execute(_for_rows(name, len(chunk[0]), size), list(itertools.chain.from_iterable(chunk)))
            start += size


@functools.cache
def _for_rows(name: str, columns: int, rows: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return statement(name).format(rows=", ".join([row] * rows))
