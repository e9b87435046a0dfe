"""What happened in a campaign: what was asked for, what was acknowledged, what ran, and what the store holds after it.

Every process appends lines to a file. A line is one write to the kernel, which keeps it when the process is killed.
Moments are microseconds of this machine's clock, as in the store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from fairlead.core.instant import Instant
from fairlead.core.task import Task


class Asked(Struct, frozen=True):
    """A submit was about to be called for this number."""

    number: int


class Refused(Struct, frozen=True):
    """The submit of this number was refused: nothing was stored."""

    number: int


class Acknowledged(Struct, frozen=True):
    """The submit of this number was answered with this task."""

    number: int
    task: str
    at: Instant


class Started(Struct, frozen=True):
    """A handler began an attempt at this number."""

    number: int
    attempt: int
    process: int
    at: Instant


class Ended(Struct, frozen=True):
    """A handler came to its end, well or badly."""

    number: int
    attempt: int
    process: int
    at: Instant


Line = Asked | Refused | Acknowledged | Started | Ended
_KINDS: dict[str, type[Line]] = {kind.__name__: kind for kind in (Asked, Refused, Acknowledged, Started, Ended)}


class History(Struct, frozen=True, kw_only=True):
    """All that is known of a campaign after its end."""

    lines: list[Line]
    """Those of one process are in their order; those of several are not."""
    tasks: list[Task]
    """What the store holds."""
    leaks: list[str] = []
    """What is left that should be gone: processes, counts, index entries."""


class Scribe:
    """Writes lines to a file that several processes share."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, *lines: Line) -> None:
        """All of them in one write."""
        words = (" ".join((type(line).__name__, *(str(getattr(line, name)) for name in line.__struct_fields__)))
                 for line in lines)  # fmt: skip
        os.write(self._file, "".join(f"{line}\n" for line in words).encode())


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a file; a last line without an end was never written whole."""
    if path.exists():
        for text in path.read_text().splitlines(keepends=True):
            if text.endswith("\n"):
                word, *values = text.split()
                kind = _KINDS[word]
                yield kind(*(value if name == "task" else int(value) for name, value in _pairs(kind, values)))  # type: ignore[arg-type]


def _pairs(kind: type[Line], values: list[str]) -> Iterator[tuple[str, str]]:
    return zip(kind.__struct_fields__, values, strict=True)


def moment() -> Instant:
    """Now, by this machine's clock."""
    return time.time_ns() // 1_000
