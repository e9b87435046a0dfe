"""The slots in use: a slot is registered before it has tasks, so that sweeps and listings overlook none."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from fairlead.storage.redis import scripts
from fairlead.storage.redis.client import Call, Client
from fairlead.storage.redis.keys import Keys

_UNUSED_FOR: Final = 3600
"""Seconds after which an empty slot is forgotten. Those who use a slot register it every few seconds."""

_REGISTERED_FOR: Final = 10.0
"""Seconds after which a slot in use is registered again; far less than `_UNUSED_FOR`."""

_RETIRE_EVERY: Final = 600.0


class Registry:
    """The slots that a store may have tasks in."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._until: dict[int, float] = {}
        self._retired = time.monotonic()

    def used(self) -> frozenset[int]:
        """The slots that this process has ever used: also those that a server has forgotten that lost everything."""
        return frozenset(self._until)

    def knows(self, slot: int) -> bool:
        """Whether a slot was registered just now."""
        return self._until.get(slot, 0.0) > time.monotonic()

    async def register(self, slots: Iterable[int]) -> None:
        """Let sweeps and listings know of these slots; before tasks are stored, so that none is ever overlooked."""
        due = [slot for slot in slots if not self.knows(slot)]
        if due:
            until = time.monotonic() + _REGISTERED_FOR
            registry = self._keys.registry
            await self._client.run_one(Call(registry, (1, registry, *due), scripts.REGISTER), repeatable=True)
            self._until.update(dict.fromkeys(due, until))

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
        retired: int = await self._client.run_one(Call(registry, (1, registry, unused_for, *empty), scripts.RETIRE))
        return retired
