"""In which order the files of a distributed run are begun."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import TypeVar

Test = TypeVar("Test")


def in_turn(waiting: Iterable[Sequence[Test]], working: Iterable[Sequence[Test]]) -> list[Test]:
    """Tests of files that mostly wait and of files that mostly work in turn, the largest files first.

    So the processors have work while tests wait for other processes, and what takes long is not begun last.
    """
    turns = zip_longest(*(sorted(files, key=len, reverse=True) for files in (working, waiting)), fillvalue=())
    return [test for turn in turns for file in turn for test in file]
