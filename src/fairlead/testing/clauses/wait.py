"""Clause W1: waiting for work.

A wait is a hint, so these tests ask for little: a waiter that is told again and again returns long before its timeout.
No test here counts on a moment at which a waiter has begun to listen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import ClassVar, TypeAlias

from fairlead.core.events import AlarmRang, HandedBack
from fairlead.core.task import State
from fairlead.storage.protocol import Store
from fairlead.testing.builders import NOW, a_decision, a_task
from fairlead.testing.steps import add, apply_one, claim_one, settle

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
