"""How those stand that a task waits for and that are not in the hot store: they have left it, or it has lost them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fairlead.core.identity import TaskId
from fairlead.core.task import State, Task
from fairlead.storage.journal.journal import Rows


def named_by(tasks: Iterable[Task]) -> set[TaskId]:
    """All that these tasks wait for."""
    waiting = (task.spec.after for task in tasks if task.status.waits)
    return {named for after in waiting if after is not None for named in after.tasks}


async def standing(rows: Rows, named: Collection[TaskId]) -> dict[TaskId, State]:
    """How those of these tasks stand that the journal has."""
    if not named:
        return {}
    versions = await rows.versions(sorted(named))
    return {task_id: state for task_id, (_, state) in versions.items()}


async def standing_after_loss(rows: Rows, tasks: Iterable[Task]) -> dict[TaskId, State]:
    """How those stand that these tasks, which were stored before, wait for.

    What even the journal has not has ended long ago. If it did not complete, the task that waits has counted it.
    """
    named = named_by(tasks)
    return dict.fromkeys(named, State.COMPLETED) | await standing(rows, named)
