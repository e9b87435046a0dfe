"""What a process was told by the engine, written down so that the process's death cannot take it back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


class Ledger:
    """Lines of words. Each is one write to the kernel, which keeps it when the process is killed."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, *lines: tuple[object, ...]) -> None:
        text = "".join(" ".join(map(str, line)) + "\n" for line in lines)
        os.write(self._file, text.encode())


def read_ledger(path: Path, first_word: str) -> Iterator[list[str]]:
    """The further words of the lines that begin with this one."""
    if path.exists():
        for line in path.read_text().splitlines():
            word, *others = line.split(" ")
            if word == first_word:
                yield others


def length(path: Path) -> int:
    """How many lines were written; -1 when not even the ledger was opened."""
    return path.read_bytes().count(b"\n") if path.exists() else -1
