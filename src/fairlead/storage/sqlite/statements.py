"""The statements of `sql/`, and those that take many rows."""

from __future__ import annotations

import functools
import itertools
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fairlead.storage.sql_files import statements_in

# Not by `importlib.resources`, which is for packages inside archives and brings in what reads and makes those.
FOLDER: Final = Path(__file__).parent

statement: Final = statements_in(FOLDER / "sql")
"""The statement of a name."""

_ROWS_AT_ONCE: Final = (100, 10, 1)
"""Few sizes, so that each is prepared once and found again."""


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
