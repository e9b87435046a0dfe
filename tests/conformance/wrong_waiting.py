"""Stores that wait and claim in one go, wrongly."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from fairlead.core.task import Task
from fairlead.storage.values import Claim
from tests.conformance.prompt_store import PromptStore
from tests.conformance.wrong_store import GAP


class ClaimsAsOfBefore(PromptStore):
    """Has a lease begin when the wait for its task began."""

    breaks = "W2"

    async def wait_and_claim(self, claim: Claim, timeout: float) -> list[Task] | None:
        return await super().wait_and_claim(claim.dated(self.now()), timeout)


class TakesWhateverRang(PromptStore):
    """Forgets, once it has waited, what was to be taken."""

    breaks = "W2"

    def _later(self, claim: Claim) -> Claim:
        return replace(super()._later(claim), types=None, excluded_types=frozenset())


class SaysThatThereIsNothing(PromptStore):
    """Has not claimed, and calls that an empty claim."""

    breaks = "W3"

    async def wait_and_claim(self, claim: Claim, timeout: float) -> list[Task] | None:
        await self.wait([order.queue for order in claim.queues], timeout)
        return []


class DropsWhatItTook(PromptStore):
    """Lets go of what it has taken when it is cancelled."""

    breaks = "W4"

    async def wait_and_claim(self, claim: Claim, timeout: float) -> list[Task] | None:
        tasks = await super().wait_and_claim(claim, timeout)
        await asyncio.sleep(GAP)
        return tasks
