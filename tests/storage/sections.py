"""The statements in the SQL files of the stores, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from fairlead import storage

STORAGE: Final = Path(storage.__file__).parent

_BEGINNING: Final = re.compile(r"^-- name: (.*)\n", re.MULTILINE)


def sections(file: Path) -> list[tuple[str, str]]:
    """The name and the text of each section; what is before the first one comes without a name."""
    before, *rest = _BEGINNING.split(file.read_text(encoding="utf-8"))
    named = list(zip(rest[::2], rest[1::2], strict=True))
    return [("", before), *named] if before else named


def files(store: str) -> list[Path]:
    return sorted((STORAGE / store / "sql").iterdir())


def names(store: str) -> list[str]:
    return [name for file in files(store) for name, _ in sections(file)]
