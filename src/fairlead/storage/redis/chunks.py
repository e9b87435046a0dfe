"""How much goes into one call: the server does nothing else meanwhile, so a call must end within a few milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

CHUNK: Final = 64
"""Tasks per call that adds or changes them: a settle of so many takes about a millisecond, and larger ones would not
take less for each. See tests/storage/redis/test_slowlog."""

CLAIM_CHUNK: Final = 128
"""Tasks per call that claims them; there is something to do for each of the lanes looked at."""

CHUNK_BYTES: Final = 512 * 1024
"""Bytes per call, unless a single task has more."""

Entry = TypeVar("Entry")


def cut(entries: Sequence[Entry], size: Callable[[Entry], int]) -> list[Sequence[Entry]]:
    """The entries in their order, cut where a call would take too long."""
    chunks: list[Sequence[Entry]] = []
    first, total = 0, 0
    for at, entry in enumerate(entries):
        added = size(entry)
        if at > first and (at - first == CHUNK or total + added > CHUNK_BYTES):
            chunks.append(entries[first:at])
            first, total = at, 0
        total += added
    if first < len(entries):
        chunks.append(entries[first:] if first else entries)
    return chunks
