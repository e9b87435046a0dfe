"""A store that fails when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from fairlead.core.identity import TaskId
from fairlead.core.task import Task
from fairlead.storage.memory import MemoryStore
from fairlead.storage.values import Change, Claim, Held, Verdict


class FaultyStore(MemoryStore):
    """The memory store, behind a line that can be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        """Raised instead of every change."""
        self.cursed: dict[TaskId, Exception] = {}
        """Raised when the settle of one of these is among the changes asked for."""
        self.refused = 0
        self.delay = 0.0
        """How long a change takes, in seconds."""
        self.before_claim: Callable[[], object] = lambda: None
        self.after_claim: Callable[[], object] = lambda: None

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        settles = [change.id for change in changes if isinstance(change.guard, Held)]
        errors = [self.cursed[task_id] for task_id in settles if task_id in self.cursed]
        error = self.error or (errors[0] if errors else None)
        if error is not None:
            self.refused += 1
            raise error
        await asyncio.sleep(self.delay)
        return await super().apply(changes)

    async def claim(self, claim: Claim) -> list[Task]:
        self.before_claim()
        if self.error is not None:
            raise self.error
        tasks = await super().claim(claim)
        self.after_claim()
        return tasks
