"""Clauses G3 and G5: changes that are not made, and tasks that are gone."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.core.events import AlarmRang, Completed, Crashed, Failed, HandedBack, Outcome, Replayed, TimedOut
from fairlead.core.instant import DAY, SECOND
from fairlead.core.task import State, Task
from fairlead.storage.protocol import Store
from fairlead.storage.values import Added, Change, Filter, Held, Pulse, Seen, Tally, Verdict
from fairlead.testing.builders import (
    GRACE,
    LEASE,
    NOW,
    WORKER,
    a_beat,
    a_claim,
    a_decision,
    a_failure,
    a_removal,
    a_settle,
    a_task,
    a_token,
    after,
    an_id,
    held,
    seen,
    some_tasks,
)
from fairlead.testing.steps import add, apply_one, claim_one, contents, ids, read, settle

APPLIED, STALE, REPEATED, MISSING = Verdict.APPLIED, Verdict.STALE, Verdict.REPEATED, Verdict.MISSING


class RefusingClauses:
    """What becomes of a change that is not made."""

    async def test_the_same_settle_again_is_repeated(self, store: Store) -> None:
        """G3: whatever the outcome was, and nothing is changed by it."""
        outcomes: tuple[Outcome, ...] = (
            Completed(b"1"),
            Failed(failure=a_failure()),
            Failed(failure=a_failure(), retriable=False),
            TimedOut(),
            Crashed(a_failure()),
            HandedBack(),
            HandedBack(after=SECOND),
        )
        await add(store, *some_tasks(len(outcomes)))
        claimed = await store.claim(a_claim(limit=len(outcomes)))
        changes = [a_settle(task, outcome) for task, outcome in zip(claimed, outcomes, strict=True)]
        assert await store.apply(changes) == [APPLIED] * len(outcomes)
        settled = await contents(store)
        assert await store.apply(changes) == [REPEATED] * len(outcomes)
        assert await store.apply(changes[::-1]) == [REPEATED] * len(outcomes)
        assert await contents(store) == settled

    async def test_the_same_settle_twice_in_one_call_is_repeated(self, store: Store) -> None:
        """G3: a batch may hold the settle and its retry."""
        await add(store, a_task())
        change = a_settle(await claim_one(store), Completed())
        assert await store.apply([change, change]) == [APPLIED, REPEATED]

    async def test_the_same_settle_said_later_is_repeated(self, store: Store) -> None:
        """G3: what is said counts, not when it is said."""
        await add(store, a_task())
        task = await claim_one(store)
        ended = await settle(store, task, Failed(failure=a_failure()))
        assert await store.apply([a_settle(task, Failed(failure=a_failure()), NOW + SECOND)]) == [REPEATED]
        assert await contents(store) == [ended]

    async def test_another_settle_is_stale(self, store: Store) -> None:
        """G3: one attempt has one outcome, and the first word counts."""
        await add(store, a_task())
        task = await claim_one(store)
        ended = await settle(store, task, Completed(b"1"))
        others: tuple[Outcome, ...] = (
            Completed(b"2"),
            Completed(),
            Failed(failure=a_failure()),
            HandedBack(),
            TimedOut(),
            Crashed(a_failure()),
        )
        assert await store.apply([a_settle(task, outcome) for outcome in others]) == [STALE] * len(others)
        assert await contents(store) == [ended]

    async def test_the_same_outcome_of_another_attempt_is_not_a_repetition(self, store: Store) -> None:
        """G3: two workers may fail in the same words."""
        await add(store, a_task())
        first = await claim_one(store)
        lost = a_decision(first, AlarmRang(), NOW + LEASE)
        await apply_one(store, lost)
        await apply_one(store, a_decision(after(first, lost), AlarmRang(), NOW + 2 * LEASE))
        second = await claim_one(store)
        ended = await settle(store, second, Completed(b"1"))
        assert await store.apply([a_settle(first, Completed(b"1"))]) == [STALE]
        assert await store.apply([a_settle(second, Completed(b"1"))]) == [REPEATED]
        assert await contents(store) == [ended]

    async def test_a_settle_is_recognised_while_the_next_attempt_runs(self, store: Store) -> None:
        """G3: until that attempt's own settle takes its place."""
        await add(store, a_task())
        first = await claim_one(store)
        await settle(store, first, HandedBack())
        assert await store.apply([a_settle(first, HandedBack())]) == [REPEATED]
        second = await claim_one(store)
        assert await store.apply([a_settle(first, HandedBack())]) == [REPEATED]
        assert await contents(store) == [second]
        await settle(store, second, HandedBack())
        assert await store.apply([a_settle(first, HandedBack())]) == [STALE]

    async def test_a_settle_is_recognised_after_a_replay(self, store: Store) -> None:
        """G3: as long as `settled` says so."""
        await add(store, a_task())
        task = await claim_one(store)
        failed = await settle(store, task, Failed(failure=a_failure(), retriable=False))
        await apply_one(store, a_decision(failed, Replayed()))
        assert await store.apply([a_settle(task, Failed(failure=a_failure(), retriable=False))]) == [REPEATED]

    async def test_an_onlookers_change_is_never_repeated(self, store: Store) -> None:
        """G3: it is stale, even when it would leave the same `settled`."""
        await add(store, a_task())
        task = await claim_one(store)
        failed = await settle(store, task, Failed(failure=a_failure(), retriable=False))
        replay = a_decision(failed, Replayed())
        assert await store.apply([replay, replay]) == [APPLIED, STALE]

    async def test_a_holder_that_settles_nothing_is_never_repeated(self, store: Store) -> None:
        """G3: where nothing was said, nothing is said again."""
        task = a_task()
        await add(store, task)
        silent = replace(task.status, version=9)
        assert task.status.settled is None
        assert await store.apply([Change(task.id, Held(1, a_token()), silent)]) == [STALE]
        assert await contents(store) == [task]

    async def test_a_stale_removal_by_a_holder_is_stale(self, store: Store) -> None:
        """G3: a removal says nothing that could be said again."""
        await add(store, a_task())
        task = await claim_one(store)
        ended = await settle(store, task, Completed())
        assert await store.apply([Change(task.id, held(task), None)]) == [STALE]
        assert await contents(store) == [ended]

    async def test_a_task_that_is_not_there_is_missing(self, store: Store) -> None:
        """G3: whatever the guard; and no task comes of it."""
        there, status = a_task(), a_task().status
        await add(store, there)
        missing = an_id()
        changes = [
            Change(missing, Held(1, a_token()), status),
            Change(missing, Seen(1, 0), status),
            Change(missing, Seen(0, 0), status),
            Change(missing, Seen(1, 0), None),
            Change(there.id, Seen(9, 9), None),
        ]
        assert await store.apply(changes) == [MISSING] * 4 + [STALE]
        assert await contents(store) == [there]

    async def test_a_stale_change_changes_nothing(self, store: Store) -> None:
        """G3: in no operation."""
        task = a_task()
        await add(store, task)
        stale = Change(task.id, Seen(1, 1), replace(task.status, state=State.COMPLETED, alarm=NOW, version=2))
        before = await store.tally()
        assert await store.apply([stale]) == [STALE]
        assert await store.apply([replace(stale, status=None)]) == [STALE]
        assert await store.tally() == before
        assert await store.due(NOW + DAY, 5) == []
        assert ids(await store.claim(a_claim())) == [task.id]


