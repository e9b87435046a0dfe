"""The ids of all tasks in their order, which is that of their submission."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterator

from fairlead.core.identity import TaskId
from fairlead.storage.memory.alarm_heap import wants_compacting


class Ids:
    """The ids of one memory store's tasks, and some of tasks that are gone. The owner holds the lock."""

    def __init__(self) -> None:
        self._ids: list[TaskId] = []

    def add(self, task_id: TaskId) -> None:
        """Put an id in its place, which is nearly always the end."""
        ids = self._ids
        if ids and ids[-1] > task_id:
            at = bisect.bisect_left(ids, task_id)
            if ids[at] != task_id:
                ids.insert(at, task_id)
        elif not ids or ids[-1] != task_id:
            ids.append(task_id)

    def compact(self, present: Collection[TaskId]) -> None:
        """Forget those that are gone, once they are most."""
        if wants_compacting(len(self._ids), len(present)):
            self._ids = [task_id for task_id in self._ids if task_id in present]

    def walk(self, newest_first: bool, after: TaskId | None) -> Iterator[TaskId]:
        """All ids in one direction, or those beyond one."""
        ids = self._ids
        if newest_first:
            end = len(ids) if after is None else bisect.bisect_left(ids, after)
            return (ids[position] for position in range(end - 1, -1, -1))
        start = 0 if after is None else bisect.bisect_right(ids, after)
        return (ids[position] for position in range(start, len(ids)))
