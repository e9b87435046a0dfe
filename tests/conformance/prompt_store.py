"""A store that waits and claims in one go, made of the memory store."""

from __future__ import annotations

import time

from fairlead.core.instant import Instant
from fairlead.core.task import Task
from fairlead.storage.values import Claim
from tests.conformance.wrong_store import WrongStore


class PromptStore(WrongStore):
    """It has a clock of its own, as a server has; nothing is wrong with it."""

    def now(self) -> Instant:
        """The time by its clock."""
        return time.time_ns() // 1_000

    async def time(self) -> Instant | None:
        return self.now()

    async def wait_and_claim(self, claim: Claim, timeout: float) -> list[Task] | None:
        await self.wait([order.queue for order in claim.queues], timeout)
        return await self.claim(self._later(claim))

    def _later(self, claim: Claim) -> Claim:
        """The claim, as made now."""
        return claim.dated(self.now())
