"""The duties of a journal: each with `once`, which tests call, and all of them run together until cancelled.

Any number of processes may do them at once. What one does twice changes nothing; the duty table only keeps them from
doing the same work many times over.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from fairlead.core.errors import StoreError
from fairlead.core.identity import TaskId
from fairlead.core.instant import SECOND, Span
from fairlead.core.task import Task
from fairlead.storage.journal.incarnation import Incarnation
from fairlead.storage.journal.journal import Journal, Place, Rows, named_by, standing
from fairlead.storage.journal.outbox import Done, HotStore, Note
from fairlead.storage.values import Apart, Change, KeyHeld, KeyUnknown, Missing, Seen

FLUSH_INTERVAL: Final = 0.2
_OUTAGE_PAUSE: Final = 1.0
_DUTY_INTERVAL: Final = 1.0
_DUTY_LENGTH: Final[Span] = 15 * SECOND
"""After this long another process takes over a duty whose holder died."""

BATCH: Final = 500
ACCEPTED_AGE: Final[Span] = 20 * SECOND
"""How long ago a task was accepted before someone asks whether the hot store has it. Longer than any call may take: a
call under way will say so itself."""


class Flusher:
    """Carries notes from the hot store to the journal."""

    def __init__(self, hot: HotStore, journal: Journal) -> None:
        self._hot = hot
        self._journal = journal

    async def once(self, limit: int = BATCH) -> int:
        """Carry one batch; how many notes there were."""
        notes = await self._hot.read(limit)
        if not notes:
            return 0
        try:
            done = await self._carry(notes)
        except BaseException:
            # Others need not wait until the notes are shown again by themselves.
            with contextlib.suppress(StoreError):
                await self._hot.note([note.id for note in notes if not note.removed])
            raise
        await self._hot.done(done)
        return len(notes)

    async def all(self) -> int:
        """Carry everything that can be read now; how many notes there were."""
        carried = 0
        while count := await self.once():
            carried += count
        return carried

    async def _carry(self, notes: Sequence[Note]) -> list[Done]:
        ids = list(dict.fromkeys(note.id for note in notes))
        tasks = {task.id: task for task in await self._hot.get(ids) if task is not None}
        if tasks:
            await self._journal.store(list(tasks.values()))
        # Only what was noted as removed is removed: that a task is not there may also mean that it was lost.
        if gone := [note.id for note in notes if note.removed and note.id not in tasks]:
            await self._journal.remove(gone)
        return [Done(note, _version(tasks.get(note.id))) for note in notes]


class Reconciler:
    """Gives the hot store what was accepted and never got there, because a process died between the two."""

    def __init__(
        self,
        hot: HotStore,
        journal: Journal,
        age: Span = ACCEPTED_AGE,
        mark: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`mark` says what a slot must bear that takes an idempotency key."""
        self._mark = mark
        self._hot = hot
        self._journal = journal
        self._age = age

    async def once(self) -> int:
        """Look at one batch of accepted tasks; how many were missing."""
        return await _on_duty(self._journal, "reconcile", self._reconcile)

    async def _reconcile(self, after: Place) -> tuple[int, Place]:
        places = await self._journal.accepted(after, self._age, BATCH)
        if not places:
            return 0, after
        ids = [task_id for _, task_id in places]
        missing = [task_id for task_id, task in zip(ids, await self._hot.get(ids), strict=True) if task is None]
        if missing and not await self._journal.together(lambda rows: self._put(rows, missing)):
            return 0, after
        return len(missing), places[-1]

    async def _put(self, rows: Rows, ids: Sequence[TaskId]) -> bool:
        """Put tasks where they are missing; False if some must wait until the hot store is rebuilt."""
        tasks = [task for task in (await rows.get(ids)).values() if task.state.waiting]
        elsewhere = await standing(rows, named_by(tasks))
        receipts = await self._hot.add(tasks, now=0, bounds={}, elsewhere=elsewhere, mark=self._mark()) if tasks else []
        # Its submit would have been answered with the holder's id or with an error, and was never answered.
        held = [
            task.id
            for task, receipt in zip(tasks, receipts, strict=True)
            if isinstance(receipt, KeyHeld | Missing | Apart)
        ]
        if held:
            await rows.remove(held)
        return not any(isinstance(receipt, KeyUnknown) for receipt in receipts)


class Leaver:
    """Takes ended tasks out of the hot store once their time there is over; the journal keeps them."""

    def __init__(self, hot: HotStore, journal: Journal) -> None:
        self._hot = hot
        self._journal = journal

    async def once(self) -> int:
        """Take out one batch; how many."""
        return await _on_duty(self._journal, "leave", self._leave)

    async def _leave(self, after: Place) -> tuple[int, Place]:
        leaving = await self._journal.leaving(after, BATCH)
        if not leaving:
            return 0, after
        changes = [Change(one.place[1], Seen(one.version, one.beats), None) for one in leaving]
        await self._hot.leave(changes)
        return len(leaving), leaving[-1].place


class Pruner:
    """Removes ended tasks from the journal once their retention is over."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def once(self) -> int:
        """Remove one batch; how many."""

        async def prune(after: Place) -> tuple[int, Place]:
            return await self._journal.prune(BATCH), after

        return await _on_duty(self._journal, "prune", prune)


class Duties:
    """All of them."""

    def __init__(
        self, hot: HotStore, journal: Journal, incarnation: Incarnation, recover: Callable[[], Awaitable[int]]
    ) -> None:
        """`recover` rebuilds the hot store when it has lost everything."""
        self._incarnation = incarnation
        self._recover = recover
        self._flusher = Flusher(hot, journal)
        reconciler = Reconciler(hot, journal, mark=lambda: incarnation.text)
        self._others = (reconciler, Leaver(hot, journal), Pruner(journal))

    async def run(self) -> None:
        """Do them until cancelled. A store that fails is tried again."""
        async with asyncio.TaskGroup() as group:
            group.create_task(_repeat(self._recover, _DUTY_INTERVAL))
            group.create_task(_repeat(self._of_current(self._flusher.once), FLUSH_INTERVAL))
            for duty in self._others:
                group.create_task(_repeat(self._of_current(duty.once), _DUTY_INTERVAL))

    def _of_current(self, once: Callable[[], Awaitable[int]]) -> Callable[[], Awaitable[int]]:
        """A duty, done only for the store that is the journal's."""

        async def admitted() -> int:
            await self._incarnation.admit()
            return await once()

        return admitted


async def _repeat(once: Callable[[], Awaitable[int]], interval: float) -> None:
    while True:
        pause = interval
        try:
            if await once() >= BATCH:
                continue
        except StoreError:
            # Whoever submits meets the same error and reports it.
            pause = max(interval, _OUTAGE_PAUSE)
        # Processes do not coordinate, they spread out.
        await asyncio.sleep(pause * (0.5 + random.random() / 2))  # noqa: S311 - jitter, no secret


async def _on_duty(journal: Journal, name: str, work: Callable[[Place], Awaitable[tuple[int, Place]]]) -> int:
    place = await journal.take_duty(name, _DUTY_LENGTH)
    if place is None:
        return 0
    reached = place
    try:
        count, reached = await work(place)
    finally:
        await journal.give_duty(name, reached)
    return count


def _version(task: Task | None) -> int:
    return 0 if task is None else task.status.version
