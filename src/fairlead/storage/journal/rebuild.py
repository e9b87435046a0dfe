"""Rebuilding a hot store that was lost: every task that had not ended is put back as the journal knows it.

It may be interrupted and repeated, and workers may run meanwhile. A task that is in the hot store is left alone. What
ends while it runs is not brought back: a change to a task that the hot store lacks and the putting back of a batch
never happen at once, and each looks at what the other left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from fairlead.core.identity import TaskId, slot_of_id
from fairlead.core.instant import Instant
from fairlead.core.lifecycle import rebuilt
from fairlead.core.settings import Rules
from fairlead.core.task import State, Task
from fairlead.storage.journal.dependencies import standing_after_loss
from fairlead.storage.journal.duties import Flusher
from fairlead.storage.journal.journal import FIRST_ID, Journal, Page, Place, Rows
from fairlead.storage.journal.outbox import HotStore
from fairlead.storage.journal.restore_tasks import put_back

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


def _in_state(state: State) -> Read:
    async def read(rows: Rows, after: Place) -> Page:
        return await rows.live(state, after, BATCH)

    return read


async def _staying(rows: Rows, after: Place) -> Page:
    """Ended tasks that are to be in the hot store for now: their idempotency keys are held."""
    return await rows.staying(after, BATCH)
