"""Clauses D1 to D3: tasks that wait for others."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.core.events import (
    AlarmRang,
    CancelAsked,
    Completed,
    Discarded,
    Failed,
    HandedBack,
    Outcome,
    Purged,
    Replayed,
)
from fairlead.core.identity import TaskId
from fairlead.core.instant import AT_ONCE, HOUR
from fairlead.core.task import OnFailure, State, Task
from fairlead.storage.protocol import Store
from fairlead.storage.values import Added, Filter, Full, KeyHeld, Known, Missing, Verdict
from fairlead.testing.builders import (
    NOW,
    a_claim,
    a_decision,
    a_dependent,
    a_failure,
    a_settle,
    a_task,
    after,
    an_id,
    some_tasks,
)
from fairlead.testing.steps import add, apply_one, claim_one, contents, ids, read, settle

APPLIED, RELEASED, STALE, REPEATED = Verdict.APPLIED, Verdict.RELEASED, Verdict.STALE, Verdict.REPEATED
DONE = Completed(b"1")
REJECTED = Failed(failure=a_failure(), retriable=False)


class DependingClauses:
    """What a task waits for, and how it is counted."""

    other = "other"
    """Another queue. A store that cannot count across all queues names one that it can."""

    async def test_a_task_waits_for_those_that_have_not_ended(self, store: Store) -> None:
        """D1: queued, scheduled and executing ones are pending; what is counted is all that differs from the given."""
        queued, scheduled = a_task(), a_task(state=State.SCHEDULED, ready_at=NOW + HOUR)
        executing = await _executing(store, a_task(queue=self.other))
        await add(store, queued, scheduled)
        task = a_dependent(queued, scheduled, executing)
        await add(store, task)
        stored = await _read(store, task)
        assert _counts(stored) == (3, 0)
        assert stored.status.alarm is None
        assert stored.spec == task.spec
        assert stored.status.state is State.SCHEDULED
        assert ids(await store.claim(a_claim("default", self.other, limit=5))) == [queued.id]
        assert task.id not in ids(await store.due(NOW + HOUR, 10))

    async def test_those_that_ended_before_are_counted_by_how_they_ended(self, store: Store) -> None:
        """D1."""
        states = (State.COMPLETED, State.FAILED, State.DEAD_LETTER, State.CANCELLED, State.QUEUED)
        parents = [a_task(state=state) for state in states]
        await add(store, *parents)
        task = a_dependent(*parents)
        await add(store, task)
        assert _counts(await _read(store, task)) == (1, 3)

    async def test_a_task_with_nothing_left_to_wait_for_has_an_alarm_at_once(self, store: Store) -> None:
        """D1: before all that is due by the clock."""
        parent, other = a_task(state=State.COMPLETED, alarm=5), a_task(state=State.SCHEDULED, ready_at=3)
        await add(store, parent, other)
        task = a_dependent(parent, ready_at=NOW + HOUR)
        await add(store, task)
        assert _counts(await _read(store, task)) == (0, 0)
        assert ids(await store.due(AT_ONCE, 10)) == [task.id]
        assert ids(await store.due(NOW, 10)) == [task.id, other.id, parent.id]
        assert (await store.tally()).next_alarm == AT_ONCE

    async def test_an_unknown_task_cannot_be_waited_for(self, store: Store) -> None:
        """D1: nothing is stored, and the answer names the first that is unknown."""
        parent, unknown = a_task(), an_id()
        await add(store, parent)
        task = a_dependent(parent, unknown, an_id(), key="one")
        assert await store.add([task], now=NOW, bounds={}) == [Missing(unknown)]
        assert ids(await contents(store)) == [parent.id]
        await settle(store, await claim_one(store), DONE)
        await add(store, a_task(key="one"))

    async def test_a_task_may_wait_for_earlier_ones_of_the_same_call(self, store: Store) -> None:
        """D1: not for itself or later ones."""
        first, second, other = a_task(), a_task(queue=self.other), a_task()
        third = a_dependent(first, second, queue=self.other)
        fourth = a_dependent(third)
        itself = an_id()
        early = a_dependent(other)
        tasks = [first, second, third, fourth, a_dependent(itself, id=itself), early, other]
        receipts = await store.add(tasks, now=NOW, bounds={})
        assert receipts == [Added()] * 4 + [Missing(itself), Missing(other.id), Added()]
        assert _counts(await _read(store, third)) == (2, 0)
        assert _counts(await _read(store, fourth)) == (1, 0)

    async def test_one_of_many_in_a_call_may_wait_for_all_others(self, store: Store) -> None:
        """D1: however the store cuts a call into parts."""
        parents = some_tasks(150) + some_tasks(150, queue=self.other)
        task = a_dependent(*parents)
        await add(store, *parents, task)
        assert _counts(await _read(store, task)) == (300, 0)

    async def test_a_known_task_and_a_held_key_come_before_what_is_waited_for(self, store: Store) -> None:
        """D1: so that repeating an add is safe when a task that it names has been removed since."""
        parent = a_task()
        await add(store, parent)
        task = a_dependent(parent, key="one")
        await add(store, task)
        assert await store.apply([a_decision(parent, Purged())]) == [RELEASED]
        again = a_dependent(parent, key="one")
        assert await store.add([task, again], now=NOW, bounds={}) == [Known(), KeyHeld(task.id)]
        assert _counts(await _read(store, task)) == (0, 1)

    async def test_a_waiting_task_counts_towards_the_bound(self, store: Store) -> None:
        """D1, A5: and what is full leaves no trace with those it would have waited for."""
        parent = a_task()
        tasks = [parent, a_dependent(parent), a_dependent(parent), a_dependent(an_id())]
        receipts = await store.add(tasks, now=NOW, bounds={"default": 2})
        assert receipts[:3] == [Added(), Added(), Full(2, 2)]
        assert isinstance(receipts[3], Missing)
        await _end(store, parent, DONE, RELEASED)
        assert ids(await contents(store)) == [parent.id, tasks[1].id]

    async def test_each_end_counts_in_the_step_that_makes_it(self, store: Store) -> None:
        """D2: the last one lets the alarm ring; nothing else changes but the version."""
        parents = some_tasks(3)
        task = a_dependent(*parents, ready_at=NOW + HOUR)
        await add(store, *parents, task)
        first = await _read(store, task)
        await _end(store, parents[0], DONE, APPLIED)
        second = await _read(store, task)
        assert (*_counts(second), second.status.version, second.status.alarm) == (2, 0, 2, None)
        await _end(store, parents[1], REJECTED, APPLIED)
        assert _counts(await _read(store, task)) == (1, 1)
        await _end(store, parents[2], DONE, RELEASED)
        last = await _read(store, task)
        assert (*_counts(last), last.status.version, last.status.alarm) == (0, 1, 4, AT_ONCE)
        assert _without_counts(last) == _without_counts(first)
        assert ids(await store.due(AT_ONCE, 5)) == [task.id]

    async def test_ends_in_one_call_all_count(self, store: Store) -> None:
        """D2: also when tasks of one call wait for several of them."""
        parents = some_tasks(40)
        one, other = a_dependent(*parents), a_dependent(*parents[::2], queue=self.other)
        await add(store, *parents, one, other)
        claimed = await store.claim(a_claim(limit=40))
        verdicts = await store.apply([a_settle(task, DONE if at % 4 else REJECTED) for at, task in enumerate(claimed)])
        assert set(verdicts) <= {APPLIED, RELEASED}
        assert RELEASED in verdicts
        assert _counts(await _read(store, one)) == (0, 10)
        assert _counts(await _read(store, other)) == (0, 10)
        assert sorted(ids(await store.due(AT_ONCE, 5))) == sorted([one.id, other.id])

    async def test_one_end_counts_for_all_who_wait(self, store: Store) -> None:
        """D2."""
        parent, other = some_tasks(2)
        ready = [a_dependent(parent, queue=("default", self.other)[number % 2]) for number in range(30)]
        await add(store, parent, other, *ready, a_dependent(parent, other))
        await _end(store, parent, DONE, RELEASED)
        assert sorted(ids(await store.due(AT_ONCE, 100))) == sorted(ids(ready))

    async def test_cancelled_and_purged_tasks_have_ended_unmet(self, store: Store) -> None:
        """D2."""
        cancelled, purged = some_tasks(2)
        task = a_dependent(cancelled, purged)
        await add(store, cancelled, purged, task)
        assert await store.apply([a_decision(cancelled, CancelAsked())]) == [APPLIED]
        assert await store.apply([a_decision(purged, Purged())]) == [RELEASED]
        assert _counts(await _read(store, task)) == (0, 2)

    async def test_a_retry_or_a_hand_back_is_no_end(self, store: Store) -> None:
        """D2."""
        parent = a_task()
        task = a_dependent(parent)
        await add(store, parent, task)
        await settle(store, await claim_one(store), HandedBack())
        await settle(store, await claim_one(store), Failed(failure=a_failure()))
        assert _counts(await _read(store, task)) == (1, 0)

    async def test_a_refused_change_counts_nothing(self, store: Store) -> None:
        """D2, G2."""
        parent = a_task()
        task = a_dependent(parent)
        await add(store, parent, task)
        stale = a_decision(parent, CancelAsked())
        await claim_one(store)
        assert await store.apply([stale]) == [STALE]
        assert _counts(await _read(store, task)) == (1, 0)

    async def test_an_end_is_counted_once(self, store: Store) -> None:
        """D3: not again when a settle is repeated, or when the ended task is removed."""
        parent, other = a_task(), a_task(queue=self.other)
        task = a_dependent(parent, other)
        await add(store, parent, other, task)
        change = a_settle(await claim_one(store), DONE)
        assert await store.apply([change, change]) == [APPLIED, REPEATED]
        assert await store.apply([change]) == [REPEATED]
        await apply_one(store, a_decision(await _read(store, parent), Discarded()))
        assert _counts(await _read(store, task)) == (1, 0)
        assert await store.due(AT_ONCE, 5) == []

    async def test_a_second_end_after_a_replay_counts_only_for_those_who_came_since(self, store: Store) -> None:
        """D3."""
        parent, other = a_task(), a_task(queue=self.other)
        early = a_dependent(parent, other)
        await add(store, parent, other, early)
        await _end(store, parent, REJECTED, APPLIED)
        await apply_one(store, a_decision(await _read(store, parent), Replayed()))
        late = a_dependent(parent, other)
        await add(store, late)
        assert _counts(await _read(store, late)) == (2, 0)
        await _end(store, await _read(store, parent), DONE, APPLIED)
        assert _counts(await _read(store, early)) == (1, 1)
        assert _counts(await _read(store, late)) == (1, 0)

    async def test_a_task_that_no_longer_waits_is_left_alone(self, store: Store) -> None:
        """D3: whether it was cancelled, replayed or removed."""
        parent = a_task()
        cancelled, replayed, removed = (a_dependent(parent, queue=self.other) for _ in range(3))
        await add(store, parent, cancelled, replayed, removed)
        await apply_one(store, a_decision(await _read(store, cancelled), CancelAsked()))
        await apply_one(store, a_decision(await _read(store, replayed), CancelAsked()))
        await apply_one(store, a_decision(await _read(store, replayed), Replayed()))
        await apply_one(store, a_decision(await _read(store, removed), Purged()))
        before = await contents(store)
        await _end(store, parent, DONE, APPLIED)
        assert [task for task in await contents(store) if task.id != parent.id] == before[1:]

    async def test_a_released_task_goes_on_like_any_other(self, store: Store) -> None:
        """D2: and those who wait for it are counted when it ends."""
        first = a_task()
        second, third = a_dependent(first), a_dependent(first)
        last = a_dependent(second, third)
        await add(store, first, second, third, last)
        await _end(store, first, DONE, RELEASED)
        for task in await store.due(AT_ONCE, 5):
            await apply_one(store, a_decision(task, AlarmRang()))
        assert await store.due(AT_ONCE, 5) == []
        claimed = await store.claim(a_claim(limit=5))
        assert sorted(ids(claimed)) == sorted([second.id, third.id])
        assert RELEASED in await store.apply([a_settle(task, DONE) for task in claimed])
        assert ids(await store.due(AT_ONCE, 5)) == [last.id]

    async def test_a_task_may_run_only_if_one_that_it_waits_for_did_not_complete(self, store: Store) -> None:
        """D2: the store counts, and the counts are what decides."""
        good, bad = some_tasks(2)
        unneeded, needed = (a_dependent(*tasks, on_failure=OnFailure.RUN_ONLY_THEN) for tasks in ((good,), (good, bad)))
        await add(store, good, bad, unneeded, needed)
        assert (await _read(store, needed)).spec == needed.spec
        await _end(store, good, DONE, RELEASED)
        await _end(store, bad, REJECTED, RELEASED)
        for task in await store.due(AT_ONCE, 5):
            await apply_one(store, a_decision(task, AlarmRang()))
        ended = await _read(store, unneeded)
        assert (ended.state, ended.status.failure and ended.status.failure.type) == (State.CANCELLED, "NotNeeded")
        assert ids(await store.claim(a_claim(limit=5))) == [needed.id]

    async def test_a_change_to_a_waiting_task_that_was_counted_for_is_stale(self, store: Store) -> None:
        """D2, G2: whoever read it before would write the old count."""
        first, second = some_tasks(2)
        task = a_dependent(first, second)
        await add(store, first, second, task)
        stale = a_decision(await _read(store, task), CancelAsked())
        await _end(store, first, DONE, APPLIED)
        assert await store.apply([stale]) == [STALE]

    async def test_waiting_and_released_tasks_are_listed_as_scheduled(self, store: Store) -> None:
        """D1, F3, F4."""
        parent = a_task()
        task = a_dependent(parent)
        await add(store, parent, task)
        scheduled = Filter(states=frozenset({State.SCHEDULED}))
        assert ids(await store.find(scheduled, limit=5)) == [task.id]
        await _end(store, parent, DONE, RELEASED)
        assert await store.find(scheduled, limit=5) == [await _read(store, task)]

    async def test_results_of_those_waited_for_do_not_disturb_the_count(self, store: Store) -> None:
        """D2: whatever bytes their parameters and results are."""
        parent = a_task(parameters=b'{"x": "' + bytes(range(128, 256)) + b'"}')
        task = a_dependent(parent)
        await add(store, parent, task)
        await _end(store, parent, Completed(b"\xc4\x00" * 500), RELEASED)
        assert _counts(await _read(store, task)) == (0, 0)


def _counts(task: Task) -> tuple[int, int]:
    return task.status.pending, task.status.unmet


def _without_counts(task: Task) -> Task:
    return Task(task.spec, replace(task.status, pending=0, unmet=0, version=0, alarm=None))


async def _read(store: Store, task: Task) -> Task:
    stored = await read(store, task)
    assert stored is not None
    return stored


async def _executing(store: Store, task: Task) -> Task:
    await add(store, task)
    return await claim_one(store, a_claim(task.spec.queue))


async def _end(store: Store, task: Task, outcome: Outcome, verdict: Verdict) -> TaskId:
    """Claim a task, which is at the head of its line, and settle it."""
    claimed = await claim_one(store, a_claim(task.spec.queue))
    assert claimed.id == task.id
    change = a_settle(claimed, outcome)
    assert await store.apply([change]) == [verdict]
    assert await read(store, task) == after(claimed, change)
    return task.id
