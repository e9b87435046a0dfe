"""Clauses A3 and A4: idempotency keys."""

from __future__ import annotations

import asyncio

from fairlead.core.events import Completed
from fairlead.core.instant import DAY, LATEST, SECOND
from fairlead.core.task import State
from fairlead.storage.protocol import Store
from fairlead.storage.values import Added, KeyHeld, Known
from fairlead.testing.builders import NOW, a_claim, a_removal, a_task
from fairlead.testing.clauses.add import ODD_TEXT
from fairlead.testing.steps import add, apply_one, claim_one, contents, ids, read, settle


class KeyClauses:
    """What an idempotency key does."""

    async def test_a_held_key_answers_with_its_holder(self, store: Store) -> None:
        """A3: nothing is stored."""
        holder, late = a_task(key="once"), a_task(key="once")
        await add(store, holder)
        assert await store.add([late], now=NOW, bounds={}) == [KeyHeld(holder.id)]
        assert await read(store, late) is None
        assert await contents(store) == [holder]
        assert ids(await store.claim(a_claim(limit=5))) == [holder.id]

    async def test_a_key_twice_in_one_call_is_taken_once(self, store: Store) -> None:
        """A3: the first of them takes it."""
        tasks = [a_task(key="once"), a_task(), a_task(key="once"), a_task(key="twice"), a_task(key="once")]
        held = KeyHeld(tasks[0].id)
        assert await store.add(tasks, now=NOW, bounds={}) == [Added(), Added(), held, Added(), held]
        assert await contents(store) == [tasks[0], tasks[1], tasks[3]]

    async def test_a_refused_task_may_be_added_again_when_the_key_is_free(self, store: Store) -> None:
        """A3: what is answered KeyHeld leaves no trace, not even its id."""
        holder, late = a_task(key="once"), a_task(key="once")
        await store.add([holder, late], now=NOW, bounds={})
        await apply_one(store, a_removal(holder))
        assert await store.add([late], now=NOW, bounds={}) == [Added()]

    async def test_a_key_is_held_whatever_the_state_of_its_holder(self, store: Store) -> None:
        """A3: scheduled, executing and ended tasks hold their keys as queued ones do."""
        waiting = a_task(key="scheduled", state=State.SCHEDULED, ready_at=NOW + SECOND)
        await add(store, waiting, a_task(key="executing"), a_task(key="ended"))
        claimed = {task.spec.idempotency_key: task for task in await store.claim(a_claim(limit=2))}
        await settle(store, claimed["ended"], Completed())
        receipts = await store.add(
            [a_task(key="scheduled"), a_task(key="executing"), a_task(key="ended")], now=NOW, bounds={}
        )
        assert receipts == [KeyHeld(waiting.id), KeyHeld(claimed["executing"].id), KeyHeld(claimed["ended"].id)]

    async def test_the_holder_of_a_key_is_told(self, store: Store) -> None:
        """A7: by queue and key, until the first moment at which the key is free; and nothing changes."""
        holder = a_task(queue="a", key="once", key_until=NOW + SECOND)
        await add(store, holder, a_task(queue="b"))
        assert await store.holder("a", "once", now=NOW) == holder.id
        assert await store.holder("a", "once", now=NOW + SECOND - 1) == holder.id
        assert await store.holder("a", "once", now=NOW + SECOND) is None
        assert await store.holder("b", "once", now=NOW) is None
        assert await store.holder("a", "twice", now=NOW) is None
        await apply_one(store, a_removal(holder))
        assert await store.holder("a", "once", now=NOW) is None

    async def test_the_holder_of_a_key_is_told_by_the_store_s_own_clock(self, store: Store) -> None:
        """A7, T1."""
        await add(store, holder := a_task(key="held", key_until=LATEST), a_task(key="free", key_until=1))
        assert await store.holder(holder.spec.queue, "held") == holder.id
        assert await store.holder(holder.spec.queue, "free") is None

    async def test_keys_of_different_queues_are_different(self, store: Store) -> None:
        """A3: a key is (queue, idempotency_key), whatever characters either has."""
        tasks = [
            a_task(queue="a", key="b:c"),
            a_task(queue="a:b", key="c"),
            a_task(queue="a", key="b"),
            a_task(queue="a", key="B"),
            a_task(queue="A", key="b"),
            a_task(queue="a", key=" b"),
            a_task(queue="a", key="b "),
            a_task(queue="a", key="b\x00"),
            a_task(queue="a", key=ODD_TEXT),
            a_task(queue="a", key="é"),
            a_task(queue="a", key="e\u0301"),
            a_task(queue="a", key="k" * 500),
        ]
        await add(store, *tasks)
        again = [a_task(queue=task.spec.queue, key=task.spec.idempotency_key) for task in tasks]
        assert await store.add(again, now=NOW, bounds={}) == [KeyHeld(task.id) for task in tasks]

    async def test_concurrent_adds_of_one_key_store_one_task(self, store: Store) -> None:
        """A3: exactly one of them is Added, and all others name it."""
        tasks = [a_task(key="once") for _ in range(12)]
        answers = await asyncio.gather(*(store.add([task], now=NOW, bounds={}) for task in tasks))
        stored = await contents(store)
        assert len(stored) == 1
        holder = stored[0].id
        expected = [[Added()] if task.id == holder else [KeyHeld(holder)] for task in tasks]
        assert list(answers) == expected

    async def test_a_key_is_held_until_its_end_and_not_at_it(self, store: Store) -> None:
        """A4: `key_until` is the first moment at which the key is free."""
        holder = a_task(key="once", key_until=NOW + SECOND)
        await add(store, holder)
        late = a_task(key="once", key_until=NOW + DAY)
        assert await store.add([late], now=NOW + SECOND - 1, bounds={}) == [KeyHeld(holder.id)]
        assert await store.add([late], now=NOW + SECOND, bounds={}) == [Added()]

    async def test_taking_over_a_key_leaves_its_old_holder_alone(self, store: Store) -> None:
        """A4: the old task is still there and still runs."""
        old = a_task(key="once", key_until=NOW + SECOND)
        new = a_task(key="once", key_until=NOW + DAY)
        await add(store, old)
        assert await store.add([new], now=NOW + SECOND, bounds={}) == [Added()]
        assert await contents(store) == [old, new]
        assert await store.add([a_task(key="once")], now=NOW + SECOND, bounds={}) == [KeyHeld(new.id)]
        assert await store.add([old], now=NOW + SECOND, bounds={}) == [Known()]
        assert ids(await store.claim(a_claim(limit=5))) == [old.id, new.id]

    async def test_a_key_taken_over_is_held_at_once(self, store: Store) -> None:
        """A4: by the first of several takers in one call."""
        old = a_task(key="once", key_until=NOW + SECOND)
        await add(store, old)
        first, second = a_task(key="once"), a_task(key="once")
        receipts = await store.add([first, second], now=NOW + SECOND, bounds={})
        assert receipts == [Added(), KeyHeld(first.id)]

    async def test_removing_an_old_holder_does_not_free_the_key(self, store: Store) -> None:
        """A4: the key is the new holder's."""
        old = a_task(key="once", key_until=NOW + SECOND)
        new = a_task(key="once", key_until=NOW + DAY)
        await add(store, old)
        await store.add([new], now=NOW + SECOND, bounds={})
        await apply_one(store, a_removal(old))
        assert await store.add([a_task(key="once")], now=NOW + SECOND, bounds={}) == [KeyHeld(new.id)]

    async def test_removing_the_holder_frees_its_key(self, store: Store) -> None:
        """A4: at once, long before `key_until`."""
        holder, next_holder = a_task(key="once"), a_task(key="once")
        await add(store, holder)
        await apply_one(store, a_removal(holder))
        assert await store.add([next_holder], now=NOW, bounds={}) == [Added()]
        assert await store.add([a_task(key="once")], now=NOW, bounds={}) == [KeyHeld(next_holder.id)]

    async def test_an_expired_key_stays_free_while_its_holder_runs(self, store: Store) -> None:
        """A4: claiming and settling the old holder does not renew its key."""
        old = a_task(key="once", key_until=NOW + SECOND)
        await add(store, old)
        ended = await settle(store, await claim_one(store), Completed())
        new = a_task(key="once", key_until=NOW + DAY)
        assert await store.add([new], now=NOW + SECOND, bounds={}) == [Added()]
        assert await contents(store) == [ended, new]
