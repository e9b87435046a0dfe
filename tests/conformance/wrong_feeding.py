"""Stores that keep the feed wrongly."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from fairlead.core.instant import Instant
from fairlead.storage.feed_positions import position_of
from fairlead.storage.values import FeedEntry
from tests.conformance.wrong_store import GAP, WrongStore


class PublishesTheLastFirst(WrongStore):
    """Puts a batch into the feed as a stack would."""

    breaks = "E1"

    async def publish(self, values: Sequence[bytes], *, now: Instant, keep: int) -> None:
        await super().publish(values[::-1], now=now, keep=keep)


class SortsByTheClock(WrongStore):
    """Trusts that no publisher's clock is behind another's."""

    breaks = "E1"

    async def publish(self, values: Sequence[bytes], *, now: Instant, keep: int) -> None:
        self._feed.last = now - 1
        await super().publish(values, now=now, keep=keep)
        self._feed.entries = deque(sorted(self._feed.entries))


class ReadsTheNewest(WrongStore):
    """Gives the last entries when there are more than asked for."""

    breaks = "E1"

    async def feed(self, after: str | None, limit: int) -> list[FeedEntry]:
        return (await super().feed(after, 1_000_000))[-limit:] if limit else []


class NumbersByReading(WrongStore):
    """Gives positions that sort as numbers and not as strings."""

    breaks = "E2"

    async def feed(self, after: str | None, limit: int) -> list[FeedEntry]:
        entries = await super().feed(None if after is None else position_of(int(after)), limit)
        return [FeedEntry(str(int(entry.position, 16)), entry.value) for entry in entries]

    async def publish(self, values: Sequence[bytes], *, now: Instant, keep: int) -> None:
        await super().publish(values, now=0, keep=keep)


class NumbersBeforeItCommits(WrongStore):
    """Takes positions first and fills them later, as a sequence does: the later may be read first."""

    breaks = "E2"

    async def publish(self, values: Sequence[bytes], *, now: Instant, keep: int) -> None:
        first = max(self._feed.last + 1, now)
        self._feed.last = first + len(values) - 1
        if len(values) > 1 and first % 2:
            await asyncio.sleep(GAP)
        self._feed.entries = deque(sorted([*self._feed.entries, *enumerate(values, start=first)]))


class NeverTrims(WrongStore):
    """Lets the feed grow."""

    breaks = "E3"

    async def publish(self, values: Sequence[bytes], *, now: Instant, keep: int) -> None:
        await super().publish(values, now=now, keep=1_000_000)


class KeepsTheLastCallOnly(WrongStore):
    """Takes the size of a call for the size of the feed."""

    breaks = "E3"

    async def publish(self, values: Sequence[bytes], *, now: Instant, keep: int) -> None:
        await super().publish(values, now=now, keep=min(keep, len(values) or keep))


class LosesTrimmedReaders(WrongStore):
    """Finds nothing beyond an entry that it no longer has."""

    breaks = "E4"

    async def feed(self, after: str | None, limit: int) -> list[FeedEntry]:
        known = {position_of(number) for number, _ in self._feed.entries} | {await self.feed_end(), None}
        return await super().feed(after, limit) if after in known else []


class WaitsForTheLostFeed(WrongStore):
    """Takes every position for one of its own."""

    breaks = "E4"

    async def feed(self, after: str | None, limit: int) -> list[FeedEntry]:
        return [entry for entry in await super().feed(after, limit) if after is None or entry.position > after]


class EndsAtTheBeginning(WrongStore):
    """Gives everything to those who want what comes."""

    breaks = "E5"

    async def feed_end(self) -> str:
        return position_of(0)
