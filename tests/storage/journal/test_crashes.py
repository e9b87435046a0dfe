"""What a crash at each point leaves behind, and how it is mended."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fairlead.core.errors import StoreFull, StoreUnavailable
from fairlead.core.events import Completed, Failed
from fairlead.core.instant import DAY
from fairlead.core.task import State
from fairlead.storage.journal.duties import Flusher, Leaver, Pruner, Reconciler
from fairlead.storage.journal.journal import Journal
from fairlead.storage.journal.outbox import HIDDEN
from fairlead.storage.values import Added, Change, KeyHeld, Known, Seen, Verdict
from fairlead.testing.builders import NOW, a_claim, a_failure, a_removal, a_task, seen, some_tasks
from fairlead.testing.steps import add, apply_one, claim_one, ids, read, settle
from tests.storage.journal.current import CurrentStore
from tests.storage.journal.noting_memory import NotingMemoryStore


class Dies(Exception):
    """The process ends here."""


class TestBetweenJournalAndHotStore:
    async def test_what_was_accepted_gets_there_by_itself(
        self, hot: NotingMemoryStore, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        task = a_task(key="once")
        await _die_before_hot(hot, journal, task, monkeypatch)
        assert await hot.get([task.id]) == [None]
        assert await Reconciler(hot, journal, age=0).once() == 1
        assert await hot.get([task.id]) == [task]
        assert ids(await hot.claim(a_claim())) == [task.id]

    async def test_it_is_looked_at_once(self, hot: NotingMemoryStore, journal: Journal) -> None:
        await add(CurrentStore(hot, journal), *some_tasks(3))
        assert await Reconciler(hot, journal, age=0).once() == 0
        place = await journal.take_duty("reconcile", 0)
        assert place is not None
        assert await journal.accepted(place, 0, 9) == []

    async def test_one_whose_key_is_held_is_taken_back(
        self, hot: NotingMemoryStore, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = CurrentStore(hot, journal)
        first, second = a_task(key="once"), a_task(key="once")
        await add(store, first)
        await _die_before_hot(hot, journal, second, monkeypatch)
        await Reconciler(hot, journal, age=0).once()
        assert await store.get([first.id, second.id]) == [first, None]

    async def test_adding_it_again_puts_it_there(
        self, hot: NotingMemoryStore, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        task = a_task()
        await _die_before_hot(hot, journal, task, monkeypatch)
        assert await CurrentStore(hot, journal).add([task], now=NOW, bounds={}) == [Added()]
        assert await hot.get([task.id]) == [task]

    async def test_a_hot_store_that_stored_nothing_leaves_nothing_behind(
        self, hot: NotingMemoryStore, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def full(*args: object, **options: object) -> None:
            raise StoreFull("no memory")

        monkeypatch.setattr(hot, "add", full)
        task = a_task()
        with pytest.raises(StoreFull):
            await CurrentStore(hot, journal).add([task], now=NOW, bounds={})
        assert await journal.get([task.id]) == {}

    async def test_what_is_refused_is_taken_back(self, store: CurrentStore, journal: Journal) -> None:
        first, second, third = a_task(key="once"), a_task(key="once"), a_task()
        receipts = await store.add([first, second, third], now=NOW, bounds={"default": 1})
        assert receipts[:2] == [Added(), KeyHeld(first.id)]
        assert set(await journal.get([first.id, second.id, third.id])) == {first.id}


class TestFlusher:
    async def test_a_flusher_that_dies_before_the_journal_has_it_loses_nothing(
        self, hot: NotingMemoryStore, store: CurrentStore, journal: Journal
    ) -> None:
        now = 0
        hot._clock = lambda: now
        await add(store, a_task())
        task = await settle(store, await claim_one(store), Completed(b"1"))
        assert len(await hot.read(10)) == 1
        assert await Flusher(hot, journal).once() == 0
        now = HIDDEN
        assert await Flusher(hot, journal).once() == 1
        assert await journal.get([task.id]) == {task.id: task}
        assert await hot.size() == 0

    async def test_a_flusher_that_dies_before_it_says_so_does_it_twice(
        self, hot: NotingMemoryStore, store: CurrentStore, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await add(store, a_task())
        task = await settle(store, await claim_one(store), Completed(b"1"))

        async def die(done: object) -> None:
            raise Dies

        with monkeypatch.context() as patch:
            patch.setattr(hot, "done", die)
            with pytest.raises(Dies):
                await Flusher(hot, journal).once()
        await hot.note([task.id])
        assert await Flusher(hot, journal).once() == 1
        assert await journal.get([task.id]) == {task.id: task}

    async def test_an_older_version_replaces_nothing(self, store: CurrentStore, journal: Journal) -> None:
        await add(store, a_task())
        claimed = await claim_one(store)
        ended = await settle(store, claimed, Completed(b"1"))
        await journal.store([ended])
        await journal.store([claimed])
        await journal.store([ended])
        assert await journal.get([ended.id]) == {ended.id: ended}

    async def test_a_change_while_it_is_carried_is_carried_again(
        self, hot: NotingMemoryStore, store: CurrentStore, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await add(store, a_task())
        claimed = await claim_one(store)
        carry = journal.store
        ended = []

        async def settle_meanwhile(tasks: object) -> None:
            await carry([claimed])
            ended.append(await settle(store, claimed, Completed(b"1")))

        with monkeypatch.context() as patch:
            patch.setattr(journal, "store", settle_meanwhile)
            await Flusher(hot, journal).once()
        assert await Flusher(hot, journal).all() == 1
        assert await journal.get([claimed.id]) == {claimed.id: ended[0]}

    async def test_a_removal_that_the_journal_missed_reaches_it(
        self, hot: NotingMemoryStore, store: CurrentStore, journal: Journal
    ) -> None:
        task = a_task(state=State.COMPLETED)
        await add(store, task)
        await hot.apply([a_removal(task)])
        assert await journal.get([task.id]) == {task.id: task}
        await Flusher(hot, journal).all()
        assert await journal.get([task.id]) == {}

    async def test_what_is_missing_without_a_word_stays_in_the_journal(
        self, hot: NotingMemoryStore, store: CurrentStore, journal: Journal
    ) -> None:
        await add(store, a_task())
        task = await claim_one(store)
        await hot.leave([a_removal(task)])
        await Flusher(hot, journal).all()
        assert list(await journal.get([task.id])) == [task.id]

    async def test_an_outage_shows_the_notes_again_at_once(
        self, hot: NotingMemoryStore, store: CurrentStore, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await add(store, a_task())
        await claim_one(store)

        async def down(tasks: object) -> None:
            raise StoreUnavailable("down")

        with monkeypatch.context() as patch:
            patch.setattr(journal, "store", down)
            with pytest.raises(StoreUnavailable):
                await Flusher(hot, journal).once()
        assert await Flusher(hot, journal).once() == 1


class TestLeaving:
    async def test_an_ended_task_leaves_the_hot_store_and_stays_in_the_journal(
        self, hot: NotingMemoryStore, store: CurrentStore, journal: Journal
    ) -> None:
        await add(store, a_task())
        task = await settle(store, await claim_one(store), Failed(failure=a_failure(), retriable=False))
        assert await Leaver(hot, journal).once() == 0
        await Flusher(hot, journal).all()
        assert await Leaver(hot, journal).once() == 1
        assert await hot.get([task.id]) == [None]
        assert await store.get([task.id]) == [task]
        assert await hot.size() == 0

    async def test_one_that_was_replayed_meanwhile_stays(
        self, hot: NotingMemoryStore, store: CurrentStore, journal: Journal
    ) -> None:
        await add(store, a_task())
        task = await settle(store, await claim_one(store), Failed(failure=a_failure(), retriable=False))
        await Flusher(hot, journal).all()
        again = replace(task.status, state=State.QUEUED, version=task.status.version + 1, alarm=None, ended_at=None)
        await apply_one(store, Change(task.id, seen(task), again))
        assert await Leaver(hot, journal).once() == 1
        assert ids(await hot.claim(a_claim())) == [task.id]

    async def test_one_whose_key_is_held_stays(
        self, hot: NotingMemoryStore, store: CurrentStore, journal: Journal
    ) -> None:
        await add(store, a_task(key="once"))
        task = await settle(store, await claim_one(store), Completed())
        await Flusher(hot, journal).all()
        assert await Leaver(hot, journal).once() == 0
        assert await store.add([a_task(key="once")], now=NOW, bounds={}) == [KeyHeld(task.id)]

    async def test_one_that_left_can_be_replayed(
        self, hot: NotingMemoryStore, store: CurrentStore, journal: Journal
    ) -> None:
        await add(store, a_task())
        task = await settle(store, await claim_one(store), Failed(failure=a_failure(), retriable=False))
        await Flusher(hot, journal).all()
        await Leaver(hot, journal).once()
        again = replace(task.status, state=State.QUEUED, version=task.status.version + 1, alarm=None, ended_at=None)
        stale = Change(task.id, Seen(task.status.version - 1, 0), again)
        change = Change(task.id, seen(task), again)
        assert await store.apply([stale, change, change]) == [Verdict.STALE, Verdict.APPLIED, Verdict.STALE]
        assert (await hot.get([task.id]))[0] == await read(store, task)
        assert ids(await store.claim(a_claim())) == [task.id]

    async def test_one_that_left_can_be_discarded(
        self, hot: NotingMemoryStore, store: CurrentStore, journal: Journal
    ) -> None:
        await add(store, a_task())
        task = await settle(store, await claim_one(store), Completed())
        await Flusher(hot, journal).all()
        await Leaver(hot, journal).once()
        await apply_one(store, a_removal(task))
        assert await store.get([task.id]) == [None]
        assert await store.apply([a_removal(task)]) == [Verdict.MISSING]

    async def test_adding_one_that_left_is_known(
        self, hot: NotingMemoryStore, store: CurrentStore, journal: Journal
    ) -> None:
        await add(store, a_task())
        claimed = await claim_one(store)
        task = await settle(store, claimed, Completed())
        await Flusher(hot, journal).all()
        await Leaver(hot, journal).once()
        assert await store.add([a_task(id=task.id)], now=NOW, bounds={}) == [Known()]
        assert await store.claim(a_claim()) == []

    async def test_the_journal_forgets_when_retention_ends(
        self, hot: NotingMemoryStore, store: CurrentStore, journal: Journal
    ) -> None:
        old, young = a_task(state=State.COMPLETED, alarm=1), a_task(state=State.COMPLETED, alarm=NOW + DAY)
        await add(store, old, young)
        assert await Pruner(journal).once() == 1
        assert set(await journal.get([old.id, young.id])) == {young.id}


async def _die_before_hot(
    hot: NotingMemoryStore, journal: Journal, task: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*args: object, **options: object) -> None:
        raise Dies

    with monkeypatch.context() as patch:
        patch.setattr(hot, "add", die)
        with pytest.raises(Dies):
            await CurrentStore(hot, journal).add([task], now=NOW, bounds={})  # type: ignore[list-item]
