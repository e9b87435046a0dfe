"""Clauses F1 to F4: tasks by id and by alarm, listings and the tally."""

from __future__ import annotations

import random
from typing import ClassVar

import hypothesis.strategies as st
from hypothesis import settings

from fairlead.core.events import (
    AlarmRang,
    CancelAsked,
    Completed,
    Discarded,
    Failed,
    HandedBack,
    Outcome,
    Replayed,
    Request,
)
from fairlead.core.identity import TaskId
from fairlead.core.instant import DAY, SECOND, Instant
from fairlead.core.task import Priority, State, Task
from fairlead.storage.protocol import Store
from fairlead.storage.values import Change, Filter, Tally
from fairlead.testing.builders import LEASE, NOW, a_claim, a_decision, a_failure, a_settle, a_task, an_id, some_tasks
from fairlead.testing.reference import expected_due, expected_find, expected_standing, standing
from fairlead.testing.steps import EVERYTHING, add, apply_one, contents, ids, settle
from fairlead.testing.strategies import CAPABILITIES, QUEUES, STEADY, TAGS, TYPES, WORKERS, filters, for_examples


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


async def populate(store: Store, count: int = 60) -> list[Task]:
    """Fill a store with tasks of every kind; the answer is all of them, oldest first."""
    chance = random.Random(count)  # noqa: S311 - the same tasks at every run
    tasks = [
        a_task(
            queue=chance.choice(QUEUES),
            type=chance.choice(TYPES),
            priority=chance.choice(list(Priority)),
            requires=chance.sample(CAPABILITIES, chance.randrange(3)),
            state=chance.choice([state for state in State if state is not State.EXECUTING]),
            ready_at=NOW - chance.randrange(5),
            created_at=NOW + chance.randrange(-3, 3),
            tags=chance.sample(TAGS, chance.randrange(3)),
        )
        for _ in range(count)
    ]
    await add(store, *tasks)
    for worker in WORKERS:
        await store.claim(a_claim(*QUEUES, limit=count // 30, worker=worker, capabilities=CAPABILITIES))
    return await contents(store)


class ListingClauses:
    """What `find` and `tally` answer."""

    settings: ClassVar[settings] = STEADY

    async def test_the_newest_task_comes_first_unless_told_otherwise(self, store: Store) -> None:
        """F3: by id, not by the order of storing."""
        tasks = some_tasks(5)
        await add(store, *(tasks[at] for at in (3, 0, 4, 1, 2)))
        assert await store.find(Filter(), limit=9) == tasks[::-1]
        assert await store.find(Filter(), limit=9, newest_first=False) == tasks
        assert await store.find(Filter(), limit=2) == [tasks[4], tasks[3]]
        assert await store.find(Filter(), limit=2, newest_first=False) == tasks[:2]

    async def test_a_page_of_no_tasks_is_empty(self, store: Store) -> None:
        """F3: a limit of nothing gives nothing."""
        await add(store, *some_tasks(3))
        assert await store.find(Filter(), limit=0) == []

    async def test_each_field_of_a_filter_is_asked_for(self, store: Store) -> None:
        """F3: one by one."""
        tasks = await populate(store)
        asked = [
            *(Filter(states=frozenset({state})) for state in State),
            Filter(states=frozenset({State.QUEUED, State.FAILED})),
            *(Filter(queue=queue) for queue in (*QUEUES, "unknown", "A")),
            *(Filter(type=type) for type in (*TYPES, "unknown", "sen", "SEND")),
            *(Filter(priority=priority) for priority in Priority),
            *(Filter(worker=worker) for worker in WORKERS),
            *(Filter(tag=tag) for tag in (*TAGS, "unknown", "re", "r%", "RED")),
            *(Filter(created_from=NOW + at) for at in range(-4, 4)),
            *(Filter(created_before=NOW + at) for at in range(-4, 4)),
        ]
        for matching in asked:
            expected = [task for task in tasks if matching.admits(task)]
            assert await store.find(matching, limit=EVERYTHING, newest_first=False) == expected

    async def test_all_fields_of_a_filter_hold_together(self, store: Store) -> None:
        """F3: whatever is asked for, in both directions, from anywhere."""
        tasks = await populate(store)
        places = st.none() | st.sampled_from(ids(tasks)) | st.builds(an_id, number=st.integers(0, 5))
        asked = st.tuples(filters(), st.integers(1, 40), st.booleans(), places)

        async def check(example: tuple[Filter, int, bool, TaskId | None]) -> None:
            matching, limit, newest_first, after = example
            found = await store.find(matching, limit=limit, newest_first=newest_first, after=after)
            assert found == expected_find(tasks, matching, limit, newest_first, after)

        await for_examples(asked, check, self.settings)

    async def test_pages_of_a_listing_join_without_gap_or_overlap(self, store: Store) -> None:
        """F3: whatever their size, whether or not all tasks are asked for."""
        tasks = await populate(store)
        for matching in (Filter(), Filter(queue="a"), Filter(states=frozenset({State.QUEUED, State.COMPLETED}))):
            for newest_first in (True, False):
                for size in (1, 7, 60, 61):
                    seen: list[Task] = []
                    after: TaskId | None = None
                    while page := await store.find(matching, limit=size, newest_first=newest_first, after=after):
                        assert len(page) <= size
                        seen += page
                        after = page[-1].id
                    assert seen == expected_find(tasks, matching, EVERYTHING, newest_first)

    async def test_a_page_is_full_when_there_are_enough_tasks(self, store: Store) -> None:
        """F3: few tasks among many that are not asked for are found all the same."""
        wanted = [a_task(tags=("wanted",)) if at % 250 == 0 else a_task() for at in range(1_500)]
        await add(store, *wanted)
        expected = [task for task in wanted if task.spec.tags]
        assert await store.find(Filter(tag="wanted"), limit=6, newest_first=False) == expected
        assert await store.find(Filter(tag="wanted"), limit=4) == expected[:1:-1]

    async def test_an_empty_store_tallies_to_nothing(self, store: Store) -> None:
        """F4: no lanes and no alarm."""
        assert await store.tally() == Tally([], None)

    async def test_the_tally_counts_lanes_and_states(self, store: Store) -> None:
        """F4: tells queues, types, capability sets and priorities apart."""
        tasks = await populate(store, 200)
        assert standing(await store.tally()) == expected_standing(tasks)

    async def test_the_oldest_ready_task_is_the_head_of_its_lane(self, store: Store) -> None:
        """F4: scheduled and executing tasks are not ready."""
        await add(
            store,
            a_task(ready_at=NOW - 9),
            a_task(ready_at=NOW - 5),
            a_task(ready_at=NOW - 7),
            a_task(ready_at=NOW - 20, state=State.SCHEDULED),
        )
        (line,) = (await store.tally()).lanes
        assert line.oldest_ready == NOW - 9
        await store.claim(a_claim())
        (line,) = (await store.tally()).lanes
        assert line.oldest_ready == NOW - 7
        await store.claim(a_claim(limit=5))
        (line,) = (await store.tally()).lanes
        assert line.oldest_ready is None

    async def test_the_tally_is_exact_after_a_long_walk(self, store: Store) -> None:
        """F4: counters that are kept along must not drift."""
        walk = Walk(store)
        for turn in range(150):
            await walk.step(NOW + turn * SECOND)
            if turn % 10 == 0:
                assert standing(await store.tally()) == expected_standing(await contents(store))
        await walk.clear(NOW + 400 * DAY)
        assert await store.tally() == Tally([], None)


class Walk:
    """A long life of many tasks, the same at every run."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._chance = random.Random(7)  # noqa: S311 - the same walk at every run

    async def step(self, now: int) -> None:
        """Add or claim some, and decide about some."""
        chance, store = self._chance, self._store
        later = chance.random() < 0.3
        task = a_task(
            queue=chance.choice(QUEUES),
            type=chance.choice(TYPES),
            priority=chance.choice(list(Priority)),
            state=State.SCHEDULED if later else State.QUEUED,
            ready_at=now + SECOND if later else now,
            max_retries=1,
        )
        await store.add([task, task], now=now, bounds={"a": 9})
        await store.claim(a_claim(*QUEUES, limit=chance.randrange(3), now=now))
        tasks = await contents(store)
        for task in chance.sample(tasks, min(3, len(tasks))):
            await store.apply([self._decide(task, now)] * chance.randint(1, 2))

    async def clear(self, now: int) -> None:
        """Bring every task to its end and remove it."""
        for task in await contents(self._store):
            if not task.state.ended:
                change = a_decision(task, CancelAsked(), now)
                if task.state is State.EXECUTING:
                    change = a_settle(task, Completed(), now)
                await apply_one(self._store, change)
        for task in await contents(self._store):
            await apply_one(self._store, a_decision(task, Discarded(), now))

    def _decide(self, task: Task, now: int) -> Change:
        match task.state:
            case State.EXECUTING:
                failed = Failed(failure=a_failure(), after=self._chance.choice([0, SECOND]))
                outcomes: list[Outcome] = [Completed(b"1"), failed, HandedBack()]
                return a_settle(task, self._chance.choice(outcomes), now)
            case State.QUEUED:
                return a_decision(task, CancelAsked(), now)
            case State.SCHEDULED | State.COMPLETED:
                return a_decision(task, AlarmRang(), now)
            case _:
                replayed = Replayed(priority=self._chance.choice(list(Priority)))
                requests: list[Request] = [replayed, Discarded()]
                return a_decision(task, self._chance.choice(requests), now)
