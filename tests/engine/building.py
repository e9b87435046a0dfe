"""An engine over the memory store, with a clock that stands still and seeded luck."""

from __future__ import annotations

import random
from typing import Any

from fairlead.admin.engine import AdminEngine
from fairlead.core.events import Outcome
from fairlead.core.identity import WorkerId
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission
from fairlead.core.task import Failure, Task
from fairlead.engine.engine import Settlement
from fairlead.engine.events.types import Happening, Occurrence
from fairlead.engine.runtime.clock import ManualClock
from fairlead.storage.memory import MemoryStore
from fairlead.storage.protocol import Store

BOOM = Failure(type="Boom", message="it went boom")


class Bench:
    """An engine, all it needs, and short words for what tests do with it."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        store: Store | None = None,
        batching: bool = True,
        clock: ManualClock | None = None,
        seed: int = 42,
    ) -> None:
        self.clock = clock or ManualClock()
        self.store: Store = store or MemoryStore()
        self.occurrences: list[Occurrence] = []
        self.engine = AdminEngine(
            self.store,
            settings,
            clock=self.clock,
            chance=random.Random(seed),
            observers=[self.occurrences.append],
            batching=batching,
        )

    async def submit(self, **wish: Any) -> Task:
        return (await self.engine.submit(a_wish(**wish))).task

    async def claim(self, limit: int = 1, worker: str = "worker-1", **how: Any) -> list[Task]:
        return await self.engine.claim(WorkerId(worker), ["default"], limit=limit, **how)

    async def executing(self, **wish: Any) -> Task:
        """A task just submitted and claimed."""
        await self.submit(**wish)
        (task,) = await self.claim()
        return task

    async def settle(self, task: Task, outcome: Outcome) -> Task:
        (answer,) = await self.engine.settle([Settlement(task, outcome)])
        assert isinstance(answer, Task), answer
        return answer

    def told(self) -> list[Happening]:
        return [occurrence.happening for occurrence in self.occurrences]


def a_wish(**wish: Any) -> Submission:
    return Submission(**({"type": "send_mail"} | wish))
