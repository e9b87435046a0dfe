"""How deeply a JSON text is nested."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Final

# One step for each letter: no text can make it go back.
_TEXTS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_OTHERS: Final = bytes(byte for byte in range(256) if byte not in b"{}[]")
_STEPS: Final = tuple(1 if byte in b"{[" else -1 for byte in range(256))


def is_deeper(text: bytes, most: int) -> bool:
    """Whether valid JSON has more than so many objects and lists inside each other; takes time in step with its length.

    Nearly all JSON has fewer of them in all, which two counts tell; and each takes two bytes.
    """
    if len(text) <= 2 * most or text.count(b"{") + text.count(b"[") <= most:
        return False
    brackets = _TEXTS.sub(b"", text).translate(None, _OTHERS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > most
