"""Does a task starve? A flood of urgent tasks, more than the workers can do, in virtual time on a real store.

The order of service promises that newer tasks pass a low one for an hour at most. The clock is moved by hand, a second
at a time, so hours take seconds, and what is measured is the engine and the store, not the machine.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from fairlead.admin.engine import AdminEngine
from fairlead.core.events import Completed
from fairlead.core.identity import WorkerId
from fairlead.core.instant import MINUTE, SECOND, Instant, Span
from fairlead.core.submission import Submission
from fairlead.core.task import Priority, Task
from fairlead.engine.engine import Settlement
from fairlead.engine.runtime.clock import ManualClock
from fairlead.storage.open import open_store

CAPACITY: Final = 10
"""Tasks that the workers do in a second."""
FLOOD: Final = 12
"""Urgent tasks that come in a second: some always wait."""
LOW_AT_FIRST: Final = 20
_WORKER: Final = WorkerId("bench")


class Waits(Struct):
    """What became of the low tasks."""

    longest: Span = 0
    """The longest that one waited, whether it has run since or not."""
    passed: Span = 0
    """The longest that one had waited when a newer task was served before it."""
    ran: int = 0
    left: int = 0


async def flooded(url: str, urgent: Priority, minutes: int) -> Waits:
    """How low tasks fare in so many minutes of a flood: some wait from the beginning, one more comes every minute."""
    clock = ManualClock()
    engine = AdminEngine(await open_store(url), clock=clock)
    try:
        return await _Flood(engine, clock, urgent).run(minutes * MINUTE)
    finally:
        await engine.close()


class _Flood:
    def __init__(self, engine: AdminEngine, clock: ManualClock, urgent: Priority) -> None:
        self._engine = engine
        self._clock = clock
        self._urgent = Submission(type="bench", parameters=b"{}", priority=urgent)
        self._low = Submission(type="bench", parameters=b"{}", priority=Priority.LOW)
        self._since: list[Instant] = []
        """Since when each low task waits, the oldest first: they are served in this order."""
        self._waits = Waits()

    async def run(self, span: Span) -> Waits:
        await self._submit_low(LOW_AT_FIRST)
        for second in range(span // SECOND):
            if second % 60 == 0:
                await self._submit_low(1)
            await self._engine.submit_many([self._urgent] * FLOOD)
            served = await self._engine.claim(_WORKER, ["default"], limit=CAPACITY)
            for task in served:
                self._note(task)
            await self._engine.settle([Settlement(task, Completed(b"null")) for task in served])
            self._clock.advance(SECOND)
        self._waits.left = len(self._since)
        if self._since:
            self._waits.longest = max(self._waits.longest, self._clock.now() - self._since[0])
        return self._waits

    async def _submit_low(self, count: int) -> None:
        await self._engine.submit_many([self._low] * count)
        self._since += [self._clock.now()] * count

    def _note(self, task: Task) -> None:
        waits, now = self._waits, self._clock.now()
        if task.status.priority is Priority.LOW:
            waits.ran += 1
            waits.longest = max(waits.longest, now - self._since.pop(0))
        elif self._since and self._since[0] < task.status.ready_at:
            waits.passed = max(waits.passed, now - self._since[0])
