"""Waiting for work: a list per queue is a doorbell, which wakes one waiter per ring."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from fairlead.storage.redis.client.calls import Call, Client
from fairlead.storage.redis.client.resp import ReplyError, error_of, is_passing
from fairlead.storage.redis.keys import Keys

_SLICE: Final = 0.5
"""Seconds for which a blocking wait listens to one slot of a Cluster before it turns to the next."""

SHORTEST: Final = 0.001
"""Seconds that a server can be asked to wait at least; it would take less for eternity."""


def wait_call(doorbells: Sequence[bytes], timeout: float) -> Call:
    """The call that a server holds up until one of the doorbells is rung."""
    return Call(doorbells[0], ("BLPOP", *doorbells, f"{timeout:.3f}"))


class Listener:
    """The part of a store that sleeps until there may be work."""

    def __init__(self, client: Client, keys: Keys, *, blocking: bool) -> None:
        self._client = client
        self._keys = keys
        self._blocking = blocking

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        """Sleep until there may be work in one of the queues."""
        doorbells: dict[int, list[bytes]] = {}
        for queue in queues:
            slot = self._keys.slot(queue)
            doorbells.setdefault(slot, []).append(self._keys.doorbell(queue))
        if not self._client.spread:
            await self._listen([doorbell for listed in doorbells.values() for doorbell in listed], timeout)
        elif self._blocking:
            await self._listen_in_turn(list(doorbells.values()), timeout)
        else:
            await self._listen_at_once(list(doorbells.values()), timeout)

    async def _listen(self, doorbells: Sequence[bytes], timeout: float) -> None:
        if timeout >= SHORTEST:
            (reply,) = await self._client.wait([wait_call(doorbells, timeout)], timeout)
            # If the doorbell is on its way to another node there may be work: whoever looks finds out.
            if isinstance(reply, ReplyError) and not is_passing(reply):
                raise error_of(reply)

    async def _listen_in_turn(self, groups: Sequence[Sequence[bytes]], timeout: float) -> None:
        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 0:
            for doorbells in groups:
                began = time.monotonic()
                length = min(left, _SLICE) if len(groups) > 1 else left
                await self._listen(doorbells, length)
                if time.monotonic() - began < length * 0.9:
                    return

    async def _listen_at_once(self, groups: Sequence[Sequence[bytes]], timeout: float) -> None:
        listening = [asyncio.ensure_future(self._listen(doorbells, timeout)) for doorbells in groups]
        try:
            done, _ = await asyncio.wait(listening, return_when=asyncio.FIRST_COMPLETED)
            for listener in done:
                listener.result()
        finally:
            for listener in listening:
                listener.cancel()
            await asyncio.gather(*listening, return_exceptions=True)
