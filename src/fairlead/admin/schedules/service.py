"""Schedules: what people do with them. How they fire is in `engine.scheduler`.

A schedule is one record: the entry as someone wrote it and how it stands. Every change is a compare-and-set of the
whole record, so what a person and a firing process do at the same time never mixes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from fairlead.core.errors import (
    FairleadError,
    InvalidSchedule,
    ScheduleExists,
    ScheduleNotFound,
    StoreUnavailable,
)
from fairlead.core.health.quarantine import Fault
from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant, Span
from fairlead.core.schedule import (
    MOST_PREVIEWED,
    Fire,
    Put,
    Schedule,
    ScheduleEntry,
    ScheduleStatus,
    check,
    goes_on,
    late,
    next_time,
    upcoming,
    with_pending,
)
from fairlead.core.submission import Submission
from fairlead.core.task import Task
from fairlead.core.validation import check_count
from fairlead.engine.changes import TaskChanges
from fairlead.engine.records import Unread
from fairlead.engine.runtime.telemetry import Logger
from fairlead.engine.scheduler import BELL, FORM, KIND, Firing, KeptSchedule, encode, template_of

log = Logger("fairlead.schedules")

_TRIES: Final = 100


class Schedules:
    """The schedules of one store."""

    def __init__(self, task_changes: TaskChanges, firing: Firing, new_id: Callable[[str, Instant], TaskId]) -> None:
        self._task_changes = task_changes
        self._records = task_changes.records
        self._store = task_changes.store
        self._clock = task_changes.clock
        self._firing = firing
        self._new_id = new_id

    async def add(self, schedule: Schedule, *, paused: bool = False) -> ScheduleEntry:
        """Store a new schedule; raises ScheduleExists if there is one by this name."""
        entry = self._new(await self._checked(schedule), paused=paused)
        if await self._store.put(KIND, schedule.name, encode(entry), expected=0) is None:
            raise ScheduleExists(schedule.name)
        await self._ring()
        return entry

    async def put(
        self,
        schedule: Schedule,
        *,
        paused: bool | None = None,
        replaces: Callable[[str, Schedule | None], None] = lambda name, before: None,
    ) -> Put:
        """Store a schedule, new or in place of the one by this name.

        That one's past is kept, and unless it is said otherwise whether it is paused. The next fire time changes only
        if the times at which it recurs do. `replaces` is shown that one before, or None if it cannot be read, and
        raises if it is to stay.
        """
        await self._checked(schedule)
        for _ in range(_TRIES):
            found = await self._records.find(FORM, schedule.name)
            if isinstance(found, Unread):
                if found.fault is Fault.NEWER:
                    raise found.error
                replaces(schedule.name, None)
                entry, expected = self._new(schedule, paused=bool(paused)), found.version
            elif found is None:
                entry, expected = self._new(schedule, paused=bool(paused)), 0
            else:
                replaces(schedule.name, found.value.schedule)
                entry, expected = self._amended(found.value, schedule, paused), found.version
                if entry == found.value:
                    return Put(entry, created=False)
            if await self._store.put(KIND, schedule.name, encode(entry), expected=expected) is not None:
                await self._ring()
                return Put(entry, created=found is None or isinstance(found, Unread))
        raise _contended(schedule.name)

    async def declare(self, schedules: Iterable[Schedule]) -> None:
        """Put the schedules that a program declares; what is as declared already is left alone.

        So is one that cannot be read: somebody may have paused it, and has to decide about it. One that is over is not
        stored anew: a program goes on working when what it declares has come to its end.
        """
        for schedule in schedules:
            found = await self._records.find(FORM, schedule.name)
            if isinstance(found, Unread):
                log.warning("schedule %s does not fire: %s", schedule.name, found.error)
            elif found is not None or goes_on(schedule, self._clock.now()):
                await self.put(schedule)

    async def all(self) -> list[ScheduleEntry]:
        """Every schedule, by name."""
        return (await self._records.read(FORM)).values

    async def lateness(self) -> Span:
        """How long ago the most overdue schedule should have fired; 0 if none is overdue."""
        now = self._clock.now()
        return max((late(entry, now) for entry in await self.all()), default=0)

    async def get(self, name: str) -> ScheduleEntry:
        """The schedule with this name."""
        return (await self._get(name)).entry

    async def pause(self, name: str) -> ScheduleEntry:
        """Pause a schedule: it does not fire until it is resumed."""
        return await self._change(name, lambda entry: _with(entry, paused=True))

    async def resume(self, name: str) -> ScheduleEntry:
        """Resume a paused schedule from its next fire time on; those that have passed are not made up for."""

        def resumed(entry: ScheduleEntry) -> ScheduleEntry:
            if not entry.status.paused:
                return entry
            return _with(entry, paused=False, next_at=next_time(entry.schedule, self._clock.now()))

        return await self._change(name, resumed)

    async def remove(self, name: str) -> ScheduleEntry:
        """Remove a schedule; the answer is how it stood. Its tasks stay."""
        kept = await self._get(name)
        if not await self._store.drop(KIND, name):
            raise ScheduleNotFound(name)
        await self._ring()
        return kept.entry

    async def run_now(self, name: str) -> Task:
        """Submit a schedule's task at once, paused or not, whatever runs; its fire times stay as they are."""

        def run(entry: ScheduleEntry) -> ScheduleEntry:
            now = self._clock.now()
            fire = Fire(at=now, task=self._new_id(entry.schedule.submission.queue, now), since=now)
            return ScheduleEntry(entry.schedule, with_pending(entry.status, [fire]), entry.created_at)

        entry = await self._change(name, run)
        task_id = entry.status.pending[-1].task
        await self._firing.submit(name, task_id)
        (task,) = await self._store.get([task_id])
        if task is None:
            stood = (await self._get(name)).entry.status
            if stood.failure is not None and all(fire.task != task_id for fire in stood.pending):
                raise InvalidSchedule("task", f"the task of schedule {name!r} is refused: {stood.failure}")
            raise StoreUnavailable(
                f"the task of schedule {name!r} is not submitted yet: {stood.failure or 'its queue is full'}; it will "
                f"be as soon as possible"
            )
        return task

    async def preview(self, name: str, count: int = 10) -> list[Instant]:
        """The next fire times of a schedule, as if it were not paused."""
        return self.foresee((await self._get(name)).entry.schedule, count, after=self._clock.now())

    @staticmethod
    def foresee(schedule: Schedule, count: int, *, after: Instant) -> list[Instant]:
        """The fire times beyond an instant that a schedule has or, not stored yet, would have."""
        check_count("count", count, 1, MOST_PREVIEWED, InvalidSchedule)
        return list(itertools.islice(upcoming(check(schedule), after), count))

    async def fire(self) -> int:
        """Submit what is due, in whatever process this is called; how many tasks were. Needs an event loop."""
        return await self._firing.once()

    async def _checked(self, schedule: Schedule) -> Schedule:
        check(schedule)
        await self._task_changes.queue_cache.refresh()
        now = self._clock.now()
        submission: Submission = template_of(schedule)
        self._task_changes.queue_cache.accept(submission, self._new_id(submission.queue, now), now)
        return schedule

    def _new(self, schedule: Schedule, *, paused: bool) -> ScheduleEntry:
        now = self._clock.now()
        next_at = next_time(schedule, now)
        if next_at is None:
            raise InvalidSchedule(
                "end", f"schedule {schedule.name!r} has no fire time between now and its end; choose a later end"
            )
        return ScheduleEntry(schedule, ScheduleStatus(next_at=next_at, paused=paused), now)

    def _amended(self, entry: ScheduleEntry, schedule: Schedule, paused: bool | None) -> ScheduleEntry:
        before, status = entry.schedule, entry.status
        resumed = status.paused and paused is False
        if resumed or _times(before) != _times(schedule):
            status = replace(status, next_at=next_time(schedule, self._clock.now()))
        if paused is not None:
            status = replace(status, paused=paused)
        return ScheduleEntry(schedule, status, entry.created_at)

    async def _change(self, name: str, change: Callable[[ScheduleEntry], ScheduleEntry]) -> ScheduleEntry:
        for _ in range(_TRIES):
            kept = await self._get(name)
            entry = change(kept.entry)
            if entry == kept.entry:
                return entry
            if await self._store.put(KIND, name, encode(entry), expected=kept.version) is not None:
                await self._ring()
                return entry
        raise _contended(name)

    async def _get(self, name: str) -> KeptSchedule:
        found = await self._find(name)
        if found is None:
            raise ScheduleNotFound(name)
        return found

    async def _find(self, name: str) -> KeptSchedule | None:
        found = await self._records.get(FORM, name)
        return None if found is None else KeptSchedule(found.value, found.version)

    async def _ring(self) -> None:
        """Have every process look at the schedules again."""
        await self._store.put(BELL, BELL, b"")


def _times(schedule: Schedule) -> tuple[object, ...]:
    return schedule.cron, schedule.timezone, schedule.start, schedule.end


def _with(entry: ScheduleEntry, **changes: object) -> ScheduleEntry:
    return ScheduleEntry(entry.schedule, replace(entry.status, **changes), entry.created_at)


def _contended(name: str) -> FairleadError:
    return StoreUnavailable(f"the schedule {name!r} changed {_TRIES} times meanwhile; try again later")
