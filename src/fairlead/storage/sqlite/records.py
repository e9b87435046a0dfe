"""Small versioned records: a row each."""

from __future__ import annotations

import sqlite3

from fairlead.storage.sqlite.database import statement
from fairlead.storage.values import (
    Record,
)


def put(connection: sqlite3.Connection, kind: str, name: str, value: bytes, expected: int | None) -> int | None:
    row = connection.execute(statement("records.version"), (kind, name)).fetchone()
    version = int(row[0]) if row else 0
    if expected is not None and expected != version:
        return None
    connection.execute(statement("records.put"), (kind, name, value, version + 1))
    return version + 1


def drop(connection: sqlite3.Connection, kind: str, name: str, expected: int | None) -> bool:
    return connection.execute(statement("records.drop"), (kind, name, expected)).rowcount == 1


def scan(connection: sqlite3.Connection, kind: str) -> list[Record]:
    rows = connection.execute(statement("records.all"), (kind,))
    return [Record(kind=kind, name=name, value=value, version=version) for name, value, version in rows]
