"""A hot store that was lost is rebuilt from the journal."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from fairlead.core.events import CancelAsked, Completed, Discarded, Failed
from fairlead.core.instant import AT_ONCE, DAY
from fairlead.core.settings import Rules
from fairlead.core.task import Priority, State, Task
from fairlead.storage.journal import rebuild as rebuilding
from fairlead.storage.journal.duties import Flusher, Reconciler
from fairlead.storage.journal.incarnation import Incarnation
from fairlead.storage.journal.journal import Journal
from fairlead.storage.journal.rebuild import Rebuilt, Recovery
from fairlead.storage.journal.url import JournalAddress
from fairlead.storage.values import Change, KeyHeld, Verdict
from fairlead.testing.builders import (
    NOW,
    a_claim,
    a_decision,
    a_dependent,
    a_failure,
    a_settle,
    a_task,
    seen,
    some_tasks,
)
from fairlead.testing.steps import add, claim_one, ids, settle
from fairlead.testing.vandalism import emptied
from tests.storage.journal.current import CurrentStore
from tests.storage.journal.noting_memory import NotingMemoryStore
from tests.storage.journal.test_redis import damage_row


async def rebuild(hot: NotingMemoryStore, journal: Journal) -> Rebuilt:
    return await Recovery(hot, journal, Incarnation(hot, journal)).run(Rules())


class TestRebuild:
    async def test_what_waited_waits_as_it_did(self, store: CurrentStore, journal: Journal) -> None:
        tasks = [
            a_task(priority=Priority.LOW, ready_at=NOW - DAY),
            a_task(priority=Priority.CRITICAL, requires=("gpu",)),
            a_task(state=State.SCHEDULED, ready_at=NOW + DAY, queue="other"),
        ]
        await add(store, *tasks)
        empty = NotingMemoryStore()
        assert await rebuild(empty, journal) == Rebuilt(3, 3)
        assert await empty.get(ids(tasks)) == tasks
        assert await empty.due(NOW + DAY, 9) == [tasks[2]]

    @pytest.mark.parametrize("state", [State.QUEUED, State.SCHEDULED])
    async def test_a_page_of_nothing_but_damaged_rows_is_not_the_last(
        self,
        store: CurrentStore,
        journal: Journal,
        address: JournalAddress,
        monkeypatch: pytest.MonkeyPatch,
        state: State,
    ) -> None:
        monkeypatch.setattr(rebuilding, "BATCH", 2)
        tasks = [a_task(state=state) for _ in range(11)]
        await add(store, *tasks)
        for task in tasks[:10]:
            damage_row(address.database, task.id, "status", emptied)
        empty = NotingMemoryStore()
        assert await rebuild(empty, journal) == Rebuilt(1, 1)
        assert await empty.get([tasks[10].id]) == [tasks[10]]

    async def test_retries_are_not_forgotten(self, store: CurrentStore, journal: Journal) -> None:
        await add(store, a_task())
        task = await settle(store, await claim_one(store), Failed(failure=a_failure()))
        await Flusher(store.hot, journal).all()
        empty = NotingMemoryStore()
        await rebuild(empty, journal)
        assert await empty.get([task.id]) == [task]
        assert task.status.retries == 1

    async def test_turns_are_given_anew(
        self, store: CurrentStore, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Page by page, in the order in which tasks wait: a key that comes then is not behind what others had."""
        monkeypatch.setattr(rebuilding, "BATCH", 5)
        tasks = [a_task(fair=key) for key in "AAAAAAAAAAAAAAAAAAB"]
        await add(store, *tasks)
        await store.claim(a_claim(limit=5))
        await Flusher(store.hot, journal).all()
        empty = NotingMemoryStore()
        await rebuild(empty, journal)
        over = CurrentStore(empty, journal)
        await add(over, a_task(fair="C"))
        again = await over.claim(a_claim(limit=20))
        assert [task.spec.fair_key for task in again][:4] == ["A", "B", "C", "A"]
        assert ids([task for task in again if task.spec.fair_key == "A"]) == ids(tasks[:18])

    async def test_what_was_executing_waits_again_and_its_holder_is_refused(
        self, store: CurrentStore, journal: Journal
    ) -> None:
        await add(store, a_task())
        claimed = await claim_one(store)
        await Flusher(store.hot, journal).all()
        empty = NotingMemoryStore()
        assert await rebuild(empty, journal) == Rebuilt(1, 1)
        over = CurrentStore(empty, journal)
        assert await over.apply([a_settle(claimed, Completed())]) == [Verdict.STALE]
        again = await claim_one(over)
        assert (again.id, again.status.attempts) == (claimed.id, 2)
        assert (await journal.get([claimed.id]))[claimed.id].state is State.QUEUED

    async def test_what_has_ended_is_not_brought_back(self, store: CurrentStore, journal: Journal) -> None:
        await add(store, *some_tasks(2))
        for task in await store.claim(a_claim(limit=2)):
            await settle(store, task, Completed())
        await Flusher(store.hot, journal).all()
        empty = NotingMemoryStore()
        assert await rebuild(empty, journal) == Rebuilt(0, 0)

    async def test_a_held_key_is_held_again(self, store: CurrentStore, journal: Journal) -> None:
        await add(store, a_task(key="once"), a_task(key="twice"))
        ended = await settle(store, await claim_one(store), Completed())
        await Flusher(store.hot, journal).all()
        empty = NotingMemoryStore()
        assert await rebuild(empty, journal) == Rebuilt(2, 2)
        over = CurrentStore(empty, journal)
        assert await over.add([a_task(key="once")], now=NOW, bounds={}) == [KeyHeld(ended.id)]
        (receipt,) = await over.add([a_task(key="twice")], now=NOW, bounds={})
        assert isinstance(receipt, KeyHeld)

    async def test_a_key_that_another_holds_by_now_does_not_keep_a_task_out(
        self, store: CurrentStore, journal: Journal
    ) -> None:
        lost, successor = a_task(key="once"), a_task(key="once")
        await add(store, lost)
        empty = NotingMemoryStore()
        await add(empty, successor)
        await rebuild(empty, journal)
        over = CurrentStore(empty, journal)
        assert set(ids(await over.claim(a_claim(limit=9)))) == {lost.id, successor.id}

    async def test_it_may_be_repeated_while_workers_run(self, store: CurrentStore, journal: Journal) -> None:
        await add(store, *some_tasks(20))
        empty = NotingMemoryStore()
        assert await rebuild(empty, journal) == Rebuilt(20, 20)
        over = CurrentStore(empty, journal)
        held = await over.claim(a_claim(limit=5))
        ended = [await settle(over, task, Completed()) for task in await over.claim(a_claim(limit=5))]
        assert (await rebuild(empty, journal)).put_back == 0
        assert await over.get(ids(held)) == held
        assert await over.get(ids(ended)) == ended

    async def test_an_interrupted_one_goes_on(
        self, store: CurrentStore, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("fairlead.storage.journal.rebuild.BATCH", 7)
        tasks = some_tasks(30)
        await add(store, *tasks)
        empty = NotingMemoryStore()

        def stop(looked_at: int, total: int) -> None:
            assert total == 30
            if looked_at >= 14:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            await Recovery(empty, journal, Incarnation(empty, journal)).run(Rules(), stop)
        assert len([task for task in await empty.get(ids(tasks)) if task is not None]) < 30
        assert (await rebuild(empty, journal)).looked_at == 30
        assert await empty.get(ids(tasks)) == tasks

    async def test_what_a_worker_ends_meanwhile_stays_ended(self, store: CurrentStore, journal: Journal) -> None:
        """A settle under a lease that the journal knows is accepted though the hot store has lost the task."""
        await add(store, a_task())
        claimed = await claim_one(store)
        await Flusher(store.hot, journal).all()
        empty = NotingMemoryStore()
        over = CurrentStore(empty, journal)
        assert await over.apply([a_settle(claimed, Completed(b"1"))]) == [Verdict.APPLIED]
        assert await rebuild(empty, journal) == Rebuilt(0, 0)

    async def test_what_is_cancelled_meanwhile_is_not_put_back(self, store: CurrentStore, journal: Journal) -> None:
        task = a_task()
        await add(store, task)
        empty = NotingMemoryStore()
        over = CurrentStore(empty, journal)
        cancelled = replace(task.status, state=State.CANCELLED, version=2, ended_at=NOW, alarm=NOW + DAY)
        change = Change(task.id, seen(task), cancelled)
        verdicts, _ = await asyncio.gather(over.apply([change]), rebuild(empty, journal))
        assert verdicts == [Verdict.APPLIED]
        assert await over.claim(a_claim()) == []


class TestTasksThatWaitForOthers:
    """D1 to D3, also when what they wait for has left the hot store, or was lost with it."""

    async def test_they_may_wait_for_what_only_the_journal_has(self, store: CurrentStore, journal: Journal) -> None:
        completed, failed = some_tasks(2)
        await add(store, completed, failed)
        first, second = await store.claim(a_claim(limit=2))
        await settle(store, first, Completed())
        await settle(store, second, REJECTED)
        await Flusher(store.hot, journal).all()
        over = CurrentStore(NotingMemoryStore(), journal)
        task = a_dependent(completed, failed)
        await add(over, task)
        assert _counts(await over.hot.get([task.id])) == [(0, 1, AT_ONCE)]

    async def test_after_a_rebuild_they_are_counted_anew(self, store: CurrentStore, journal: Journal) -> None:
        """What the journal has not learnt of the count, it has of the ends."""
        waiting, running, ended, gone = tasks = some_tasks(4)
        all_four, two = a_dependent(*tasks), a_dependent(ended, gone)
        behind = a_dependent(all_four)
        await add(store, *tasks, all_four, two, behind)
        claimed = {task.id: task for task in await store.claim(a_claim(limit=4))}
        await store.apply([a_settle(claimed[ended.id], Completed()), a_settle(claimed[gone.id], REJECTED)])
        (failed,) = await store.get([gone.id])
        assert failed is not None
        await Flusher(store.hot, journal).all()
        await store.apply([a_decision(failed, Discarded())])
        await Flusher(store.hot, journal).all()
        empty = NotingMemoryStore()
        await rebuild(empty, journal)
        found = await empty.get([all_four.id, two.id, behind.id])
        assert _counts(found) == [(2, 1, None), (0, 1, AT_ONCE), (1, 0, None)]
        over = CurrentStore(empty, journal)
        again = {task.id: task for task in await over.claim(a_claim(limit=4))}
        assert again.keys() == {waiting.id, running.id}
        verdicts = await over.apply([a_settle(task, Completed()) for task in again.values()])
        assert verdicts == [Verdict.APPLIED, Verdict.RELEASED]

    async def test_an_end_that_only_the_journal_sees_is_counted(self, store: CurrentStore, journal: Journal) -> None:
        parent = a_task()
        await add(store, parent)
        over = CurrentStore(NotingMemoryStore(), journal)
        task = a_dependent(parent)
        await add(over, task)
        assert _counts(await over.hot.get([task.id])) == [(1, 0, None)]
        assert await over.apply([a_decision(parent, CancelAsked())]) == [Verdict.RELEASED]
        assert _counts(await over.hot.get([task.id])) == [(0, 1, AT_ONCE)]

    async def test_one_that_was_accepted_and_never_got_there_is_counted_when_it_does(
        self, store: CurrentStore, journal: Journal
    ) -> None:
        first = a_task()
        second = a_dependent(first)
        await journal.add([second, first, lost := a_dependent(a_task())], accepted=True)
        assert await Reconciler(store.hot, journal, age=0).once() == 3
        assert _counts(await store.hot.get([second.id])) == [(1, 0, None)]
        assert await store.get([lost.id]) == [None]
        claimed = await claim_one(store)
        assert await store.apply([a_settle(claimed, Completed())]) == [Verdict.RELEASED]


REJECTED = Failed(failure=a_failure(), retriable=False)


def _counts(tasks: list[Task | None]) -> list[tuple[int, int, int | None]]:
    return [(task.status.pending, task.status.unmet, task.status.alarm) for task in tasks if task is not None]
