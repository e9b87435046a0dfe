"""Positions in the feed, for stores that number its entries.

An entry's number is the moment of its publishing in microseconds, or one more than the last number if that is higher.
So numbers go on growing even when a feed was lost and begins anew, and no reader waits for what has long passed.
"""

from __future__ import annotations

import re
from typing import Final

BEFORE_ALL: Final = -1
"""A number before that of every entry."""

_DIGITS: Final = re.compile("[0-9a-f]{16}")
_HIGHEST: Final = 2**63 - 1


def position_of(number: int) -> str:
    """The position of the entry with this number; positions sort as their numbers do."""
    return f"{max(number, 0):016x}"


def number_at(position: str | None) -> int:
    """The number of the entry at a position; `BEFORE_ALL` for one that is no position of such a feed."""
    if position is None or not _DIGITS.fullmatch(position):
        return BEFORE_ALL
    number = int(position, 16)
    return number if number <= _HIGHEST else BEFORE_ALL


def trims(published: int, count: int, keep: int) -> bool:
    """Whether to trim after `count` more entries have made it `published` in all: not at every call, but soon enough.

    A call that publishes nothing is made to trim.
    """
    step = max(keep // 10, 1)
    return count == 0 or published // step != (published - count) // step
