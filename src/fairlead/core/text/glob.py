"""Patterns in which a star stands for any characters, matched in time linear in the text.

Not by regular expressions: those try every way to share a text out among the stars.
"""

from __future__ import annotations

import re
from typing import Final

_STARS: Final = re.compile(r"\*+")


class Glob:
    """A pattern such as `send-*.eu`; every other character stands for itself."""

    __slots__ = ("_first", "_last", "_middle", "_whole")

    def __init__(self, text: str) -> None:
        first, *rest = _STARS.split(text)
        self._first = first
        self._whole = not rest
        self._last = rest[-1] if rest else ""
        self._middle = [piece for piece in rest[:-1] if piece]

    def matches(self, text: str) -> bool:
        """Whether the pattern is the whole text."""
        if self._whole:
            return text == self._first
        end = len(text) - len(self._last)
        if end < len(self._first) or not text.startswith(self._first) or not text.endswith(self._last):
            return False
        # The leftmost place of each piece leaves the most room for those behind it, so no other need be tried.
        at = len(self._first)
        for piece in self._middle:
            found = text.find(piece, at, end)
            if found < 0:
                return False
            at = found + len(piece)
        return True
