"""The feed: one stream, whose ids the server gives in the order in which entries become readable."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from fairlead.storage.redis import scripts
from fairlead.storage.redis.client.calls import Call, Client
from fairlead.storage.redis.client.resp import Word
from fairlead.storage.redis.keys import Keys
from fairlead.storage.redis.scripts import CHUNK
from fairlead.storage.values import FeedEntry

_UNUSED_FOR: Final = 3_600
"""Seconds after which a feed into which nothing was put goes."""

_POSITION: Final = re.compile("([0-9a-f]{12})([0-9a-f]{12})")
_BEFORE_ALL: Final = (0, 0)


class Feeder:
    """The part of a store that keeps the feed."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._key = keys.feed

    async def publish(self, values: Sequence[bytes], keep: int) -> None:
        """Put values into the feed, which the server trims."""
        chunks = [values[first : first + CHUNK] for first in range(0, len(values), CHUNK)] or [()]
        words: list[tuple[Word, ...]] = [(keep, _UNUSED_FOR, *chunk) for chunk in chunks]
        await self._client.run([Call(self._key, each, scripts.PUBLISH) for each in words])

    async def feed(self, after: str | None, limit: int) -> list[FeedEntry]:
        """The entries beyond a position."""
        if limit < 1:
            return []
        beyond = _id_at(after)
        found, last = await self._client.run(
            [self._read(beyond, limit), Call(self._key, ("XREVRANGE", self._key, "+", "-", "COUNT", 1))],
            repeatable=True,
        )
        if last and _parsed(last[0][0]) < beyond:
            # The position is of a feed that was lost, by a clock that was ahead of the one that numbers this one.
            found = await self._client.run_one(self._read(_BEFORE_ALL, limit), repeatable=True)
        return [FeedEntry(_position_of(_parsed(each)), fields[1]) for each, fields in found]

    async def end(self) -> str:
        """The position of the end."""
        call = Call(self._key, ("XREVRANGE", self._key, "+", "-", "COUNT", 1))
        last = await self._client.run_one(call, repeatable=True)
        return _position_of(_parsed(last[0][0]) if last else _BEFORE_ALL)

    def _read(self, beyond: tuple[int, int], limit: int) -> Call:
        start = f"({beyond[0]}-{beyond[1]}"
        return Call(self._key, ("XRANGE", self._key, start, "+", "COUNT", limit))


def _parsed(stream_id: bytes) -> tuple[int, int]:
    milliseconds, _, serial = stream_id.partition(b"-")
    return int(milliseconds), int(serial)


def _position_of(stream_id: tuple[int, int]) -> str:
    return f"{stream_id[0]:012x}{stream_id[1]:012x}"


def _id_at(position: str | None) -> tuple[int, int]:
    """The id at a position; one before all for what is no position of such a feed."""
    parts = None if position is None else _POSITION.fullmatch(position)
    return _BEFORE_ALL if parts is None else (int(parts[1], 16), int(parts[2], 16))
