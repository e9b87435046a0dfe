"""Keeping leases: all that a worker's keeper needs of an engine, which is little enough for a process of its own."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.core.health.clock_watch import ClockReading
from fairlead.core.identity import LeaseToken, TaskId
from fairlead.core.instant import Span
from fairlead.core.settings import Settings
from fairlead.engine.runtime.clock import Clock, FollowingClock, SystemClock, look
from fairlead.storage.protocol import Clocked, Store
from fairlead.storage.values import Beat, Pulse


class StoreLeases:
    """Leases, renewed in a store."""

    def __init__(self, store: Store, settings: Settings, clock: Clock | None = None) -> None:
        self.store = store
        self.settings = settings
        self.clock = clock or FollowingClock(SystemClock())

    async def heartbeat(self, beats: Sequence[Beat]) -> list[Pulse]:
        """Renew leases and report progress; the answer says which are lost and which should stop."""
        # A token is that of all the tasks that were claimed together.
        pulses: dict[tuple[TaskId, LeaseToken], Pulse] = {}
        for allowance in {beat.allowance for beat in beats}:
            alike = [beat for beat in beats if beat.allowance == allowance]
            answers = await self._extend(alike, allowance)
            if len(alike) == len(beats):
                return answers
            pulses |= zip(((beat.id, beat.token) for beat in alike), answers, strict=True)
        return [pulses[beat.id, beat.token] for beat in beats]

    async def _extend(self, beats: Sequence[Beat], allowance: Span) -> list[Pulse]:
        settings = self.settings
        grace = settings.grace + allowance
        return await self.store.extend(beats, lease=settings.lease, grace=grace, now=self.clock.given())

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

    async def follow_clock(self) -> ClockReading:
        """Look at the store's clock, and follow it from now on; a clock that was given is looked at instead."""
        if isinstance(self.clock, FollowingClock):
            return await self.clock.measure(self.store.time)
        return look(self.clock)

    async def look_at_clocks(self) -> dict[str, ClockReading]:
        """Look at every clock that leases go by, and follow the store's from now on."""
        sight = await self.follow_clock()
        if self.clock.given() is not None or not isinstance(self.store, Clocked):
            return {"": sight}
        asked = self.clock.monotonic()
        times = await self.store.clocks()
        answered = self.clock.monotonic()
        return {name: ClockReading(at=at, asked=asked, answered=answered) for name, at in times.items()} or {"": sight}
