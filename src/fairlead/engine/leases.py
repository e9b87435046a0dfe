"""Keeping leases: all that a worker's keeper needs of an engine, which is little enough for a process of its own."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.core.settings import Settings
from fairlead.engine.clock import Clock, FollowingClock, SystemClock
from fairlead.storage.protocol import Store
from fairlead.storage.values import Beat, Pulse


class StoreLeases:
    """Leases, renewed in a store."""

    def __init__(self, store: Store, settings: Settings, clock: Clock | None = None) -> None:
        self.store = store
        self.settings = settings
        self.clock = clock or FollowingClock(SystemClock())

    async def heartbeat(self, beats: Sequence[Beat]) -> list[Pulse]:
        """Renew leases and report progress; the answer says which are lost and which should stop."""
        until = self.clock.now() + self.settings.lease
        return await self.store.extend(beats, until=until, grace=self.settings.grace)

    async def look(self, beats: Sequence[Beat]) -> list[Pulse]:
        """What a heartbeat would learn, without renewing anything: a cancel need not wait for the next one."""
        pulses: list[Pulse] = []
        for beat, task in zip(beats, await self.store.get([beat.id for beat in beats]), strict=True):
            lease = None if task is None else task.status.lease
            if task is None or lease is None or lease.token != beat.token:
                pulses.append(Pulse.LOST)
            else:
                pulses.append(Pulse.CANCEL if task.status.cancel_asked else Pulse.HELD)
        return pulses

    async def follow_clock(self) -> None:
        """Measure how far the host's clock is from the store's, and follow the store's from now on.

        A clock that was given is left alone.
        """
        if isinstance(self.clock, FollowingClock):
            await self.clock.measure(self.store.time)