class RemovingClauses:
    """What is left of a removed task: nothing."""

    async def test_a_removed_task_is_gone_from_every_operation(self, store: Store) -> None:
        """G5: in whichever state it was removed."""
        for state in State:
            task = a_task(key="once", tags=("tag",), state=State.QUEUED if state is State.EXECUTING else state)
            await add(store, task)
            if state is State.EXECUTING:
                task = await claim_one(store)
            await apply_one(store, a_removal(task))
            await self._assert_gone(store, task)

    async def test_a_removed_id_may_be_stored_again(self, store: Store) -> None:
        """G5: and then it is an ordinary task, once."""
        task = a_task(state=State.SCHEDULED, ready_at=NOW + SECOND)
        await add(store, task)
        await apply_one(store, a_removal(task))
        again = a_task(id=task.id, parameters=b'{"again": true}')
        assert await store.add([again], now=NOW, bounds={}) == [Added()]
        assert await contents(store) == [again]
        assert await store.find(Filter(), limit=9) == [again]
        assert await store.due(NOW + DAY, 5) == []
        assert len(await store.claim(a_claim(limit=5))) == 1

    async def test_a_removal_leaves_its_neighbours(self, store: Store) -> None:
        """G5: only the task named is gone."""
        tasks = some_tasks(200)
        await add(store, *tasks)
        verdicts = await store.apply([a_removal(task) for task in tasks if task is not tasks[77]])
        assert verdicts == [APPLIED] * 199
        assert await contents(store) == [tasks[77]]
        assert await store.find(Filter(), limit=9) == [tasks[77]]
        assert ids(await store.claim(a_claim(limit=5))) == [tasks[77].id]

    async def test_a_removed_task_makes_room_in_its_queue(self, store: Store) -> None:
        """G5: it no longer counts towards the bound."""
        task = a_task()
        await add(store, task)
        await apply_one(store, a_removal(task))
        assert await store.add([a_task()], now=NOW, bounds={"default": 1}) == [Added()]

    async def test_retention_ends_in_removal(self, store: Store) -> None:
        """G5: as the sweep does it."""
        await add(store, a_task())
        await settle(store, await claim_one(store), Completed())
        forgotten = (await store.due(NOW + 40 * DAY, 5))[0]
        await apply_one(store, a_decision(forgotten, AlarmRang(), NOW + 40 * DAY))
        await self._assert_gone(store, forgotten)

    async def _assert_gone(self, store: Store, task: Task) -> None:
        assert await read(store, task) is None
        assert await store.find(Filter(), limit=5) == []
        assert await store.find(Filter(tag="tag"), limit=5) == []
        assert await store.find(Filter(worker=WORKER), limit=5) == []
        assert await store.due(NOW + 100 * DAY, 5) == []
        assert await store.claim(a_claim(limit=5)) == []
        assert await store.tally() == Tally([], None)
        if task.status.lease is not None:
            assert await store.extend([a_beat(task)], lease=LEASE, now=NOW, grace=GRACE) == [Pulse.LOST]
        assert await store.apply([Change(task.id, seen(task), task.status)]) == [MISSING]
        successor = a_task(key=task.spec.idempotency_key)
        assert await store.add([successor], now=NOW, bounds={}) == [Added()]
        await apply_one(store, a_removal(successor))
