"""The SQL, one file per statement, read once."""

from __future__ import annotations

import functools
from importlib import resources


@functools.cache
def statement(name: str) -> str:
    """The statement in `sql/<name>.sql`."""
    return (resources.files(__package__) / "sql" / f"{name}.sql").read_text()
