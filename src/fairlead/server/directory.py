"""The keys as one server process knows them: read every few seconds, beside the requests if that can be helped."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec import Struct

from fairlead.core.instant import SECOND, Span
from fairlead.engine.keys import ApiKey, Keyring
from fairlead.server.limits import Bucket
from fairlead.server.principal import Principal

FRESH: Final = 2 * SECOND
"""Keys that were read this long ago are used without a thought; older ones are read again beside the request."""
STALE: Final = 5 * SECOND
"""Older ones are not used: the request waits until they are read. This bounds how long a revoked key still works."""

_EXTRA_RATE: Final = 1.0
_EXTRA_BURST: Final = 5


class Holder(Struct, frozen=True):
    """A key and who it makes its holder."""

    key: ApiKey
    principal: Principal


class Directory:
    """The holders by the ids of their keys."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring
        self._clock = keyring.clock
        self._holders: dict[str, Holder] = {}
        self._read_at: Span | None = None
        self._reading: asyncio.Task[Exception | None] | None = None
        self._extra = Bucket(_EXTRA_RATE, _EXTRA_BURST, self._clock.monotonic())
        self.scans = 0
        """How often the store was asked."""
        self.seen_keys = False
        """Whether there ever were any: whoever revokes the last one does not mean to open the door to all."""

    @property
    def fresh(self) -> bool:
        """Whether what is known can be used without a thought."""
        return self._read_at is not None and self._clock.monotonic() - self._read_at < FRESH

    async def refresh(self) -> None:
        """Make sure that what is known is not stale."""
        if self._read_at is not None:
            age = self._clock.monotonic() - self._read_at
            if age < FRESH:
                return
            if age < STALE:
                self._read()
                return
        await self._wait_for(self._read())

    def known(self, identity: str) -> Holder | None:
        """The holder of the key with this id, by what was read last."""
        return self._holders.get(identity)

    async def find(self, identity: str) -> Holder | None:
        """The holder of the key with this id.

        An unknown one may be new, so the store is asked; but not by everybody who makes ids up: five times, and then
        once a second.
        """
        await self.refresh()
        holder = self._holders.get(identity)
        if holder is None and self._extra.take(self._clock.monotonic()) == 0.0:
            await self._wait_for(self._read())
            holder = self._holders.get(identity)
        return holder

    def _read(self) -> asyncio.Task[Exception | None]:
        """Read the keys, or join whoever does."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._scan())
        return self._reading

    async def _wait_for(self, reading: asyncio.Task[Exception | None]) -> None:
        error = await asyncio.shield(reading)
        if error is not None:
            raise error

    async def _scan(self) -> Exception | None:
        began = self._clock.monotonic()
        self.scans += 1
        try:
            keys = await self._keyring.keys()
        except Exception as error:
            # Told to those who wait for it; the others go on with what is known until it is stale.
            return error
        self._holders = {key.id: Holder(key, _principal(key)) for key in keys}
        self._read_at = began
        self.seen_keys = self.seen_keys or bool(keys)
        return None


def _principal(key: ApiKey) -> Principal:
    return Principal(key.name, frozenset(key.roles), tenant=key.tenant, key=key.id)
