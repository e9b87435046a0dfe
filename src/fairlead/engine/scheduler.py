"""Firing schedules: any number of processes do it at once, and each fire time is submitted once.

Who fires a schedule first takes the decision: a compare-and-set moves its record to the next fire time and writes down
the tasks to submit, ids and all. Of several deciders one wins. Only then does it submit them and cross them off. If it
dies in between, whoever finds them there a while later crosses off those that are there and takes over the others, by a
compare-and-set too. A task is kept for longer than that while, and adding an id twice adds one task, so nothing is lost
and nothing doubled wherever it died. And so that one that merely stood still does not submit again what another has
taken over, and what may have run and be forgotten by then, nobody submits on the word of a record that was read longer
ago than half of that while.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import FairleadError, InvalidSchedule, TaskNotFound, WrongState
from fairlead.core.identity import TaskId
from fairlead.core.instant import MINUTE, SECOND, Instant, Span
from fairlead.core.schedule import TAKEN_OVER_AFTER, Fire, Overlap, Schedule, ScheduleEntry, check, decided, fires
from fairlead.core.submission import Submission
from fairlead.core.task import Task
from fairlead.engine.changes import TaskChanges
from fairlead.engine.records import Form, decoder
from fairlead.engine.runtime.telemetry import Logger
from fairlead.storage.values import Added, Full

log = Logger("fairlead.schedules")

KIND: Final = "schedule"
"""The kind of record that a schedule is."""
BELL: Final = "schedules_changed"
"""The kind, and the name, of the record whose version says whether any schedule was changed by someone."""
_RESCAN: Final[Span] = MINUTE
"""How often all schedules are read even if nobody said that one has changed: signals are hints."""
_FRESH: Final[Span] = 5 * SECOND
"""How old what was read may be when it is acted on."""
_REMEMBERED: Final[Span] = 10 * MINUTE
"""How long a task of a schedule is kept at least, even if it ends at once and ended tasks are not kept."""
_AT_ONCE: Final = 50
"""How many records are written at the same time."""

_decode: Final = decoder(ScheduleEntry)


class KeptSchedule(Struct, frozen=True):
    """A schedule as it was read, and the version of its record."""

    entry: ScheduleEntry
    version: int


def encode(entry: ScheduleEntry) -> bytes:
    """What is stored of a schedule."""
    return FORM.write(entry)


def _checked(value: bytes) -> ScheduleEntry:
    entry = _decode(value)
    try:
        check(entry.schedule)
    except InvalidSchedule as error:
        if error.field != "timezone":  # Another host may know it.
            raise
    return entry


FORM: Final = Form(kind=KIND, decode=_checked, name_of=lambda entry: entry.name, sealed=True)
"""A schedule that cannot be read fires nothing, and no program that declares it puts another in its place."""


def template_of(schedule: Schedule) -> Submission:
    """What a schedule submits: its task, with a tag to find it by."""
    submission = schedule.submission
    return replace(submission, tags=(*submission.tags, f"schedule:{schedule.name}"))


class Firing:
    """Fires the schedules of one store."""

    def __init__(
        self,
        task_changes: TaskChanges,
        new_ids: Callable[[Sequence[str], Instant], list[TaskId]],
        cancel: Callable[[TaskId], Awaitable[Task]],
        *,
        batching: bool,
    ) -> None:
        self._task_changes = task_changes
        self._records = task_changes.records
        self._store = task_changes.store
        self._clock = task_changes.clock
        self._new_ids = new_ids
        self._cancel = cancel
        self._at_once = _AT_ONCE if batching else 1
        self._queue_cache: dict[str, Instant] = {}
        """When each schedule next needs attention."""
        self._known: dict[str, KeptSchedule] = {}
        self._rung: int | None = None
        self._read_at: Span | None = None

    async def once(self) -> int:
        """Submit what is due; how many tasks were."""
        if not await self._look():
            return 0
        now = self._clock.now()
        due = [kept for kept in await self._read() if _due(kept.entry, now)]
        left_behind = [kept for kept in due if kept.entry.status.pending]
        submitted = await self._submit(await self._take_over(left_behind, now), lambda fire: fire.since == now)
        fresh = await self._decide([kept for kept in due if not kept.entry.status.pending])
        return submitted + await self._submit(fresh, lambda fire: True)

    async def submit(self, name: str, task: TaskId) -> None:
        """Submit one task that is pending for a schedule."""
        named = [kept for kept in await self._read() if kept.entry.name == name]
        await self._submit(named, lambda fire: fire.task == task)

    async def _look(self) -> bool:
        """Whether anything may be due: by this process's book, or because someone has changed a schedule."""
        rung = next((record.version for record in await self._store.scan(BELL)), 0)
        if self._read_at is None or rung != self._rung or self._clock.monotonic() - self._read_at >= _RESCAN:
            self._rung = rung
            return True
        now = self._clock.now()
        return min(self._queue_cache.values(), default=now + 1) <= now

    async def _read(self) -> list[KeptSchedule]:
        """All schedules as they stand."""
        self._read_at = self._clock.monotonic()
        records = await self._store.scan(KIND)
        known = self._known
        # Most have not changed since they were last decoded.
        same = {r.name for r in records if r.name in known and known[r.name].version == r.version}
        changed = await self._records.sort(FORM, [record for record in records if record.name not in same])
        fresh = {each.name: KeptSchedule(each.value, each.version) for each in changed.kept}
        self._known, self._queue_cache = {}, {}
        for record in records:
            kept = known[record.name] if record.name in same else fresh.get(record.name)
            if kept is not None:
                self._note(kept)
        return list(self._known.values())

    def _note(self, kept: KeptSchedule) -> None:
        self._known[kept.entry.name] = kept
        attention = kept.entry.attention
        if attention is None:
            self._queue_cache.pop(kept.entry.name, None)
        else:
            self._queue_cache[kept.entry.name] = attention

    async def _take_over(self, left_behind: Sequence[KeptSchedule], now: Instant) -> list[KeptSchedule]:
        """Cross off what was submitted after all, and decide anew for the rest; the answer is what this process did."""
        asked = [fire.task for kept in left_behind for fire in kept.entry.status.pending]
        found = {task.id for task in await self._store.get(asked) if task is not None} if asked else set()
        return await self._put([(kept, _taken_over(kept.entry, found, now)) for kept in left_behind])

    async def _decide(self, due: Sequence[KeptSchedule]) -> list[KeptSchedule]:
        """Take the decision for each; the answer is those that this process has decided."""
        busy = await self._busy([kept.entry for kept in due])
        now = self._clock.now()
        wanted = []
        for kept in due:
            schedule, status = kept.entry.schedule, kept.entry.status
            try:
                decision = fires(schedule, status, now, busy=kept.entry.name in busy)
            except FairleadError as error:
                # Its time zone is not known on this host. Another may know it, and the others fire.
                log.warning("schedule %s cannot fire in this process: %s", kept.entry.name, error)
                continue
            ids = self._new_ids([schedule.submission.queue] * len(decision.times), now)
            after = decided(schedule, status, decision, ids, now, busy=kept.entry.name in busy)
            wanted.append((kept, ScheduleEntry(schedule, after, kept.entry.created_at)))
        return await self._put(wanted)

    async def _busy(self, entries: Sequence[ScheduleEntry]) -> set[str]:
        """The schedules whose last task has not ended, as far as that makes a difference to them."""
        asked = {
            entry.status.last_task: entry.name
            for entry in entries
            if entry.schedule.overlap is not Overlap.ALLOW and entry.status.last_task is not None
        }
        found = await self._store.get(list(asked)) if asked else []
        return {asked[task.id] for task in found if task is not None and not task.state.ended}

    async def _submit(self, read: Sequence[KeptSchedule], mine: Callable[[Fire], bool]) -> int:
        """Submit what is pending of these schedules, as far as it is this process's; how many tasks were."""
        # Before it is asked how old that is: from there on as little as possible lies between it and the store.
        await self._task_changes.queue_cache.refresh()
        if self._read_at is None or self._clock.monotonic() - self._read_at > _FRESH:
            return 0
        wanted = [(kept, [fire for fire in kept.entry.status.pending if mine(fire)]) for kept in read]
        wanted = [(kept, fires) for kept, fires in wanted if fires]
        if not wanted:
            return 0
        now = self._clock.now()
        tasks: list[Task] = []
        refused: dict[TaskId, str] = {}
        for kept, mine_of_it in wanted:
            await self._cancel_replaced(mine_of_it)
            template = template_of(kept.entry.schedule)
            for fire in mine_of_it:
                try:
                    task = self._task_changes.queue_cache.accept(template, fire.task, now)
                    # It is not forgotten before it is crossed off: whoever takes over must find it.
                    tasks.append(Task(replace(task.spec, key_until=now + _REMEMBERED), task.status))
                except FairleadError as error:
                    refused[fire.task] = str(error)
        receipts = await self._task_changes.add(tasks) if tasks else []
        added = [task for task, receipt in zip(tasks, receipts, strict=True) if isinstance(receipt, Added)]
        full = {task.id for task, receipt in zip(tasks, receipts, strict=True) if isinstance(receipt, Full)}
        await self._put([(kept, _crossed_off(kept.entry, of_it, full, refused)) for kept, of_it in wanted])
        await self._task_changes.finish()
        return len(added)

    async def _cancel_replaced(self, pending: Iterable[Fire]) -> None:
        for fire in pending:
            if fire.replaces is not None:
                with contextlib.suppress(WrongState, TaskNotFound):
                    await self._cancel(fire.replaces)

    async def _put(self, wanted: Sequence[tuple[KeptSchedule, ScheduleEntry]]) -> list[KeptSchedule]:
        """Compare and set many records; the answer is those that were set."""

        async def put(kept: KeptSchedule, entry: ScheduleEntry) -> KeptSchedule | None:
            version = await self._store.put(KIND, entry.name, encode(entry), expected=kept.version)
            return None if version is None else KeptSchedule(entry, version)

        done: list[KeptSchedule] = []
        for first in range(0, len(wanted), self._at_once):
            batch = [put(before, entry) for before, entry in wanted[first : first + self._at_once]]
            # One alone needs no event loop, so that synchronous code can have a schedule run now.
            for kept in [await batch[0]] if len(batch) == 1 else await asyncio.gather(*batch):
                if kept is not None:
                    self._note(kept)
                    done.append(kept)
        return done


