"""The SQL of a store: a few files in one folder, one per operation, with a named section for each statement.

A section begins with the line `-- name: <file>.<statement>`. Below are comments, which say what the statement does, its
parameters and what it returns, and then the statement.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

_NAME: Final = "-- name: "


def statements_in(folder: Path) -> Callable[[str], str]:
    """What finds the statements of a folder by their names.

    Each is read when it is first asked for, without its comments: they are for readers of the file, not for the
    database. The rest of its file is not kept: most processes use few of the statements.
    """

    @cache
    def statement(name: str) -> str:
        file, _, _ = name.partition(".")
        _, found, rest = (folder / f"{file}.sql").read_text(encoding="utf-8").partition(f"{_NAME}{name}\n")
        if not found:
            raise KeyError(name)
        section, _, _ = rest.partition(_NAME)
        return "\n".join(line for line in section.splitlines() if not line.lstrip().startswith("--")).strip()

    return statement
