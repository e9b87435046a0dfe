"""A memory store with an outbox: a hot store for tests, and for work that only the journal need remember."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from fairlead.core.identity import TaskId, slot_of_id
from fairlead.core.instant import Instant, Span
from fairlead.core.task import State, Task
from fairlead.storage.journal.outbox import HIDDEN, Done, Note
from fairlead.storage.memory import MemoryStore
from fairlead.storage.values import Change, Claim, KeyUnknown, Receipt, Verdict


class NotingMemoryStore(MemoryStore):
    """Tasks in memory, and notes of what changed."""

    def __init__(self, clock: Callable[[], Instant] = lambda: time.monotonic_ns() // 1_000) -> None:
        super().__init__()
        self._clock = clock
        self._marks: dict[int, str] = {}
        self._notes: dict[Note, Instant] = {}
        """When each note may be read."""

    async def add(
        self,
        tasks: Sequence[Task],
        *,
        now: Instant | None = None,
        bounds: Mapping[str, int],
        elsewhere: Mapping[TaskId, State] | None = None,
        mark: str | None = None,
    ) -> list[Receipt]:
        keyed = [task.id for task in tasks if task.spec.idempotency_key is not None] if mark is not None else []
        kept_out = {task_id for task_id in keyed if self._marks.get(slot_of_id(task_id)) != mark}
        admitted = [task for task in tasks if task.id not in kept_out]
        receipts = iter(self._add_all(admitted, now, bounds, elsewhere or {}))
        return [KeyUnknown() if task.id in kept_out else next(receipts) for task in tasks]

    async def claim(self, claim: Claim) -> list[Task]:
        tasks = await super().claim(claim)
        await self.note([task.id for task in tasks])
        return tasks

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        verdicts = await super().apply(changes)
        with self._lock:
            for change, verdict in zip(changes, verdicts, strict=True):
                if verdict in (Verdict.APPLIED, Verdict.RELEASED):
                    self._notes[Note(change.id, change.status is None)] = self._clock()
        return verdicts

    def _count_end(self, task_id: TaskId, completed: bool) -> list[Task]:
        counted = super()._count_end(task_id, completed)
        self._notes.update(dict.fromkeys([Note(task.id) for task in counted], self._clock()))
        return counted

    async def slots(self) -> set[int]:
        with self._lock:
            return {slot_of_id(task_id) for task_id in self._tasks}

    async def marks(self, slots: Collection[int]) -> dict[int, str | None]:
        return {slot: self._marks.get(slot) for slot in slots}

    async def put_mark(self, mark: str, slots: Collection[int], *, over: str | None) -> set[int]:
        with self._lock:
            self._marks.update({slot: mark for slot in slots if self._marks.get(slot) == over})
            return {slot for slot in slots if self._marks.get(slot) == mark}

    async def leave(self, changes: Sequence[Change]) -> list[Verdict]:
        return await super().apply(changes)

    async def count_ends(self, ended: Mapping[TaskId, State]) -> bool:
        with self._lock:
            counted = [
                task
                for task_id, state in ended.items()
                for task in self._count_end(task_id, completed=state is State.COMPLETED)
            ]
        return any(task.status.pending == 0 for task in counted)

    async def note(self, ids: Sequence[TaskId], *, after: Span = 0) -> None:
        with self._lock:
            self._notes.update(dict.fromkeys([Note(task_id) for task_id in ids], self._clock() + after))

    async def read(self, limit: int) -> list[Note]:
        with self._lock:
            now = self._clock()
            found = [note for note, since in self._notes.items() if not now < since <= now + 2 * HIDDEN][:limit]
            self._notes.update(dict.fromkeys(found, now + HIDDEN))
            return found

    async def done(self, done: Sequence[Done]) -> None:
        with self._lock:
            for one in done:
                task = self._tasks.get(one.note.id)
                if one.note.removed or task is None or task.status.version == one.version:
                    self._notes.pop(one.note, None)

    async def size(self) -> int:
        with self._lock:
            return len(self._notes)
