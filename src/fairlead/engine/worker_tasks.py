"""The tasks of a worker: those that it holds, and those that were taken from it.

An index by worker in the stores would be written at every claim and every settle, for the few workers that do not say
themselves what they run. So there is none. The leases know who holds them, and a process that is asked makes the index
of them: one listing of the executing tasks serves all who ask until it is half a heartbeat old. What was claimed since
is found by the next one, well before its lease ends.

A task's history says which worker it was lost with, but no store finds tasks by that. So whoever sweeps takes note, by
worker, of the tasks that it has taken from one; the note is forgotten with the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from fairlead.core.errors import StoreError
from fairlead.core.identity import LeaseToken, TaskId, WorkerId, registration_of
from fairlead.core.instant import Instant
from fairlead.core.settings import Settings
from fairlead.core.task import State, Task
from fairlead.engine.records import DecodedRecord, Form, Records, Unread, decoder
from fairlead.engine.runtime.clock import Clock
from fairlead.engine.runtime.event_loop import Turn
from fairlead.engine.worker_records import WorkerRecord, WorkerRecords
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


MOST_SHOWN: Final = 100
"""How many tasks of each sort are shown of one worker."""


class LostTask(Struct, frozen=True):
    """A task that was taken from a worker because its lease ended."""

    id: TaskId
    at: Instant
    """When it was taken from the worker."""
    task: Task | None
    """How it stands now; None if it is no more."""


class WorkerReport(Struct, frozen=True, kw_only=True):
    """A worker and its tasks."""

    worker: WorkerRecord
    drain_asked: bool = False
    """Whether it was asked to drain; it hears of it at its next beat."""
    running: tuple[Task, ...] = ()
    """Tasks whose leases it holds. A lost worker holds them until they end and a sweep notices."""
    lost: tuple[LostTask, ...] = ()
    """Tasks that were taken from it, the latest first."""
    lost_count: int = 0
    """How many there were, also those that are not listed any more."""


LOST: Final = "lost"
"""The kind of record that names the tasks taken from a worker."""

_TRIES: Final = 10


class LostNote(Struct, frozen=True, array_like=True):
    """The tasks that were taken from a worker, the latest last."""

    count: int
    last: tuple[tuple[TaskId, Instant], ...]


_NONE: Final = LostNote(0, ())
LOST_FORM: Final = Form(kind=LOST, decode=decoder(LostNote))


class LostTasks:
    """The notes of one store."""

    def __init__(self, records: Records, worker_records: WorkerRecords) -> None:
        self._records = records
        self._store = records.store
        self._worker_records = worker_records

    async def note(self, tasks: Sequence[Task], at: Instant) -> None:
        """Take note that these tasks, which stood like this, were taken from their workers.

        That is for people to read: a store that cannot take it in changes nothing else.
        """
        by_worker: dict[WorkerId, list[TaskId]] = {}
        for task in tasks:
            if task.status.lease is not None:
                by_worker.setdefault(task.status.lease.worker, []).append(task.id)
        with contextlib.suppress(StoreError):
            for worker, ids in by_worker.items():
                await self._note(worker, ids, at)

    async def forget(self) -> None:
        """Forget what was noted of workers that are forgotten themselves."""
        noted = await self._store.scan(LOST)
        if noted:
            known = await self._worker_records.names()
            for record in noted:
                if record.name not in known:
                    await self._store.drop(LOST, record.name, expected=record.version)

    async def _note(self, worker: WorkerId, ids: Sequence[TaskId], at: Instant) -> None:
        for _ in range(_TRIES):
            found = await self._records.find(LOST_FORM, worker)
            if isinstance(found, Unread):
                return
            before = _NONE if found is None else found.value
            last = (*before.last, *((task_id, at) for task_id in ids))[-MOST_SHOWN:]
            after = LOST_FORM.write(LostNote(before.count + len(ids), last))
            expected = 0 if found is None else found.version
            if await self._store.put(LOST, worker, after, expected=expected) is not None:
                return

    async def of(self, worker: WorkerId) -> LostNote:
        """What was taken from a worker."""
        found = await self._records.find(LOST_FORM, worker)
        return found.value if isinstance(found, DecodedRecord) else _NONE
