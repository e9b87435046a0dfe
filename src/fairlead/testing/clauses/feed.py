"""Clauses E1 to E5: the feed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fairlead.core.instant import SECOND, Instant
from fairlead.storage.protocol import Store
from fairlead.storage.values import FeedEntry
from fairlead.testing.builders import NOW
from fairlead.testing.clauses.add import ODD_BYTES

MANY = 10_000


async def publish(store: Store, *values: bytes, now: Instant = NOW, keep: int = MANY) -> None:
    """Put values into the feed."""
    await store.publish(values, now=now, keep=keep)


async def published(store: Store, after: str | None = None) -> list[bytes]:
    """The values beyond a position."""
    return values_of(await store.feed(after, MANY))


def values_of(entries: Sequence[FeedEntry]) -> list[bytes]:
    """What the entries hold."""
    return [entry.value for entry in entries]


def numbered(count: int, start: int = 0) -> list[bytes]:
    """Values that tell their place."""
    return [b"%d" % number for number in range(start, start + count)]


class FeedClauses:
    """What `publish`, `feed` and `feed_end` do."""

    async def test_a_feed_begins_empty(self, store: Store) -> None:
        """E1."""
        assert await store.feed(None, MANY) == []

    async def test_values_are_read_in_the_order_of_publishing(self, store: Store) -> None:
        """E1: within a call and from call to call, also when a clock is set back."""
        await publish(store, b"b", b"a")
        await publish(store, b"d", now=NOW + SECOND)
        await publish(store, b"c", now=NOW - SECOND)
        assert await published(store) == [b"b", b"a", b"d", b"c"]

    async def test_published_values_survive_byte_for_byte(self, store: Store) -> None:
        """E1: they are opaque, and the same twice is two."""
        await publish(store, *ODD_BYTES, *ODD_BYTES)
        assert await published(store) == [*ODD_BYTES, *ODD_BYTES]

    async def test_no_more_entries_are_read_than_asked_for(self, store: Store) -> None:
        """E1: the oldest first."""
        await publish(store, *numbered(5))
        assert values_of(await store.feed(None, 2)) == numbered(2)
        assert await store.feed(None, 0) == []

    async def test_going_from_position_to_position_misses_nothing(self, store: Store) -> None:
        """E2: by whatever steps."""
        await publish(store, *numbered(300))
        await publish(store, *numbered(300, start=300))
        read: list[FeedEntry] = []
        while entries := await store.feed(read[-1].position if read else None, 7):
            read += entries
        assert values_of(read) == numbered(600)

    async def test_positions_sort_as_the_entries_do(self, store: Store) -> None:
        """E2: as strings."""
        for number in range(3):
            await publish(store, *numbered(120, start=120 * number))
        positions = [entry.position for entry in await store.feed(None, MANY)]
        assert positions == sorted(set(positions))

    async def test_the_end_of_what_was_read_is_no_end_for_ever(self, store: Store) -> None:
        """E2: what is published later is beyond it."""
        await publish(store, b"one")
        (entry,) = await store.feed(None, MANY)
        assert await store.feed(entry.position, MANY) == []
        await publish(store, b"two")
        assert await published(store, entry.position) == [b"two"]

    async def test_a_reader_misses_nothing_of_publishers_that_meet(self, store: Store) -> None:
        """E2: however their calls overlap."""
        publishing = [asyncio.ensure_future(publish(store, *numbered(3, start=3 * call))) for call in range(40)]
        read: list[FeedEntry] = []
        while not all(call.done() for call in publishing):
            read += await store.feed(read[-1].position if read else None, 5)
            await asyncio.sleep(0)
        await asyncio.gather(*publishing)
        read += await store.feed(read[-1].position if read else None, MANY)
        assert sorted(values_of(read)) == sorted(numbered(120))
        assert read == await store.feed(None, MANY)

    async def test_the_newest_are_kept_and_the_feed_does_not_grow(self, store: Store) -> None:
        """E3: about as many as asked for."""
        for call in range(40):
            await publish(store, *numbered(50, start=50 * call), keep=200)
        kept = await published(store)
        assert kept == numbered(2_000)[-len(kept) :]
        assert 200 <= len(kept) <= 400

    async def test_one_call_may_publish_more_than_is_kept(self, store: Store) -> None:
        """E3: its last values are kept."""
        await publish(store, *numbered(1_000), keep=200)
        kept = await published(store)
        assert kept == numbered(1_000)[-len(kept) :]
        assert 200 <= len(kept) <= 400

    async def test_publishing_nothing_trims_the_feed(self, store: Store) -> None:
        """E3: to nothing, if so asked."""
        await publish(store, keep=10)
        await publish(store, *numbered(30))
        await publish(store, keep=10)
        assert await published(store) == numbered(10, start=20)
        (*_, last) = await store.feed(None, MANY)
        await publish(store, keep=0)
        assert await published(store) == []
        await publish(store, b"more")
        assert await published(store) == await published(store, last.position) == [b"more"]

    async def test_a_position_that_was_trimmed_away_leads_to_the_oldest_kept(self, store: Store) -> None:
        """E4."""
        await publish(store, *numbered(30))
        first, *_ = await store.feed(None, MANY)
        await publish(store, keep=10)
        assert await published(store, first.position) == numbered(10, start=20)

    async def test_what_is_no_position_is_before_all(self, store: Store) -> None:
        """E4: a reader may bring anything."""
        await publish(store, *numbered(3))
        for position in ("", "0", "nonsense", "ÿ", "-1", "f" * 16, "9" * 40):
            assert await published(store, position) == numbered(3)

    async def test_a_position_of_a_feed_that_was_lost_is_before_all(self, store: Store) -> None:
        """E4: or its reader would wait for ever."""
        await publish(store, *numbered(3))
        beyond = "7" + "f" * (len(await store.feed_end()) - 1)
        assert await published(store, beyond) == numbered(3)

    async def test_the_end_is_behind_all_and_before_what_comes(self, store: Store) -> None:
        """E5."""
        first = await store.feed_end()
        await publish(store, *numbered(3))
        second = await store.feed_end()
        await publish(store, *numbered(3, start=3))
        assert await published(store, first) == numbered(6)
        assert await published(store, second) == numbered(3, start=3)
        assert await published(store, await store.feed_end()) == []
