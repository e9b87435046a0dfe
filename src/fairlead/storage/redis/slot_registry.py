"""The slots in use: a slot is registered before it has tasks, so that sweeps and listings overlook none."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence
from typing import Final

from fairlead.core.errors import StoreError
from fairlead.storage.redis import scripts
from fairlead.storage.redis.client.calls import Call, Client
from fairlead.storage.redis.keys import Keys

_UNUSED_FOR: Final = 3600
"""Seconds after which an empty slot is forgotten. Those who use a slot register it every few seconds."""

_REGISTERED_FOR: Final = 10.0
"""Seconds after which a slot in use is registered again; far less than `_UNUSED_FOR`."""

_SPARED_FOR: Final = 1800.0
"""Seconds for which it is enough that a slot was registered, if it cannot be just now; well within `_UNUSED_FOR`."""

_RETIRE_EVERY: Final = 600.0


class Registry:
    """The slots that a store may have tasks in."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._until: dict[int, float] = {}
        self._registered: dict[int, float] = {}
        """When each slot was registered last."""
        self._retired = time.monotonic()

    def used(self) -> frozenset[int]:
        """The slots that this process has ever used: also those that a server has forgotten that lost everything."""
        return frozenset(self._until)

    def knows(self, slot: int) -> bool:
        """Whether a slot was registered just now."""
        return self._until.get(slot, 0.0) > time.monotonic()

    async def register(self, slots: Iterable[int]) -> None:
        """Let sweeps and listings know of these slots; before tasks are stored, so that none is ever overlooked.

        On a Cluster the registry may be on its way to another node, or its node lost: that is not to stop the queues of
        other slots, as long as these were registered not long ago.
        """
        due = [slot for slot in slots if not self.knows(slot)]
        if not due:
            return
        spared = time.monotonic() - _SPARED_FOR
        if self._client.spread and all(self._registered.get(slot, spared) > spared for slot in due):
            await self.note(due)
        else:
            await self._register(due, leaving_out=False)

    async def note(self, slots: Iterable[int]) -> None:
        """Register slots that are in use, if that is possible just now."""
        due = [slot for slot in slots if not self.knows(slot)]
        if due:
            with contextlib.suppress(StoreError):
                await self._register(due, leaving_out=True)
            # If it was not, not everybody tries that again at once.
            self._until.update(dict.fromkeys(due, time.monotonic() + _REGISTERED_FOR))

    async def _register(self, due: Sequence[int], *, leaving_out: bool) -> None:
        began = time.monotonic()
        registry = self._keys.registry
        call = Call(registry, due, scripts.REGISTER)
        (done,) = await self._client.run([call], repeatable=True, leaving_out=leaving_out)
        if done is not None:
            self._until.update(dict.fromkeys(due, began + _REGISTERED_FOR))
            self._registered.update(dict.fromkeys(due, began))

    async def slots(self) -> list[int]:
        """The slots that may have tasks."""
        registry = self._keys.registry
        slots = await self._client.run_one(Call(registry, ("ZRANGE", registry, 0, -1)), repeatable=True)
        return [int(slot) for slot in slots]

    async def retire_some(self, slots: Sequence[int]) -> None:
        """Now and then, forget slots that are empty and that no one has used for long."""
        if not slots or time.monotonic() - self._retired < _RETIRE_EVERY:
            return
        self._retired = time.monotonic()
        await self.retire(slots, _UNUSED_FOR)

    async def retire(self, slots: Sequence[int], unused_for: int) -> int:
        """Forget those of the slots that are empty and were not used for so many seconds; how many there were."""
        if not slots:
            return 0
        calls = [Call(key, ("EXISTS", key)) for key in (self._keys.base(slot) + b"d" for slot in slots)]
        held = await self._client.run(calls, repeatable=True)
        empty = [slot for slot, exists in zip(slots, held, strict=True) if not exists]
        if not empty:
            return 0
        registry = self._keys.registry
        retired: int = await self._client.run_one(Call(registry, (unused_for, *empty), scripts.RETIRE))
        return retired