def _due(entry: ScheduleEntry, now: Instant) -> bool:
    attention = entry.attention
    # What was decided ahead of a clock that went back is left behind, too: see `_taken_over`.
    ahead = any(fire.since - now >= TAKEN_OVER_AFTER for fire in entry.status.pending)
    return ahead or (attention is not None and attention <= now)


def _taken_over(entry: ScheduleEntry, found: set[TaskId], now: Instant) -> ScheduleEntry:
    """The entry without the tasks that are there, and with all else that was left behind decided anew."""
    pending = tuple(
        # Also if it was decided by a clock that has gone back since: it would be nobody's until that is made up for.
        replace(fire, since=now) if abs(now - fire.since) >= TAKEN_OVER_AFTER else fire
        for fire in entry.status.pending
        if fire.task not in found
    )
    return ScheduleEntry(entry.schedule, replace(entry.status, pending=pending), entry.created_at)


def _crossed_off(
    entry: ScheduleEntry, handled: Sequence[Fire], full: set[TaskId], refused: dict[TaskId, str]
) -> ScheduleEntry:
    """The entry without what was submitted, and without what never can be; what found its queue full is anybody's."""
    done = {fire.task for fire in handled} - full
    left = [
        replace(fire, since=0) if fire.task in full else fire
        for fire in entry.status.pending
        if fire.task not in done
    ]  # fmt: skip
    failures = [refused[fire.task] for fire in handled if fire.task in refused]
    status = replace(
        entry.status,
        pending=tuple(left),
        failure="the queue is full" if full & {fire.task for fire in handled} else failures[-1] if failures else None,
        fired=entry.status.fired - len(failures),
    )
    return ScheduleEntry(entry.schedule, status, entry.created_at)
