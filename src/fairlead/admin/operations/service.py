"""Operations: what people do with them. How they are worked on is in `runner`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fairlead.admin.operations import BELL, KIND
from fairlead.admin.operations.runner import FORM, Operator, encode, plan_of, whole_query
from fairlead.core import operation
from fairlead.core.errors import OperationNotFound, OperationRefused, StoreUnavailable
from fairlead.core.instant import Instant
from fairlead.core.operation import Action, NewOperation, Operation, Preview, check_new
from fairlead.engine.changes import TaskChanges
from fairlead.engine.runtime.ids import IdMaker
from fairlead.engine.search import Searcher, TaskCount, plan

SAMPLE: Final = 10
"""How many tasks a preview shows."""
_TRIES: Final = 100


class Operations:
    """The operations of one store."""

    def __init__(self, task_changes: TaskChanges, searcher: Searcher, ids: IdMaker) -> None:
        self._records = task_changes.records
        self._store = task_changes.store
        self._clock = task_changes.clock
        self._searcher = searcher
        self._ids = ids
        self.operator = Operator(task_changes, searcher, ids.token)
        """Who works on them in this process."""

    async def preview(self, wish: NewOperation) -> Preview:
        """What an operation would act on, without doing anything."""
        wanted = self._wanted(wish)
        found = await self._searcher.page(plan_of(wanted), limit=SAMPLE, newest_first=False)
        count = await self._count(wish, wanted)
        return Preview(as_of=wanted.as_of, count=count.number, exact=count.exact, sample=found.tasks)

    async def start(self, wish: NewOperation) -> Operation:
        """Begin an operation; whichever process sweeps works on it."""
        wanted = self._wanted(wish)
        count = await self._count(wish, wanted)
        number, expected = count.number, wish.expected
        if expected is not None and (expected != number if count.exact else expected < number):
            raise OperationRefused(
                f"{number:,} tasks match, not {expected:,} as expected; look again with a dry run, then repeat it"
            )
        begun = operation.begun(wanted, number, exact=count.exact)
        if await self._store.put(KIND, begun.id, encode(begun), expected=0) is None:
            raise StoreUnavailable(f"the id {begun.id} of the operation was taken already; try again")
        await self._ring()
        return begun

    async def all(self) -> list[Operation]:
        """Every operation that is kept, the newest first."""
        kept = (await self._records.read(FORM)).values
        return sorted(kept, key=lambda each: (each.created_at, each.id), reverse=True)

    async def get(self, operation_id: str) -> Operation:
        """The operation with this id."""
        kept = await self.operator.read(operation_id)
        if kept is None:
            raise OperationNotFound(operation_id)
        return kept.operation

    async def pause(self, operation_id: str, note: str = "someone paused it") -> Operation:
        """Pause an operation until it is resumed; the current batch is finished first."""
        return await self._change(operation_id, lambda each, now: operation.paused(each, note, now))

    async def resume(self, operation_id: str) -> Operation:
        """Resume a paused operation where it stopped, also after its canary."""
        return await self._change(operation_id, operation.resumed)

    async def cancel(self, operation_id: str, note: str = "someone cancelled it") -> Operation:
        """Cancel an operation; tasks that were changed stay changed."""
        return await self._change(operation_id, lambda each, now: operation.cancelled(each, note, now))

    async def step(self, operation_id: str) -> Operation:
        """Do a batch of an operation here, if no other process works on it; how it then stands."""
        await self.operator.step(operation_id)
        return await self.get(operation_id)

    def _wanted(self, wish: NewOperation) -> Operation:
        check_new(wish)
        now = self._clock.now()
        if wish.as_of is not None and wish.as_of > now:
            raise OperationRefused("as_of is in the future; use the moment of a dry run, or leave it out")
        return Operation(
            id=self._ids.serial(now),
            action=wish.action,
            query=str(wish.query),
            as_of=now if wish.as_of is None else wish.as_of,
            created_at=now,
            expected=0,
            who=wish.who,
            tenant=wish.tenant,
            priority=wish.priority,
            reset_retries=wish.reset_retries,
            rate=wish.rate,
            canary=wish.canary,
            touched_at=now,
        )

    async def _count(self, wish: NewOperation, wanted: Operation) -> TaskCount:
        exact = plan_of(wanted)
        if wish.as_of is None and wish.action in (Action.REPLAY, Action.DISCARD):
            # All tasks there are stand as they do now, so a tally may do.
            exact = plan(whole_query(wish.query, wanted), wanted.as_of)
        return await self._searcher.count(exact)

    async def _change(self, operation_id: str, change: Callable[[Operation, Instant], Operation]) -> Operation:
        for _ in range(_TRIES):
            kept = await self.operator.read(operation_id)
            if kept is None:
                raise OperationNotFound(operation_id)
            after = change(kept.operation, self._clock.now())
            if after == kept.operation:
                return after
            if await self._store.put(KIND, operation_id, encode(after), expected=kept.version) is not None:
                await self._ring()
                return after
        raise StoreUnavailable(f"operation {operation_id} kept changing while this was tried; try again")

    async def _ring(self) -> None:
        """Have every process look at the operations soon."""
        await self._store.put(BELL, BELL, b"")
