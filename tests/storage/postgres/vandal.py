"""Damaging tasks in PostgreSQL."""

from __future__ import annotations

import psycopg

from fairlead.core.identity import TaskId
from fairlead.storage.postgres.url import parse
from fairlead.testing.vandalism import Change, Part

_COLUMNS = {"spec": "spec", "status": "rest"}


class DatabaseVandal:
    """Damages tasks in a database, which keeps of a status only what no statement looks at as bytes."""

    def __init__(self, url: str) -> None:
        self._address = parse(url)

    async def __call__(self, task_id: TaskId, part: Part, change: Change, *, tidy: bool = False) -> None:
        column, table = _COLUMNS[part], f'"{self._address.schema}".task'
        with psycopg.connect(self._address.conninfo) as connection:
            found = connection.execute(f"SELECT {column} FROM {table} WHERE id = %s".encode(), (task_id,)).fetchone()
            assert found is not None
            changed = (change(bytes(found[0])), task_id)
            connection.execute(f"UPDATE {table} SET {column} = %s WHERE id = %s".encode(), changed)

    def mended(self, parts: dict[str, bytes], part: Part, change: Change) -> dict[str, bytes]:
        column = _COLUMNS[part]
        return {**parts, column: change(parts[column])}
