"""Clause A5: how many tasks may wait in a queue."""

from __future__ import annotations

import asyncio

from fairlead.core.events import CancelAsked, Completed, Failed, HandedBack
from fairlead.core.instant import SECOND
from fairlead.core.task import State
from fairlead.storage.protocol import Store
from fairlead.storage.values import Added, Full, KeyHeld, Known
from fairlead.testing.builders import NOW, a_claim, a_decision, a_failure, a_removal, a_task, some_tasks
from fairlead.testing.steps import add, apply_one, claim_one, contents, read, settle


class BoundClauses:
    """What a bound refuses."""

    async def test_a_queue_at_its_bound_refuses(self, store: Store) -> None:
        """A5: and says how full it is; nothing is stored."""
        tasks = some_tasks(3)
        await add(store, *tasks)
        refused = a_task()
        assert await store.add([refused], now=NOW, bounds={"default": 3}) == [Full(3, 3)]
        assert await read(store, refused) is None
        assert await contents(store) == tasks

    async def test_a_queue_below_its_bound_takes_one_more(self, store: Store) -> None:
        """A5: the bound itself can be reached."""
        await add(store, *some_tasks(2))
        assert await store.add(some_tasks(1), now=NOW, bounds={"default": 3}) == [Added()]

    async def test_tasks_of_the_same_call_count(self, store: Store) -> None:
        """A5: the bound holds inside a batch."""
        tasks = some_tasks(5)
        receipts = await store.add(tasks, now=NOW, bounds={"default": 3})
        assert receipts == [Added()] * 3 + [Full(3, 3)] * 2
        assert await contents(store) == tasks[:3]

    async def test_scheduled_and_queued_tasks_count_and_others_do_not(self, store: Store) -> None:
        """A5: waiting tasks only."""
        await add(store, *some_tasks(3))
        first, second = await store.claim(a_claim(limit=2))
        await settle(store, first, Completed())
        await add(store, a_task(state=State.SCHEDULED, ready_at=NOW + SECOND))
        assert second.state is State.EXECUTING
        receipts = await store.add(some_tasks(2), now=NOW, bounds={"default": 3})
        assert receipts == [Added(), Full(3, 3)]

    async def test_scheduled_tasks_are_held_to_the_bound(self, store: Store) -> None:
        """A5: a task that is not yet due waits too."""
        await add(store, a_task())
        later = a_task(state=State.SCHEDULED, ready_at=NOW + SECOND)
        assert await store.add([later], now=NOW, bounds={"default": 1}) == [Full(1, 1)]

    async def test_each_queue_has_its_own_bound(self, store: Store) -> None:
        """A5: a queue without a bound takes all it can hold."""
        tasks = [a_task(queue=queue) for queue in ("a", "b", "c", "a", "b", "c", "a", "b", "c")]
        receipts = await store.add(tasks, now=NOW, bounds={"a": 1, "b": 2, "unused": 1})
        full_a, full_b = Full(1, 1), Full(2, 2)
        assert receipts == [Added(), Added(), Added(), full_a, Added(), Added(), full_a, full_b, Added()]

    async def test_a_known_task_is_known_in_a_full_queue(self, store: Store) -> None:
        """A5: A2 is checked first, so that a repeated submit is never refused."""
        task = a_task()
        await add(store, task)
        assert await store.add([task, a_task()], now=NOW, bounds={"default": 1}) == [Known(), Full(1, 1)]

    async def test_a_held_key_is_held_in_a_full_queue(self, store: Store) -> None:
        """A5: A3 is checked first."""
        task = a_task(key="once")
        await add(store, task)
        assert await store.add([a_task(key="once")], now=NOW, bounds={"default": 1}) == [KeyHeld(task.id)]

    async def test_tasks_that_are_not_stored_do_not_count(self, store: Store) -> None:
        """A5: neither known nor refused ones take a place."""
        task, other = a_task(key="once"), a_task()
        batch = [task, task, a_task(key="once"), other, a_task()]
        receipts = await store.add(batch, now=NOW, bounds={"default": 2})
        assert receipts == [Added(), Known(), KeyHeld(task.id), Added(), Full(2, 2)]

    async def test_a_refused_task_does_not_take_its_key(self, store: Store) -> None:
        """A5: what is answered Full leaves no trace."""
        await add(store, a_task())
        assert await store.add([a_task(key="once")], now=NOW, bounds={"default": 1}) == [Full(1, 1)]
        assert await store.add([a_task(key="once")], now=NOW, bounds={"default": 2}) == [Added()]

    async def test_requeued_tasks_are_not_held_to_the_bound(self, store: Store) -> None:
        """A5: a task that was let in once is never shut out."""
        await add(store, *some_tasks(2))
        claimed = await store.claim(a_claim(limit=2))
        assert await store.add(some_tasks(2), now=NOW, bounds={"default": 2}) == [Added()] * 2
        await settle(store, claimed[0], HandedBack())
        await settle(store, claimed[1], Failed(failure=a_failure()))
        assert await store.add(some_tasks(1), now=NOW, bounds={"default": 2}) == [Full(4, 2)]

    async def test_every_way_out_of_the_line_makes_room(self, store: Store) -> None:
        """A5: claimed, cancelled and removed tasks wait no longer."""
        await add(store, *some_tasks(3))
        bounds = {"default": 3}
        await claim_one(store)
        assert await store.add(some_tasks(2), now=NOW, bounds=bounds) == [Added(), Full(3, 3)]
        waiting = [task for task in await contents(store) if task.state is State.QUEUED]
        await apply_one(store, a_decision(waiting[0], CancelAsked()))
        assert await store.add(some_tasks(2), now=NOW, bounds=bounds) == [Added(), Full(3, 3)]
        await apply_one(store, a_removal(waiting[1]))
        assert await store.add(some_tasks(2), now=NOW, bounds=bounds) == [Added(), Full(3, 3)]

    async def test_concurrent_adds_never_exceed_a_bound_together(self, store: Store) -> None:
        """A5: and together they reach it."""
        batches = [some_tasks(3) for _ in range(10)]
        await asyncio.gather(*(store.add(batch, now=NOW, bounds={"default": 10}) for batch in batches))
        assert len(await contents(store)) == 10
