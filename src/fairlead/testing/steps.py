"""The steps that most tests of a store begin with: it is opened, tasks are added, claimed and settled."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

from fairlead.core.events import CancelAsked, Outcome
from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.task import Lease, Task
from fairlead.storage.memory import MemoryStore
from fairlead.storage.open import open_store
from fairlead.storage.protocol import Store
from fairlead.storage.steps import host_time
from fairlead.storage.values import Added, Change, Claim, Filter, Verdict
from fairlead.testing.builders import NOW, a_claim, a_decision, a_settle, after

EVERYTHING = 1_000_000


async def add(store: Store, *tasks: Task) -> None:
    """Store tasks, none of which is refused."""
    receipts = await store.add(tasks, now=NOW, bounds={})
    assert receipts == [Added()] * len(tasks)


async def claim_one(store: Store, claim: Claim | None = None) -> Task:
    """Claim exactly one task."""
    tasks = await store.claim(a_claim() if claim is None else claim)
    assert len(tasks) == 1
    return tasks[0]


async def apply_one(store: Store, change: Change) -> None:
    """Make a change that nothing stands against."""
    verdicts = await store.apply([change])
    assert verdicts == [Verdict.APPLIED]


async def settle(store: Store, task: Task, outcome: Outcome, now: Instant = NOW) -> Task:
    """Settle a held task; the answer is how it then stands."""
    change = a_settle(task, outcome, now)
    await apply_one(store, change)
    return after(task, change)


async def ask_to_cancel(store: Store, task: Task, now: Instant = NOW) -> Task:
    """Ask for a task to be cancelled; the answer is how it then stands."""
    change = a_decision(task, CancelAsked(), now)
    await apply_one(store, change)
    return after(task, change)


async def read(store: Store, task: Task) -> Task | None:
    """The task as it is stored."""
    (stored,) = await store.get([task.id])
    return stored


async def contents(store: Store) -> list[Task]:
    """All stored tasks, oldest first."""
    return await store.find(Filter(), limit=EVERYTHING, newest_first=False)


def ids(tasks: Sequence[Task]) -> list[TaskId]:
    """The ids of tasks, in their order."""
    return [task.id for task in tasks]


Opening: TypeAlias = Callable[[], AbstractAsyncContextManager[Store]]
"""Opens a store and closes it again; what else it promises is said where it is asked for."""


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    """The store at this URL, as it was left."""
    store = await open_store(url)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def opened_memory() -> AsyncIterator[Store]:
    """An empty memory store."""
    yield MemoryStore()


async def time_of(store: Store) -> Instant:
    """The time by the store's own clock."""
    now = await store.time()
    return host_time() if now is None else now


def lease_of(task: Task | None) -> Lease:
    """The lease of a task that is there and has one."""
    assert task is not None
    assert task.status.lease is not None
    return task.status.lease
