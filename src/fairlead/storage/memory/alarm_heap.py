"""An index of moments whose entries go stale: dropped when they surface, compacted when fewer than half are live."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from fairlead.core.instant import Instant
from fairlead.storage.lane_merge import Head

_ENOUGH: Final = 100
"""From how many entries on an index is worth compacting."""


def wants_compacting(entries: int, live: int) -> bool:
    """Whether fewer than half of an index's entries are live, and there are enough of them to matter."""
    return entries >= _ENOUGH and live * 2 < entries


def _nobody_asks() -> None:
    """Nothing needs to know when an index was compacted."""


class Heap:
    """(moment, id) entries, least first, some of them stale."""

    def __init__(self, is_live: Callable[[Head], bool], compacted: Callable[[], None] = _nobody_asks) -> None:
        """`compacted` is called whenever the index was."""
        self._is_live = is_live
        self._compacted = compacted
        self._entries: list[Head] = []
        self.live = 0
        """How many entries are live; kept by the owner."""

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, entry: Head) -> None:
        heapq.heappush(self._entries, entry)
        self.live += 1

    def stale(self) -> None:
        """Take note that one entry no longer holds, and compact when most do not."""
        self.live -= 1
        if wants_compacting(len(self._entries), self.live):
            self.compact()

    def peek(self) -> Head | None:
        while self._entries:
            if self._is_live(self._entries[0]):
                return self._entries[0]
            heapq.heappop(self._entries)
        return None

    def heads(self) -> Iterator[Head]:
        """The live entries in order; the one last given is removed when the next one is asked for."""
        while (head := self.peek()) is not None:
            yield head
            self.drop(head)

    def drop(self, head: Head) -> None:
        """Remove the least entry, if it is this one, and what is equal to it."""
        while self._entries and self._entries[0] == head:
            heapq.heappop(self._entries)

    def first(self, limit: int, until: Instant, after: Head | None) -> list[Head]:
        """The live entries up to a moment and beyond `after`, in order; all stay."""
        found: list[Head] = []
        passed: list[Head] = []
        for head in self.heads():
            if head[0] > until or len(found) == limit:
                break
            passed.append(head)
            if after is None or head > after:
                found.append(head)
        for head in passed:
            heapq.heappush(self._entries, head)
        return found

    def count(self, stretches: Sequence[tuple[Head, Head]]) -> list[int]:
        """How many live entries are from one place on and before another, for each such pair."""
        self.peek()
        if len(self._entries) != self.live:
            self.compact()
        # What is sorted is a heap, too. It stays nearly so, and then sorting is quick.
        self._entries.sort()
        places = [(bisect_left(self._entries, start), bisect_left(self._entries, end)) for start, end in stretches]
        return [max(0, last - first) for first, last in places]

    def compact(self) -> None:
        """Remove the entries that are stale."""
        # An entry that was stale and holds again is there twice.
        self._entries = list({entry for entry in self._entries if self._is_live(entry)})
        heapq.heapify(self._entries)
        self._compacted()
