"""Clause F5: places in lanes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from fairlead.core.events import HandedBack
from fairlead.core.instant import LATEST, SECOND
from fairlead.core.queues.promotion import BEFORE_ALL, Place
from fairlead.core.task import Lane, Priority, State, Task
from fairlead.storage.protocol import Store
from fairlead.storage.values import Stretch
from fairlead.testing.builders import NOW, a_claim, a_task, some_tasks
from fairlead.testing.reference import expected_count
from fairlead.testing.steps import add, settle

LAST: Final = Place(LATEST, BEFORE_ALL.id)


def place(task: Task) -> Place:
    """Where a task stands in its lane."""
    return Place(task.status.ready_at, task.id)


def ahead(lane: Lane, end: Place) -> Stretch:
    """All of a lane that is before a place."""
    return Stretch(lane, BEFORE_ALL, end)


class PlaceClauses:
    """What `count` answers."""

    async def test_each_task_is_behind_those_that_wait_longer(self, store: Store) -> None:
        """F5: ids break ties, as they do for a claim."""
        tasks = [a_task(ready_at=NOW + at // 3) for at in (5, 0, 3, 1, 4, 2)]
        await add(store, *tasks)
        ordered = sorted(tasks, key=lambda task: (task.status.ready_at, task.id))
        assert await store.count([ahead(task.lane, place(task)) for task in ordered]) == [0, 1, 2, 3, 4, 5]

    async def test_a_stretch_has_its_start_and_not_its_end(self, store: Store) -> None:
        """F5: so that stretches one after the other count each task once."""
        tasks = await self._waiting(store, 5)
        lane, places = tasks[0].lane, [BEFORE_ALL, *map(place, tasks), LAST]
        parts = [Stretch(lane, start, end) for start, end in pairwise(places)]
        assert await store.count(parts) == [0, 1, 1, 1, 1, 1]
        assert await store.count([Stretch(lane, places[2], places[4]), Stretch(lane, places[4], places[2])]) == [2, 0]

    async def test_no_task_need_be_at_either_end(self, store: Store) -> None:
        """F5: before the first moment, between two, and after all."""
        lane = (await self._waiting(store, 3))[0].lane
        ends = [Place(at, BEFORE_ALL.id) for at in (0, NOW, NOW + 1, NOW + 2, NOW + SECOND, LATEST)]
        assert await store.count([ahead(lane, end) for end in ends]) == [0, 0, 1, 2, 3, 3]

    async def test_a_lane_that_is_not_there_has_nobody(self, store: Store) -> None:
        """F5: of another type, queue, capability set or priority, and where nothing was ever stored."""
        assert await store.count([ahead(Lane("nowhere", "work", (), Priority.LOW), LAST)]) == [0]
        (task, *_) = await self._waiting(store, 2)
        lane = task.lane
        others = [
            Lane("other", lane.type, lane.requires, lane.priority),
            Lane(lane.queue, "other", lane.requires, lane.priority),
            Lane(lane.queue, lane.type, ("other",), lane.priority),
            Lane(lane.queue, lane.type, lane.requires, Priority.CRITICAL),
        ]
        assert await store.count([ahead(other, LAST) for other in (*others, lane)]) == [0, 0, 0, 0, 2]
        assert await store.count([]) == []

    async def test_only_queued_tasks_are_counted(self, store: Store) -> None:
        """F5: not what is scheduled, nor what was claimed; what is queued again counts once."""
        (task, *_) = await self._waiting(store, 3)
        await add(store, a_task(state=State.SCHEDULED, ready_at=NOW))
        everyone = [ahead(task.lane, LAST)]
        assert await store.count(everyone) == [3]
        (claimed,) = await store.claim(a_claim(limit=1, now=NOW + SECOND))
        assert await store.count(everyone) == [2]
        await settle(store, claimed, HandedBack())
        assert await store.count(everyone) == [3]

    async def test_many_of_one_moment_are_told_apart(self, store: Store) -> None:
        """F5: a bulk of tasks shares its moment."""
        tasks = some_tasks(300)
        await add(store, *tasks)
        asked = [ahead(task.lane, place(task)) for task in tasks[::7]]
        assert await store.count(asked) == [expected_count(tasks, stretch) for stretch in asked]

    @staticmethod
    async def _waiting(store: Store, count: int) -> Sequence[Task]:
        """Tasks of one lane that came one after the other."""
        tasks = [a_task(ready_at=NOW + at) for at in range(count)]
        await add(store, *tasks)
        return tasks
