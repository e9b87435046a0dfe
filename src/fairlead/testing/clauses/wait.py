"""Clauses W1 to W4: waiting for work, and claiming it in one go on a store that can.

A wait is a hint, so these tests ask for little: a waiter that is told again and again returns long before its timeout.
No test here counts on a moment at which a waiter has begun to listen. A store that answers that it has not claimed is
claimed from, as its caller would.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Any, ClassVar, Protocol, TypeAlias

import pytest

from fairlead.core.events import AlarmRang, HandedBack
from fairlead.core.instant import SECOND
from fairlead.core.task import Priority, State, Task
from fairlead.storage.protocol import Prompt, Store
from fairlead.storage.values import Claim
from fairlead.testing.builders import LEASE, NOW, a_claim, a_decision, a_task
from fairlead.testing.steps import add, apply_one, claim_one, ids, lease_of, settle, time_of

Tell: TypeAlias = Callable[[], Awaitable[None]]

LONG = 300.0
"""A timeout that no test waits for."""
PAUSE = 0.05
"""How long to listen before telling again."""


async def release(waiters: Iterable[asyncio.Task[None]]) -> None:
    """Stop waiting; a wait may be cancelled at any time."""
    waiting = list(waiters)
    for waiter in waiting:
        waiter.cancel()
    for answer in await asyncio.gather(*waiting, return_exceptions=True):
        assert answer is None or isinstance(answer, asyncio.CancelledError)


class WaitingClauses:
    """When a waiter wakes."""

    patience: ClassVar[float] = 30.0
    """How many seconds a woken waiter may take, on a machine that has other things to do."""

    async def test_a_wait_ends_with_its_timeout(self, store: Store) -> None:
        """W1: never not at all."""
        async with asyncio.timeout(self.patience):
            await store.wait(["default"], 0.01)
            await store.wait(["default"], 0.0)
            await store.wait(["a", "b"], 0.01)

    async def test_an_added_task_wakes_a_waiter(self, store: Store) -> None:
        """W1: long before its timeout."""
        waiter = asyncio.create_task(store.wait(["default"], LONG))
        await self._tell_until_one_wakes([waiter], lambda: add(store, a_task()))
        await waiter

    async def test_a_waiter_listens_to_all_its_queues(self, store: Store) -> None:
        """W1: any of them will do."""
        for queue in ("a", "b", "c"):
            waiter = asyncio.create_task(store.wait(["a", "b", "c"], LONG))
            await self._tell_until_one_wakes([waiter], partial(self._add_to, store, queue))
            await waiter

    async def test_a_task_that_becomes_due_wakes_a_waiter(self, store: Store) -> None:
        """W1: when it is queued, by whoever sweeps."""

        async def tell() -> None:
            task = a_task(state=State.SCHEDULED, ready_at=NOW)
            await add(store, task)
            await apply_one(store, a_decision(task, AlarmRang()))

        waiter = asyncio.create_task(store.wait(["default"], LONG))
        await self._tell_until_one_wakes([waiter], tell)
        await waiter

    async def test_a_task_handed_back_wakes_a_waiter(self, store: Store) -> None:
        """W1: another worker may take it at once."""
        await add(store, a_task())

        async def tell() -> None:
            await settle(store, await claim_one(store), HandedBack())

        waiter = asyncio.create_task(store.wait(["default"], LONG))
        await self._tell_until_one_wakes([waiter], tell)
        await waiter

    async def test_one_task_does_not_wake_every_waiter(self, store: Store) -> None:
        """W1: it need wake only one; that a few more return early does no harm."""
        waiters = [asyncio.create_task(store.wait(["default"], LONG)) for _ in range(8)]
        told = await self._tell_until_one_wakes(waiters, lambda: add(store, a_task()))
        for _ in range(20):
            await store.get([])
            await asyncio.sleep(0)
        awake = sum(waiter.done() for waiter in waiters)
        await release(waiters)
        assert awake < len(waiters) or told >= len(waiters)

    async def test_every_waiter_wakes_in_the_end(self, store: Store) -> None:
        """W1: when there is enough to do for all of them."""
        waiters = {asyncio.create_task(store.wait(["default"], LONG)) for _ in range(4)}
        while waiters:
            await self._tell_until_one_wakes(waiters, lambda: add(store, a_task()))
            waiters = {waiter for waiter in waiters if not waiter.done()}

    async def test_a_cancelled_waiter_does_not_take_the_hint_with_it(self, store: Store) -> None:
        """W1: the ones that still wait are woken."""
        gone = [asyncio.create_task(store.wait(["default"], LONG)) for _ in range(4)]
        stays = asyncio.create_task(store.wait(["default"], LONG))
        await asyncio.sleep(0)
        await release(gone)
        await self._tell_until_one_wakes([stays], lambda: add(store, a_task()))
        await stays

    async def _tell_until_one_wakes(self, waiters: Iterable[asyncio.Task[None]], tell: Tell) -> int:
        """Tell of work again and again until a waiter returns; how often it took."""
        waiting, told = set(waiters), 0
        begun = time.monotonic()
        while True:
            await tell()
            told += 1
            done, _ = await asyncio.wait(waiting, timeout=PAUSE, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return told
            if time.monotonic() - begun > self.patience:
                await release(waiting)
                raise AssertionError(f"no waiter woke within {self.patience:g} s")

    async def _add_to(self, store: Store, queue: str) -> None:
        await add(store, a_task(queue=queue))


SHORT = 0.01
TURNS = 40
"""How many turns of the event loop a waiter gets at most before it is cancelled."""


class PromptStore(Store, Prompt, Protocol):
    """A store that waits and claims in one go."""


async def prompt(store: Store) -> PromptStore:
    """The store, if it has what is tested here."""
    if not isinstance(store, Prompt) or await store.time() is None:
        pytest.skip("the store claims in a step of its own")
    return store


def a_claim_now(*queues: str, **wish: Any) -> Claim:
    return a_claim(*queues, now=None, **wish)


async def taken(store: PromptStore, claim: Claim) -> list[Task]:
    """The tasks that a waiting claim leads to, on its own or by claiming afterwards."""
    while (tasks := await store.wait_and_claim(claim, LONG)) is not None:
        if tasks:
            return tasks
    return await store.claim(claim)


class PromptClauses:
    """What `wait_and_claim` does, on a store that has it."""

    patience: ClassVar[float] = 30.0

    async def test_what_was_waited_for_is_held_like_anything_claimed(self, store: Store) -> None:
        """W2: the tasks are as `claim` would have left them, but for the moment."""
        prompt_store = await prompt(store)
        claim = a_claim_now()
        waiting = asyncio.create_task(taken(prompt_store, claim))
        task = a_task()
        await add(store, task)
        async with asyncio.timeout(self.patience):
            (got,) = await waiting
        assert await store.get([task.id]) == [got]
        assert (got.spec, got.state, got.status.version) == (task.spec, State.EXECUTING, task.status.version + 1)
        assert (got.status.attempts, lease_of(got).token, lease_of(got).worker) == (1, claim.token, claim.worker)
        assert got.status.alarm == lease_of(got).until

    async def test_a_lease_begins_when_the_wait_has_ended(self, store: Store) -> None:
        """W2: not when it began, by the store's clock."""
        prompt_store = await prompt(store)
        begun = await time_of(store)
        waiting = asyncio.create_task(prompt_store.wait_and_claim(a_claim_now(), LONG))
        while await time_of(store) - begun < SECOND // 5:  # noqa: ASYNC110 - time is what is waited for
            await asyncio.sleep(SHORT)
        before = await time_of(store)
        await add(store, a_task())
        async with asyncio.timeout(self.patience):
            tasks = await waiting
        for task in tasks or ():
            assert before <= (task.status.started_at or 0) <= await time_of(store)
            assert lease_of(task).until == (task.status.started_at or 0) + LEASE

    async def test_a_waiting_claim_takes_what_it_may_and_the_best_first(self, store: Store) -> None:
        """W2: types, capabilities, queues, limit and order are those of the claim."""
        prompt_store = await prompt(store)
        low, high = a_task(priority=Priority.LOW), a_task(priority=Priority.HIGH)
        gpu, other = a_task(requires=["gpu"]), a_task(type="other")
        excluded, elsewhere = a_task(type="excluded"), a_task(queue="elsewhere")
        await add(store, low, high, gpu, other, excluded, elsewhere)

        async def take(limit: int, capabilities: Collection[str] = ()) -> list[Task]:
            types = {"work", "excluded"}
            claim = a_claim_now(limit=limit, capabilities=capabilities, types=types, excluded_types={"excluded"})
            async with asyncio.timeout(self.patience):
                return await taken(prompt_store, claim)

        assert ids(await take(1)) == [high.id]
        assert ids(await take(5)) == [low.id]
        assert ids(await take(5, {"gpu"})) == [gpu.id]

    async def test_a_claim_that_waits_in_vain_ends_with_its_timeout(self, store: Store) -> None:
        """W3: with nothing, or with the word that nothing was claimed."""
        prompt_store = await prompt(store)
        async with asyncio.timeout(self.patience):
            for timeout in (SHORT, 0.0):
                assert not await prompt_store.wait_and_claim(a_claim_now(), timeout)
            assert not await prompt_store.wait_and_claim(a_claim_now("a", "b"), SHORT)

    async def test_nothing_to_take_is_never_said_of_a_task_that_may_be_taken(self, store: Store) -> None:
        """W3: not of any, whether it has a concurrency key, or is in the last of several queues."""
        prompt_store = await prompt(store)
        await add(store, a_task(), a_task(queue="b"), a_task(queue="c", concurrency_key="key"))
        async with asyncio.timeout(self.patience):
            for queues in (["default"], ["a", "b"], ["c"]):
                tasks = await prompt_store.wait_and_claim(a_claim_now(*queues), SHORT)
                assert tasks is None or [task.spec.queue for task in tasks] == queues[-1:]

    async def test_many_who_wait_take_each_task_once(self, store: Store) -> None:
        """W2: and together all of them."""
        prompt_store = await prompt(store)
        tasks = [a_task() for _ in range(8)]
        claims = [a_claim_now() for _ in tasks]
        waiting = [asyncio.create_task(taken(prompt_store, claim)) for claim in claims]
        for task in tasks:
            await add(store, task)
            await asyncio.sleep(0)
        async with asyncio.timeout(self.patience):
            got = [task for part in await asyncio.gather(*waiting) for task in part]
        got += await store.claim(a_claim_now(limit=len(tasks)))
        assert sorted(ids(got)) == sorted(ids(tasks))

    async def test_what_a_cancelled_wait_has_taken_is_returned(self, store: Store) -> None:
        """W4: whenever it is cancelled, a task is in its hands or still to be claimed."""
        prompt_store = await prompt(store)
        for turns in range(TURNS):
            # A queue of its own: for another there may be a ring left, which ends a wait before anything is added.
            claim = a_claim_now(f"queue-{turns}")
            task = a_task(queue=f"queue-{turns}")
            waiting = asyncio.create_task(prompt_store.wait_and_claim(claim, LONG))
            adding = asyncio.create_task(add(store, task))
            for _ in range(turns):
                await asyncio.sleep(0)
            waiting.cancel()
            async with asyncio.timeout(self.patience):
                (got,) = await asyncio.gather(waiting, return_exceptions=True)
                await adding
            in_hand = got if isinstance(got, list) else []
            assert ids(in_hand or await store.claim(claim)) == [task.id]

    async def test_a_cancelled_wait_that_took_nothing_is_cancelled(self, store: Store) -> None:
        """W4: at once, long before its timeout."""
        prompt_store = await prompt(store)
        for turns in range(TURNS):
            waiting = asyncio.create_task(prompt_store.wait_and_claim(a_claim_now(), LONG))
            for _ in range(turns):
                await asyncio.sleep(0)
            waiting.cancel()
            async with asyncio.timeout(self.patience):
                with pytest.raises(asyncio.CancelledError):
                    await waiting
