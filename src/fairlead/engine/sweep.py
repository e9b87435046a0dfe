"""The sweep: answers alarms, wherever it runs.

Any number of processes may sweep at once: every change is a compare-and-set, so the slower one's is stale and nothing
happens twice.
"""

from __future__ import annotations

import asyncio
import contextlib

from fairlead.core.errors import StoreError
from fairlead.core.identity import TaskId
from fairlead.core.instant import MINUTE, SECOND, Instant, Span
from fairlead.engine.engine import Engine
from fairlead.engine.listening import forget_feed
from fairlead.storage.protocol import Upkept

_BATCH = 1_000
_JUMP = 5 * SECOND
_FOLLOW_INTERVAL = MINUTE
_WORKERS_PER_LOOK = 10
"""For so many workers each waits one heartbeat longer before it looks at all of them."""


class Sweeper:
    """Sweeps one engine's store at an interval."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._last: tuple[Instant, Span] | None = None
        self._distrust_until: Span | None = None
        self._tidy_at: Span = 0

    async def run(self) -> None:
        """Sweep, work on operations, and do the store's own duties if it has any, until cancelled."""
        store = self._engine.store
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweep())
            group.create_task(self._engine.operations.operator.run())
            if isinstance(store, Upkept):
                group.create_task(store.upkeep())

    async def _sweep(self) -> None:
        """Sweep until cancelled. A store that fails is tried again at the next interval."""
        interval = self._engine.settings.sweep_interval / SECOND
        followed = self._engine.clock.monotonic()
        while True:
            # Whoever submits or settles meets the same error and reports it; the sweep only has to go on.
            with contextlib.suppress(StoreError):
                if self._engine.clock.monotonic() - followed >= _FOLLOW_INTERVAL:
                    followed = self._engine.clock.monotonic()
                    await self._engine.follow_clock()
                await self.once()
                if self._distrust_until is None and self._engine.clock.monotonic() >= self._tidy_at:
                    await self.tidy()
            # Sweepers do not coordinate, they spread out; within the interval, which is how late a task may be due.
            await asyncio.sleep(interval * (0.6 + 0.35 * self._engine.draw()))

    async def once(self) -> int:
        """Fire the schedules that are due, and answer every alarm that has come; how many alarms were looked at.

        Nothing is answered for one lease length after the clock has jumped: a clock set forward would make live leases
        look lost.
        """
        if not self._trust_clock():
            return 0
        # Before the alarms, which may forget a task that a schedule has yet to cross off. A store that cannot take a
        # schedule's task can still forget others.
        with contextlib.suppress(StoreError):
            await self._engine.schedules.fire()
        seen = 0
        after: tuple[Instant, TaskId] | None = None
        while tasks := await self._engine.sweep(_BATCH, after):
            seen += len(tasks)
            if len(tasks) < _BATCH:
                break
            last = tasks[-1]
            after = (last.status.alarm or 0, last.id)
        return seen

    async def tidy(self) -> None:
        """Look after what is no task: workers that are lost, what this process counted, a feed that no one wants."""
        engine = self._engine
        await engine.presence.report()
        await engine.share_promotions()
        workers = await engine.presence.sweep()
        await engine.workers.forget()
        await forget_feed(engine.store, engine.clock.now())
        # Everyone looks at everyone, so the more there are the more seldom each should.
        pause = min(engine.settings.heartbeat * (1 + workers // _WORKERS_PER_LOOK), MINUTE)
        self._tidy_at = engine.clock.monotonic() + round(pause * (0.75 + 0.5 * engine.draw()))

    def _trust_clock(self) -> bool:
        clock, lease = self._engine.clock, self._engine.settings.lease
        now, monotonic = clock.now(), clock.monotonic()
        if self._last is not None:
            drift = abs((now - self._last[0]) - (monotonic - self._last[1]))
            if drift > max(_JUMP, lease // 2):
                self._distrust_until = monotonic + lease
        self._last = now, monotonic
        if self._distrust_until is not None and monotonic < self._distrust_until:
            return False
        self._distrust_until = None
        return True
