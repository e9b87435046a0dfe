"""A copy of what the store keeps, as one server process knows it.

It is read again every few seconds, beside the requests if that can be helped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from fairlead.core.instant import SECOND, Span
from fairlead.engine.runtime.clock import Clock
from fairlead.server.auth.rate_limits import Bucket

Kept = TypeVar("Kept")

FRESH: Final = 2 * SECOND
"""What was read this long ago is used without a thought; what is older is read again beside the request."""
STALE: Final = 5 * SECOND
"""What is older is not used: the request waits until it is read. This bounds how long a revoked key still works."""

_EXTRA_RATE: Final = 1.0
_EXTRA_BURST: Final = 5


class Copy(Generic[Kept]):
    """What is kept, by its name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, Kept] = {}
        self._read_at: Span | None = None
        self._reading: asyncio.Task[Exception | None] | None = None
        self._changes = 0
        self._extra = Bucket(_EXTRA_RATE, _EXTRA_BURST, clock.monotonic())
        self.scans = 0
        """How often the store was asked."""

    async def load(self) -> Mapping[str, Kept]:
        """Read all from the store."""
        raise NotImplementedError

    @property
    def fresh(self) -> bool:
        """Whether what is known can be used without a thought."""
        return self._read_at is not None and self._clock.monotonic() - self._read_at < FRESH

    async def refresh(self, stale: Span = STALE) -> None:
        """Make sure that what is known is not stale."""
        if self._read_at is not None:
            age = self._clock.monotonic() - self._read_at
            if age < FRESH:
                return
            if age < stale:
                self._read()
                return
        await self._wait_for(self._read())

    def known(self, name: str) -> Kept | None:
        """What has this name, by what was read last."""
        return self._known.get(name)

    async def find(self, name: str) -> Kept | None:
        """What has this name.

        An unknown one may be new, so the store is asked; but not by everybody who makes names up: five times, and then
        once a second.
        """
        await self.refresh()
        found = self._known.get(name)
        if found is None and self._extra.take(self._clock.monotonic()) == 0.0:
            await self._wait_for(self._read())
            found = self._known.get(name)
        return found

    def note(self, name: str, kept: Kept | None) -> None:
        """Take in what this process has just put or, if None, removed."""
        self._changes += 1
        if kept is None:
            self._known.pop(name, None)
        else:
            self._known[name] = kept

    def _read(self) -> asyncio.Task[Exception | None]:
        """Read, or join whoever does."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._scan())
        return self._reading

    async def _wait_for(self, reading: asyncio.Task[Exception | None]) -> None:
        error = await asyncio.shield(reading)
        if error is not None:
            raise error

    async def _scan(self) -> Exception | None:
        while True:
            began, changes = self._clock.monotonic(), self._changes
            self.scans += 1
            try:
                found = await self.load()
            except Exception as error:
                # Told to those who wait for it; the others go on with what is known until it is stale.
                return error
            # What was read before a change of our own may not have it.
            if changes == self._changes:
                self._known = dict(found)
                self._read_at = began
                return None
