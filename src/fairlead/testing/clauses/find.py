"""Clauses F1 and F2: by id, and by alarm."""

from __future__ import annotations

from fairlead.core.events import AlarmRang, Completed
from fairlead.core.identity import TaskId
from fairlead.core.instant import DAY, SECOND, Instant
from fairlead.core.task import State, Task
from fairlead.storage.protocol import Store
from fairlead.testing.builders import LEASE, NOW, a_claim, a_decision, a_task, an_id, some_tasks
from fairlead.testing.reference import expected_due
from fairlead.testing.steps import add, apply_one, contents, ids, settle


def scheduled(at: Instant) -> Task:
    """A task that is due then."""
    return a_task(state=State.SCHEDULED, ready_at=at)


class FindingClauses:
    """What `get` and `due` answer."""

    async def test_get_answers_in_the_order_asked(self, store: Store) -> None:
        """F1: an id asked for twice is answered twice."""
        first, second, third = some_tasks(3)
        await add(store, first, second, third)
        asked = [third.id, first.id, second.id, first.id]
        assert await store.get(asked) == [third, first, second, first]

    async def test_get_answers_none_for_what_is_not_there(self, store: Store) -> None:
        """F1: in its place."""
        first, second = some_tasks(2)
        await add(store, first, second)
        assert await store.get([an_id(), second.id, an_id(), first.id]) == [None, second, None, first]
        assert await store.get([an_id()]) == [None]

    async def test_getting_nothing_answers_nothing(self, store: Store) -> None:
        """F1: an empty batch."""
        assert await store.get([]) == []

    async def test_a_large_get_is_answered_in_order(self, store: Store) -> None:
        """F1: 1,500 ids, newest first, every third unknown."""
        tasks = some_tasks(1_000)
        await add(store, *tasks)
        asked: list[TaskId] = []
        for first, second in zip(tasks[-1::-2], tasks[-2::-2], strict=True):
            asked += [first.id, an_id(), second.id]
        answers = await store.get(asked)
        assert [task and task.id for task in answers] == [
            task_id if at % 3 != 1 else None for at, task_id in enumerate(asked)
        ]

    async def test_an_alarm_comes_at_its_moment(self, store: Store) -> None:
        """F2: at or before now."""
        task = scheduled(NOW + SECOND)
        await add(store, task)
        assert await store.due(NOW + SECOND - 1, 5) == []
        assert await store.due(NOW + SECOND, 5) == [task]
        assert await store.due(NOW + DAY, 5) == [task]

    async def test_the_earliest_alarm_comes_first(self, store: Store) -> None:
        """F2: ids break ties, in whatever order tasks were stored."""
        tasks = [scheduled(NOW + at) for at in (5, 1, 9, 5, 1, 3)]
        await add(store, *tasks[::-1])
        assert await store.due(NOW + 9, 9) == [tasks[at] for at in (1, 4, 5, 0, 3, 2)]
        assert await store.due(NOW + 5, 3) == [tasks[at] for at in (1, 4, 5)]
        assert await store.due(NOW + 9, 0) == []

    async def test_every_state_with_an_alarm_is_due(self, store: Store) -> None:
        """F2: due tasks, ended leases and ended retentions; a queued task has no alarm."""
        later = scheduled(NOW + 2)
        await add(store, a_task(), a_task(), later)
        held, handled = await store.claim(a_claim(limit=2))
        ended = await settle(store, handled, Completed())
        await add(store, a_task())
        assert await store.due(NOW + 2 * DAY, 9) == [later, held, ended]

    async def test_pages_join_without_gap_or_overlap(self, store: Store) -> None:
        """F2: also where a page ends between equal alarms."""
        tasks = [scheduled(NOW + number % 4) for number in range(37)]
        await add(store, *tasks)
        for size in (1, 2, 5, 10, 37, 50):
            seen: list[Task] = []
            after: tuple[Instant, TaskId] | None = None
            while page := await store.due(NOW + 2, size, after):
                assert len(page) <= size
                seen += page
                after = (page[-1].status.alarm or 0, page[-1].id)
            assert seen == expected_due(tasks, NOW + 2, 100)

    async def test_a_page_begins_beyond_a_place_that_is_no_more(self, store: Store) -> None:
        """F2: answered alarms do not shift the pages."""
        tasks = [scheduled(NOW) for _ in range(6)]
        await add(store, *tasks)
        first = await store.due(NOW, 3)
        for task in first:
            await apply_one(store, a_decision(task, AlarmRang()))
        after = (NOW, first[-1].id)
        assert await store.due(NOW, 3, after) == tasks[3:]
        assert await store.due(NOW, 3, (NOW - 1, tasks[-1].id)) == tasks[3:]
        assert await store.due(NOW, 3, (NOW, tasks[-1].id)) == []
        assert await store.due(NOW, 3, (NOW + 1, an_id(number=0))) == []

    async def test_looking_at_alarms_changes_nothing(self, store: Store) -> None:
        """F2: looking and acting are two steps."""
        tasks = [scheduled(NOW) for _ in range(5)]
        await add(store, *tasks)
        assert await store.due(NOW, 5) == await store.due(NOW, 5) == tasks
        assert await contents(store) == tasks

    async def test_a_moved_alarm_is_due_at_its_new_moment_only(self, store: Store) -> None:
        """F2: old places are forgotten."""
        await add(store, *some_tasks(3))
        claimed = await store.claim(a_claim(limit=3))
        lost = a_decision(claimed[1], AlarmRang(), NOW + LEASE)
        await apply_one(store, lost)
        waiting = await contents(store)
        assert ids(await store.due(NOW + LEASE, 9)) == ids([claimed[0], claimed[2]])
        assert await store.due(NOW + LEASE + DAY, 9) == [claimed[0], claimed[2], waiting[1]]

    async def test_a_large_page_of_alarms_is_whole(self, store: Store) -> None:
        """F2: 1,500 at once."""
        tasks = [scheduled(NOW + number * 7 % 11) for number in range(1_500)]
        await add(store, *tasks)
        assert await store.due(NOW + 11, 1_500) == expected_due(tasks, NOW + 11, 1_500)
