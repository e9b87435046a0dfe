"""Rebuilding a hot store that was lost: every task that had not ended is put back as the journal knows it.

It may be interrupted and repeated, and workers may run meanwhile. A task that is in the hot store is left alone. What
ends while it runs is not brought back: a change to a task that the hot store lacks and the putting back of a batch
never happen at once, and each looks at what the other left.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import StoreError
from fairlead.core.identity import TaskId, slot_of_id
from fairlead.core.instant import SECOND, Instant, Span
from fairlead.core.lifecycle import rebuilt
from fairlead.core.settings import Rules
from fairlead.core.task import State, Task
from fairlead.storage.journal.duties import Flusher
from fairlead.storage.journal.incarnation import Condition, Incarnation
from fairlead.storage.journal.journal import FIRST_ID, Journal, Page, Place, Rows, standing_after_loss
from fairlead.storage.journal.outbox import HotStore
from fairlead.storage.values import Added, KeyHeld

BATCH: Final = 1_000
_AT_ONCE: Final = 3
_LIVE: Final = (State.EXECUTING, State.QUEUED, State.SCHEDULED)


Read: TypeAlias = Callable[[Rows, Place], Awaitable[Page]]
"""Reads the next page of tasks beyond a place, each with its own."""


OpenSlots: TypeAlias = Callable[[Collection[int]], Awaitable[None]]


class Rebuilt(Struct, frozen=True):
    """What a rebuild did."""

    looked_at: int
    put_back: int


class Rebuilding:
    """One rebuild."""

    def __init__(self, hot: HotStore, journal: Journal, *, now: Instant, rules: Rules, open_slots: OpenSlots) -> None:
        """`open_slots` is told of each slot before the first task is put back into it."""
        self._hot = hot
        self._journal = journal
        self._now = now
        self._rules = rules
        self._open_slots = open_slots
        self._opened: set[int] = set()
        self._opening = asyncio.Lock()
        self._looked_at = 0
        self._put_back = 0
        self._handed_back: set[TaskId] = set()
        """What was executing, and now comes again among what waits."""

    async def run(self, tell: Callable[[int, int], None] = lambda looked_at, total: None) -> Rebuilt:
        """Put everything back; `tell` hears after each batch how many tasks were looked at, and of how many."""
        # What the hot store still has to say comes first: it may have ended what the journal takes to be waiting.
        await Flusher(self._hot, self._journal).all()
        total = await self._journal.count_live()
        tell(0, total)
        # Who held an idempotency key comes before whoever would like to: what has ended, what ran, then what waits.
        await self._each(_staying, lambda: tell(self._looked_at, total))
        for state in _LIVE:
            await self._each(_in_state(state), lambda: tell(self._looked_at, total))
        return Rebuilt(self._looked_at, self._put_back)

    async def _each(self, read: Read, tell: Callable[[], None]) -> None:
        """Put back page after page; while one page is read, those before it are put."""
        after: Place = (0, FIRST_ID)
        turn = asyncio.Lock()

        async def page(rows: Rows) -> bool:
            nonlocal after
            async with turn:
                found = await read(rows, after)
                after = found.end or after
                fair = any(task.spec.takes_turns for task in found.tasks)
                if fair:
                    # Turns are given in the order in which tasks come.
                    await self._put(rows, sorted(found.tasks, key=_by_age))
            if not fair:
                await self._put(rows, found.tasks)
            return found.end is not None

        async def pages() -> None:
            while await self._journal.together(page):
                tell()

        runs = [asyncio.ensure_future(pages()) for _ in range(_AT_ONCE)]
        try:
            await asyncio.gather(*runs)
        finally:
            for run in runs:
                run.cancel()
            await asyncio.gather(*runs, return_exceptions=True)

    async def _put(self, rows: Rows, tasks: Sequence[Task]) -> None:
        tasks = [task for task in tasks if task.id not in self._handed_back]
        await self._open({slot_of_id(task.id) for task in tasks})
        given = [Task(task.spec, rebuilt(task, self._now, rules=self._rules)) for task in tasks]
        added, unanswered = await put_back(self._hot, given, await standing_after_loss(rows, given))
        if unanswered:
            await rows.remove(unanswered)
        before = {task.id: task.status.version for task in tasks}
        if changed := [task for task in added if task.status.version > before[task.id]]:
            await rows.update(changed)
            self._handed_back.update([task.id for task in changed])
        self._looked_at += len(tasks)
        self._put_back += len(added)

    async def _open(self, slots: set[int]) -> None:
        async with self._opening:
            if new := slots - self._opened:
                await self._open_slots(new)
                self._opened |= new


def _by_age(task: Task) -> tuple[Instant, TaskId]:
    return task.status.ready_at, task.id


def _in_state(state: State) -> Read:
    async def read(rows: Rows, after: Place) -> Page:
        return await rows.live(state, after, BATCH)

    return read


async def _staying(rows: Rows, after: Place) -> Page:
    """Ended tasks that are to be in the hot store for now: their idempotency keys are held."""
    return await rows.staying(after, BATCH)


async def put_back(
    hot: HotStore, tasks: Sequence[Task], elsewhere: Mapping[TaskId, State]
) -> tuple[list[Task], list[TaskId]]:
    """Add tasks that were accepted before, whatever bounds there are.

    The answer is those that were not there, and the ids of those whose submit can never have been answered.
    `elsewhere` is how those stand that they wait for, as the journal knows.

    A task whose idempotency key another one holds by now goes without its key: both were promised to run. But one that
    was submitted while an older one held the key was written down and cut off before it could be refused.
    """
    if not tasks:
        return [], []
    receipts = await hot.add(tasks, now=0, bounds={}, elsewhere=elsewhere)
    held = [(task, receipt) for task, receipt in zip(tasks, receipts, strict=True) if isinstance(receipt, KeyHeld)]
    holders = await hot.get([receipt.holder for _, receipt in held]) if held else []
    unanswered = {
        task.id for (task, _), holder in zip(held, holders, strict=True) if holder is not None and _late(task, holder)
    }
    keyless = [
        Task(replace(task.spec, idempotency_key=None, key_until=None), task.status)
        for task, _ in held
        if task.id not in unanswered
    ]
    if keyless:
        await hot.add(keyless, now=0, bounds={}, elsewhere=elsewhere)
    back = [
        task
        for task, receipt in zip(tasks, receipts, strict=True)
        if isinstance(receipt, Added | KeyHeld) and task.id not in unanswered
    ]
    return back, sorted(unanswered)


def _late(task: Task, holder: Task) -> bool:
    """Whether a task that nothing was decided about was submitted while another held its key."""
    until = holder.spec.key_until
    return task.status.version == 1 and holder.id < task.id and until is not None and task.spec.created_at < until


log = logging.getLogger("fairlead.store")

_DUTY: Final = "rebuild"
_LENGTH: Final[Span] = 15 * SECOND
"""After this long another process takes over from one that died."""
_RENEW: Final = 5.0

Tell = Callable[[int, int], None]


class Recovery:
    """Puts everything back. Any number of processes may try; what one does twice changes nothing."""

    def __init__(self, hot: HotStore, journal: Journal, incarnation: Incarnation) -> None:
        self._hot = hot
        self._journal = journal
        self._incarnation = incarnation

    async def once(self, rules: Rules) -> int:
        """Look, and rebuild a store that has lost everything, if that may be and no one else does; how many tasks."""
        condition = await self._incarnation.look()
        if not self._journal.address.rebuild or condition not in (Condition.EMPTY, Condition.REBUILDING):
            return 0
        place = await self._journal.take_duty(_DUTY, _LENGTH)
        if place is None:
            return 0
        try:
            async with self._kept():
                done = await self.run(rules)
        finally:
            await self._journal.give_duty(_DUTY, place)
        log.warning("the Redis store was rebuilt: %d of %d tasks put back", done.put_back, done.looked_at)
        return done.put_back

    async def run(self, rules: Rules, tell: Tell = lambda looked_at, total: None) -> Rebuilt:
        """Put back whatever is missing, and have the store bear the mark; what is lost meanwhile is put back again."""
        incarnation = self._incarnation
        put_back = 0
        while True:
            mark = await incarnation.begin_rebuild()
            now = await self._hot.time() or 0
            open_slots = functools.partial(incarnation.open_slots, mark)
            done = await Rebuilding(self._hot, self._journal, now=now, rules=rules, open_slots=open_slots).run(tell)
            put_back += done.put_back
            if await incarnation.end_rebuild(mark):
                return Rebuilt(done.looked_at, min(put_back, done.looked_at))
            log.warning("the Redis store lost data during the rebuild: rebuilding again")

    @contextlib.asynccontextmanager
    async def _kept(self) -> AsyncIterator[None]:
        """Keep the duty for as long as it takes."""

        async def keep() -> None:
            while True:
                await asyncio.sleep(_RENEW)
                with contextlib.suppress(StoreError):
                    await self._journal.keep_duty(_DUTY, _LENGTH)

        keeping = asyncio.create_task(keep())
        try:
            yield
        finally:
            keeping.cancel()
