"""The workers as people see them: what each runs, how to have it leave, and what became of the tasks of a lost one.

A task's history says which worker it was lost with, but no store finds tasks by that. So whoever sweeps takes note, by
worker, of the tasks that it has taken from one; the note is forgotten with the worker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from fairlead.core.errors import InvalidSettings, StoreError, WorkerNotFound
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.instant import Instant
from fairlead.core.task import State, Task
from fairlead.engine.clock import Clock
from fairlead.engine.presence import Presence, WorkerPresence
from fairlead.storage.protocol import Lagging, Store
from fairlead.storage.values import Filter, Record

LOST: Final = "lost"
"""The kind of record that names the tasks taken from a worker."""

MOST_SHOWN: Final = 100
"""How many tasks of each sort are shown of one worker."""

_TRIES: Final = 10
_encode: Final = msgspec.msgpack.Encoder().encode


class _Noted(Struct, frozen=True, array_like=True):
    """The tasks that were taken from a worker, the latest last."""

    count: int
    last: tuple[tuple[TaskId, Instant], ...]


class LostTask(Struct, frozen=True):
    """A task that was taken from a worker because its lease ended."""

    id: TaskId
    at: Instant
    """When it was taken from the worker."""
    task: Task | None
    """How it stands now; None if it is no more."""


class WorkerReport(Struct, frozen=True, kw_only=True):
    """A worker and its tasks."""

    worker: WorkerPresence
    drain_asked: bool = False
    """Whether it was asked to drain; it hears of it at its next beat."""
    running: tuple[Task, ...] = ()
    """Tasks whose leases it holds. A lost worker holds them until they end and a sweep notices."""
    lost: tuple[LostTask, ...] = ()
    """Tasks that were taken from it, the latest first."""
    lost_count: int = 0
    """How many there were, also those that are not listed any more."""


class Fleet:
    """The workers of one store."""

    def __init__(self, store: Store, clock: Clock, presence: Presence) -> None:
        self._store = store
        self._clock = clock
        self._presence = presence

    async def all(self) -> list[WorkerPresence]:
        """All workers by id, also those that are dead, until they are forgotten."""
        return await self._presence.workers()

    async def get(self, named: str) -> WorkerReport:
        """One worker, by its id or, if no other has it, by its name, and its tasks."""
        worker = await self._named(named)
        matching = Filter(states=frozenset({State.EXECUTING}), worker=worker.id)
        find = self._store.find_current if isinstance(self._store, Lagging) else self._store.find
        running = await find(matching, limit=MOST_SHOWN, newest_first=False)
        noted = await self._noted(worker.id)
        ids = [task_id for task_id, _ in reversed(noted.last)]
        tasks = dict(zip(ids, await self._store.get(ids), strict=True)) if ids else {}
        return WorkerReport(
            worker=worker,
            drain_asked=worker.id in await self._presence.asked(),
            running=tuple(running),
            lost=tuple(LostTask(task_id, at, tasks[task_id]) for task_id, at in reversed(noted.last)),
            lost_count=noted.count,
        )

    async def drain(self, named: str) -> WorkerPresence:
        """Have a worker claim no more and leave when what it runs has ended; it hears of it at its next beat."""
        worker = await self._named(named)
        await self._presence.ask_drain(worker.id)
        return worker

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
            known = {worker.id for worker in await self._presence.workers()}
            for record in noted:
                if record.name not in known:
                    await self._store.drop(LOST, record.name, expected=record.version)

    async def _note(self, worker: WorkerId, ids: Sequence[TaskId], at: Instant) -> None:
        for _ in range(_TRIES):
            record = await self._record(worker)
            before = _decoded(record)
            last = (*before.last, *((task_id, at) for task_id in ids))[-MOST_SHOWN:]
            after = _encode(_Noted(before.count + len(ids), last))
            expected = 0 if record is None else record.version
            if await self._store.put(LOST, worker, after, expected=expected) is not None:
                return

    async def _noted(self, worker: WorkerId) -> _Noted:
        return _decoded(await self._record(worker))

    async def _record(self, worker: WorkerId) -> Record | None:
        return next((record for record in await self._store.scan(LOST) if record.name == worker), None)

    async def _named(self, named: str) -> WorkerPresence:
        workers = await self._presence.workers()
        found = [worker for worker in workers if worker.id == named] or [
            worker for worker in workers if worker.name == named
        ]
        if not found:
            raise WorkerNotFound(named)
        if len(found) > 1:
            listed = ", ".join(worker.id for worker in found)
            raise InvalidSettings(f"{len(found)} workers are called {named!r}; name one by its id: {listed}")
        return found[0]


def _decoded(record: Record | None) -> _Noted:
    if record is not None:
        with contextlib.suppress(msgspec.MsgspecError):
            return msgspec.msgpack.decode(record.value, type=_Noted)
    return _Noted(0, ())
