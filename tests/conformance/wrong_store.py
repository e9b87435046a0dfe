"""What a wrong store is made of."""

from __future__ import annotations

from typing import ClassVar, Final

from fairlead.core.task import Status, Task
from fairlead.storage.memory import MemoryStore
from fairlead.storage.values import Change
from fairlead.testing.builders import seen
from fairlead.testing.steps import read

GAP: Final = 0.001
"""How many seconds lie between two steps that should be one: enough for a rival to come between them."""


class WrongStore(MemoryStore):
    """A memory store with one mistake."""

    breaks: ClassVar[str] = ""
    """The clause that it breaks."""

    async def _force(self, task: Task, status: Status) -> None:
        """Set a task's status whatever it is now."""
        now = await read(self, task)
        if now is not None:
            await super().apply([Change(task.id, seen(now), status)])
