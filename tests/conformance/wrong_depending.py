"""Stores that count wrongly for tasks that wait for others, and one that is not well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec.structs import replace

from fairlead.core.health.diagnosis import Examination
from fairlead.core.identity import TaskId
from fairlead.core.task import After, State, Task
from fairlead.storage.values import Change, Missing, Verdict
from fairlead.testing.builders import NOW, a_task
from tests.conformance.wrong_store import WrongStore


class PassesOverTheUnknown(WrongStore):
    """Lets a task wait for what is not there, as if that had ended."""

    breaks: ClassVar[str] = "D1"

    def _states(self, after: After, elsewhere: Mapping[TaskId, State]) -> dict[TaskId, State] | Missing:
        known = tuple(task_id for task_id in after.tasks if task_id in self._tasks or task_id in elsewhere)
        return super()._states(replace(after, tasks=known), elsewhere)


class TellsNobodyOfARelease(WrongStore):
    """Counts rightly and keeps it to itself."""

    breaks: ClassVar[str] = "D2"

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        verdicts = await super().apply(changes)
        return [Verdict.APPLIED if verdict is Verdict.RELEASED else verdict for verdict in verdicts]


class CountsEveryEnd(WrongStore):
    """Counts again when a task that was replayed ends once more."""

    breaks: ClassVar[str] = "D3"

    def _count_end(self, task_id: TaskId, completed: bool) -> list[Task]:
        waiting = list(self._dependents.get(task_id, ()))
        counted = super()._count_end(task_id, completed)
        if waiting:
            self._dependents[task_id] = waiting
        return counted


class LeavesATraceOfBeingExamined(WrongStore):
    breaks: ClassVar[str] = "X1"

    async def examine(self) -> Examination:
        await self.add([a_task()], now=NOW, bounds={})
        return await super().examine()
