"""Which tasks were taken from which worker.

A task's history says which worker it was lost with, but no store finds tasks by that. So whoever sweeps takes note, by
worker, of the tasks that it has taken from one; the note is forgotten with the worker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from fairlead.core.errors import StoreError
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.instant import Instant
from fairlead.core.task import Task
from fairlead.engine.records import DecodedRecord, Form, Records, Unread, decoder
from fairlead.engine.worker_records import MOST_SHOWN, WorkerRecords

LOST: Final = "lost"
"""The kind of record that names the tasks taken from a worker."""

_TRIES: Final = 10


class LostNote(Struct, frozen=True, array_like=True):
    """The tasks that were taken from a worker, the latest last."""

    count: int
    last: tuple[tuple[TaskId, Instant], ...]


_NONE: Final = LostNote(0, ())
FORM: Final = Form(kind=LOST, decode=decoder(LostNote))


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
            found = await self._records.find(FORM, worker)
            if isinstance(found, Unread):
                return
            before = _NONE if found is None else found.value
            last = (*before.last, *((task_id, at) for task_id in ids))[-MOST_SHOWN:]
            after = FORM.write(LostNote(before.count + len(ids), last))
            expected = 0 if found is None else found.version
            if await self._store.put(LOST, worker, after, expected=expected) is not None:
                return

    async def of(self, worker: WorkerId) -> LostNote:
        """What was taken from a worker."""
        found = await self._records.find(FORM, worker)
        return found.value if isinstance(found, DecodedRecord) else _NONE
