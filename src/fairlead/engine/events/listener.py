"""Listening: reading in the feed what all processes told, and having them tell it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from msgspec import Struct

from fairlead.core.errors import StoreError
from fairlead.core.instant import HOUR, MINUTE, SECOND, Instant, Span
from fairlead.engine.events.publisher import FORM, KIND, NEVER, Publisher, Want
from fairlead.engine.events.types import FeedEvent, decode_event
from fairlead.engine.records import Records
from fairlead.engine.runtime.clock import Clock
from fairlead.storage.protocol import Store
from fairlead.storage.values import FeedEntry

_PAGE: Final = 1_000
_OUTAGE_PAUSE: Final = 1.0
_RENEW_INTERVAL: Final[Span] = 30 * SECOND
POLL_INTERVAL: Final = 0.1
"""Seconds between two looks of a listener at a feed that is quiet."""

REPLAY: Final[Span] = 5 * MINUTE
"""How long events are published after the last listener was seen, so that one who comes back has missed none."""


class Told(Struct, frozen=True):
    """An event, and the position behind which to go on reading."""

    position: str
    event: FeedEvent


class Listener:
    """Reads the feed, and has all processes publish into it while it does and for a while afterwards."""

    def __init__(self, store: Store, clock: Clock, publisher: Publisher, name: Callable[[], str]) -> None:
        """`name` makes the name of the record that says what is wanted here."""
        self._store = store
        self._clock = clock
        self._publisher = publisher
        self._make_name = name
        self._name: str | None = None
        self._wanted_at: Instant = NEVER
        self._wanted: frozenset[str] | None = frozenset()
        self.types: frozenset[str] | None = None
        """The types of events to have published; None for all."""

    async def want(self) -> None:
        """Have events published for the next minutes; called again and again, it writes a record now and then."""
        now = self._clock.now()
        if self.types != self._wanted or not 0 <= now - self._wanted_at < _RENEW_INTERVAL:
            want = Want(now + REPLAY, self.types)
            self._name = self._name or self._make_name()
            await self._store.put(KIND, self._name, FORM.write(want))
            self._wanted_at, self._wanted = now, want.types
            self._publisher.want(want)

    async def end(self) -> str:
        """The position from which on to read what will be told."""
        return await self._store.feed_end()

    async def read(self, after: str | None, limit: int = _PAGE) -> list[Told]:
        """The events beyond a position; without one, from the oldest that is kept on.

        Those of a later version, which this one does not know, are left out.
        """
        return _told(await self._store.feed(after, limit))

    async def follow(self, after: str | None = None, *, interval: float = POLL_INTERVAL) -> AsyncIterator[list[Told]]:
        """The events beyond a position, batch by batch, as they are told; without a position, from now on.

        Goes on for ever, also when the store is out of reach for a while.
        """
        position = after
        while True:
            try:
                await self.want()
                if position is None:
                    position = await self.end()
                entries = await self._store.feed(position, _PAGE)
            except StoreError:
                await asyncio.sleep(_OUTAGE_PAUSE)
                continue
            if entries:
                position = entries[-1].position
            if told := _told(entries):
                yield told
            if len(entries) < _PAGE:
                await asyncio.sleep(interval)


async def forget_feed(records: Records, now: Instant) -> None:
    """Forget who has wanted nothing for an hour; a feed that no one has wanted for so long is emptied."""
    store, read = records.store, await records.read(FORM)
    old = [each for each in read.kept if now - each.value.until > HOUR]
    dropped = [await store.drop(KIND, each.name, expected=each.version) for each in old]
    if any(dropped) and len(old) == len(read.kept) and not read.unread:
        await store.publish([], now=now, keep=0)


def _told(entries: Sequence[FeedEntry]) -> list[Told]:
    events = ((entry.position, decode_event(entry.value)) for entry in entries)
    return [Told(position, event) for position, event in events if event is not None]
