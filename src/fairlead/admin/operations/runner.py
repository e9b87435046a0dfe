"""Working on operations: any number of processes may, and one at a time works on each.

Who takes an operation writes its name and a short lease into the record by compare-and-set, then does one batch after
the other: the batch is written down, done, and crossed off. If it dies, or stands still for longer than its lease,
another takes over, looks first at what became of the batch that was written down, and goes on. Every change of a task
is a compare-and-set too, so two that work on the same batch do not do it twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from fairlead.admin.operations import BELL, KIND
from fairlead.core import operation as operations
from fairlead.core.errors import QueryError, StoreError, WrongState
from fairlead.core.instant import MINUTE, SECOND, Span
from fairlead.core.operation import LEASE, Batch, Operation, Stage
from fairlead.core.query.parser import parse_query
from fairlead.core.query.query import Query, term
from fairlead.core.task import Task
from fairlead.engine.changes import TaskChanges, seen
from fairlead.engine.records import Form, Unread, decoder
from fairlead.engine.search import Plan, Searcher, plan
from fairlead.storage.values import Filter, Verdict

_RESCAN: Final[Span] = MINUTE
_TRIES: Final = 20
"""How often a task is tried that others keep changing."""

FORM: Final = Form(kind=KIND, decode=decoder(Operation), name_of=lambda operation: operation.id)


class KeptOperation(Struct, frozen=True):
    """An operation as it was read, and the version of its record."""

    operation: Operation
    version: int


class Counts(Struct):
    """What became of a batch."""

    done: int = 0
    skipped: int = 0
    failed: int = 0


def encode(operation: Operation) -> bytes:
    """What is stored of an operation."""
    return FORM.write(operation)


def whole_query(query: Query, operation: Operation) -> Query:
    """A query, narrowed to what an operation may act on."""
    narrowed = query.and_(term("state", *sorted(operation.action.states)))
    return narrowed if operation.tenant is None else narrowed.and_(term("tenant", operation.tenant))


def plan_of(operation: Operation) -> Plan:
    """How to find the tasks of an operation, as they stood at its moment."""
    query = whole_query(parse_query(operation.query), operation)
    within = Filter(created_before=operation.as_of + 1)
    return plan(query, operation.as_of, within).also(operation.stands)


class Operator:
    """Works on the operations of one store."""

    def __init__(self, task_changes: TaskChanges, searcher: Searcher, name: Callable[[], str]) -> None:
        self._task_changes = task_changes
        self._records = task_changes.records
        self._store = task_changes.store
        self._clock = task_changes.clock
        self._searcher = searcher
        self._new_name = name
        self._name: str | None = None
        self._rung: int | None = None
        self._read_at: Span | None = None
        self._active: dict[str, Operation] = {}
        """The operations that need work, as they were last read."""

    async def run(self) -> None:
        """Work until cancelled. A store that fails is tried again."""
        while True:
            pause = self._task_changes.settings.sweep_interval
            with contextlib.suppress(StoreError):
                pause = await self.once()
            await asyncio.sleep(pause / SECOND)

    async def once(self) -> Span:
        """Do one batch of each operation that no one else works on; how long to wait before the next."""
        longest = self._task_changes.settings.sweep_interval
        if not await self._look():
            return longest
        pauses = [await self.step(name) for name in list(self._active)]
        return min(pauses, default=longest)

    async def step(self, operation_id: str) -> Span:
        """Do one batch of an operation, if no one else works on it; how long to wait before the next."""
        kept = await self._take(operation_id)
        if kept is None:
            return self._task_changes.settings.sweep_interval
        try:
            return await self._step(kept)
        except QueryError as error:
            # Written by a later version, whose queries say more.
            paused = operations.paused(kept.operation, f"its query cannot be read here: {error}", self._clock.now())
            await self._put(kept, replace(paused, holder=None))
            self._active.pop(operation_id, None)
            return self._task_changes.settings.sweep_interval

    async def _step(self, kept: KeptOperation) -> Span:
        if kept.operation.batch is not None:
            # Begun by someone who did not cross it off, or by this one before the store failed.
            kept = await self._cross_off(kept, await self._resume(kept.operation, kept.operation.batch))
        else:
            now = self._clock.now()
            allowance = kept.operation.allowance(now)
            if allowance <= 0:
                return kept.operation.pause(now)
            kept = await self._next(kept, allowance)
        self._note(kept.operation)
        return 0 if kept.operation.stage.active else self._task_changes.settings.sweep_interval

    async def _look(self) -> bool:
        """Whether there is anything to do; what there is, is read again when someone rings, and now and then."""
        rung = next((record.version for record in await self._store.scan(BELL)), 0)
        now = self._clock.monotonic()
        if self._read_at is None or rung != self._rung or now - self._read_at >= _RESCAN:
            self._rung, self._read_at, self._active = rung, now, {}
            for each in (await self._records.read(FORM)).kept:
                self._note(each.value)
                await self._forget(KeptOperation(each.value, each.version))
        return bool(self._active)

    async def _forget(self, kept: KeptOperation) -> None:
        operation, now = kept.operation, self._clock.now()
        if not operation.stage.active and operation.touched_at + operations.KEPT <= now:
            await self._store.drop(KIND, operation.id, expected=kept.version)

    def _note(self, operation: Operation) -> None:
        if operation.stage.active:
            self._active[operation.id] = operation
        else:
            self._active.pop(operation.id, None)

    async def _take(self, operation_id: str) -> KeptOperation | None:
        """Take an operation, or keep it; None if it needs no work or someone else works on it."""
        name = self._own_name()
        known = self._active.get(operation_id)
        if known is not None and known.holder != name and known.held(self._clock.now()):
            return None
        found = await self._records.find(FORM, operation_id)
        kept = None if found is None or isinstance(found, Unread) else KeptOperation(found.value, found.version)
        if kept is None or not kept.operation.stage.active:
            self._active.pop(operation_id, None)
            return None
        operation, now = kept.operation, self._clock.now()
        self._note(operation)
        if operation.holder == name:
            return kept
        if operation.held(now):
            return None
        taken = replace(
            operation,
            holder=name,
            held_until=now + LEASE,
            stage=Stage.RUNNING,
            started_at=now if operation.started_at is None else operation.started_at,
            credit_at=now if operation.credit_at is None else operation.credit_at,
            touched_at=now,
        )
        return await self._put(kept, taken)

    async def _next(self, kept: KeptOperation, allowance: int) -> KeptOperation:
        """Find the next batch, write it down, do it, cross it off."""
        operation = kept.operation
        found = await self._searcher.page(
            plan_of(operation), limit=allowance, newest_first=False, after=operation.cursor
        )
        now = self._clock.now()
        batch = Batch(tuple((task.id, task.status.version) for task in found.tasks), found.cursor)
        begun = replace(operation.spent(len(found.tasks), now), batch=batch, held_until=now + LEASE, touched_at=now)
        if not found.tasks:
            # Nothing was done, so there is nothing that could be done twice.
            return await self._put(kept, operations.settled(begun, 0, 0, 0, now)) or kept
        written = await self._put(kept, begun)
        if written is None:
            return await self.read(operation.id) or kept
        return await self._cross_off(written, await self._do(begun, found.tasks))

    async def _resume(self, operation: Operation, batch: Batch) -> Counts:
        """Do what is left of a batch that was begun before."""
        counts = Counts()
        left: list[Task] = []
        admits = plan_of(operation).admits
        tasks = await self._store.get([task_id for task_id, _ in batch.tasks])
        for (_, version), task in zip(batch.tasks, tasks, strict=True):
            if task is not None and task.status.version == version:
                left.append(task)
            elif operation.was_done(task):
                counts.done += 1
            elif task is not None and admits(task):
                left.append(task)
            else:
                counts.skipped += 1
        return await self._do(operation, left, counts)

    async def _do(self, operation: Operation, tasks: Sequence[Task], counts: Counts | None = None) -> Counts:
        """Act on tasks; those that change meanwhile are looked at again."""
        counts = counts or Counts()
        await self._task_changes.queue_cache.refresh()
        admits = plan_of(operation).admits
        for _ in range(_TRIES):
            now = self._clock.now()
            changes = []
            for task in tasks:
                with contextlib.suppress(WrongState):
                    changes.append((task, self._task_changes.decide(task, operation.event, now, seen(task))))
            counts.skipped += len(tasks) - len(changes)
            stale: list[Task] = []
            verdicts = await self._task_changes.apply([change for _, change in changes]) if changes else []
            for (task, change), verdict in zip(changes, verdicts, strict=True):
                if verdict is Verdict.APPLIED:
                    counts.done += 1
                    self._task_changes.tell_change(task, change, now)
                else:
                    stale.append(task)
            await self._task_changes.finish()
            if not stale:
                return counts
            tasks = []
            for again in await self._store.get([task.id for task in stale]):
                if operation.was_done(again):
                    counts.done += 1
                elif again is not None and admits(again):
                    tasks.append(again)
                else:
                    counts.skipped += 1
        counts.failed += len(tasks)
        return counts

    async def _cross_off(self, kept: KeptOperation, counts: Counts) -> KeptOperation:
        """Write down what became of a batch, whatever was said of the operation meanwhile."""
        batch = kept.operation.batch
        while True:
            now = self._clock.now()
            operation = replace(kept.operation, held_until=now + LEASE)
            after = operations.settled(operation, counts.done, counts.skipped, counts.failed, now)
            written = await self._put(kept, after)
            if written is not None:
                return written
            read = await self.read(kept.operation.id)
            if read is None:
                return kept
            kept = read
            if kept.operation.holder != self._own_name() or kept.operation.batch != batch:
                # Someone took over, and has counted or will count what was done here.
                return kept

    async def read(self, operation_id: str) -> KeptOperation | None:
        """An operation as it stands; None if there is none by this id. Raises RecordUnreadable if it cannot be read."""
        found = await self._records.get(FORM, operation_id)
        return None if found is None else KeptOperation(found.value, found.version)

    async def _put(self, kept: KeptOperation, operation: Operation) -> KeptOperation | None:
        version = await self._store.put(KIND, operation.id, encode(operation), expected=kept.version)
        return None if version is None else KeptOperation(operation, version)

    def _own_name(self) -> str:
        if self._name is None:
            self._name = self._new_name()
        return self._name
