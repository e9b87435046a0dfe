"""The feed: the last entries that were published, each at its number."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence

from fairlead.core.instant import Instant
from fairlead.storage.feed_positions import BEFORE_ALL, number_at, position_of
from fairlead.storage.values import FeedEntry


class Feed:
    """The feed of one memory store. The owner holds the lock."""

    def __init__(self) -> None:
        self.entries: deque[tuple[int, bytes]] = deque()
        self.last = 0

    def publish(self, values: Sequence[bytes], now: Instant, keep: int) -> None:
        """Append entries, and forget all but the newest `keep`."""
        for value in values:
            self.last = max(self.last + 1, now)
            self.entries.append((self.last, value))
        while len(self.entries) > keep:
            self.entries.popleft()

    def read(self, after: str | None, limit: int) -> list[FeedEntry]:
        """The oldest entries beyond a position."""
        number = number_at(after)
        if number > self.last:
            number = BEFORE_ALL
        beyond = itertools.takewhile(lambda entry: entry[0] > number, reversed(self.entries))
        found = [FeedEntry(position_of(at), value) for at, value in beyond]
        return found[::-1][: max(limit, 0)]

    def end(self) -> str:
        """The position of the newest entry there ever was."""
        return position_of(self.last)
