"""Who holds what: the executing tasks by worker, for workers that do not say themselves what they run.

An index by worker in the stores would be written at every claim and every settle, for the few workers that need it. So
there is none. The leases know who holds them, and a process that is asked makes the index of them: one listing of the
executing tasks serves all who ask until it is half a heartbeat old. What was claimed since is found by the next one,
well before its lease ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, TypeAlias

from fairlead.core.identity import LeaseToken, TaskId, WorkerId, registration_of
from fairlead.core.instant import Instant
from fairlead.core.settings import Settings
from fairlead.core.task import State, Task
from fairlead.engine.runtime.clock import Clock
from fairlead.engine.runtime.loop_turns import Turn
from fairlead.storage.protocol import Lagging, Store
from fairlead.storage.values import Filter

_PAGE: Final = 1_000

Held: TypeAlias = list[tuple[TaskId, LeaseToken]]


async def leased_tasks(
    store: Store, worker: WorkerId | None = None, *, limit: int, after: TaskId | None = None
) -> list[Task]:
    """One page of the tasks that a worker executes, or that any does, by id."""
    find = store.find_leased if isinstance(store, Lagging) else store.find
    held = Filter(states=frozenset({State.EXECUTING}), worker=worker)
    return await find(held, limit=limit, newest_first=False, after=after)


class HeldTasks:
    """The executing tasks of one store by the worker that holds them, as one process has last listed them."""

    def __init__(self, store: Store, settings: Settings, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._fresh = settings.heartbeat // 2
        self._held: Mapping[tuple[WorkerId, str], Held] = {}
        self._listed_at: Instant | None = None
        self._listing: asyncio.Task[None] | None = None
        self.listings = 0
        """How often the executing tasks were listed."""

    async def of(self, worker: WorkerId, registration: str) -> Held:
        """What is held by a worker, under leases that name this registration of it; nothing, if it has none."""
        if not registration:
            return []
        if self._listed_at is None or not 0 <= self._clock.monotonic() - self._listed_at < self._fresh:
            await self._list_once()
        return self._held.get((worker, registration), [])

    async def _list_once(self) -> None:
        """List them; one listing for all that ask at once."""
        if self._listing is None:
            self._listing = asyncio.create_task(self._list())
        await asyncio.shield(self._listing)

    async def _list(self) -> None:
        try:
            at = self._clock.monotonic()
            self.listings += 1
            found: dict[tuple[WorkerId, str], Held] = {}
            last: TaskId | None = None
            while True:
                page = await leased_tasks(self._store, limit=_PAGE, after=last)
                turn = Turn(len(page))
                for task in page:
                    if turn.is_over:
                        await turn.next()
                    if (lease := task.status.lease) is not None:
                        holder = lease.worker, registration_of(lease.token)
                        found.setdefault(holder, []).append((task.id, lease.token))
                if len(page) < _PAGE:
                    break
                last = page[-1].id
            self._held, self._listed_at = found, at
        finally:
            self._listing = None
