"""Schedules: named entries that submit a task again and again, and the decision which of their times to fire.

A fire time is one of the times at which a schedule recurs. Whatever process decides about it, at whatever moment, sees
the same fire times at the same instants: nothing here depends on who asks.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Sequence
from typing import Final, assert_never

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.cron import Recurrence, parse
from fairlead.core.errors import InvalidSchedule
from fairlead.core.identity import TaskId, check_name
from fairlead.core.instant import HOUR, SECOND, Instant, Span
from fairlead.core.submission import Submission
from fairlead.core.submission import check as check_submission
from fairlead.core.validation import check_count, check_instant, check_span, check_text, check_type

ON_TIME: Final[Span] = 30 * SECOND
"""How late a fire time may be submitted and not have been missed; nor have those after it been."""
TAKEN_OVER_AFTER: Final[Span] = 10 * SECOND
"""How long what was decided is left to the process that did, which may have died."""
MOST_JITTER: Final[Span] = HOUR
MOST_MISSED: Final = 1_000
_LONGEST_NAME: Final = 100
_LONGEST_CRON: Final = 500
_WIDER: Final = 8
MOST_PREVIEWED: Final = 1_000
"""How many fire times are shown at most."""


class Missed(enum.StrEnum):
    """What becomes of fire times that passed while nobody could fire them."""

    SKIP = "skip"
    """Nothing."""
    RUN_ONCE = "run_once"
    """One task for all of them, unless the next fire time is there already."""
    RUN_ALL = "run_all"
    """A task for each of the latest ones, up to the schedule's cap."""


class Overlap(enum.StrEnum):
    """What becomes of a fire time while the task of the one before has not ended."""

    ALLOW = "allow"
    """It is submitted all the same."""
    SKIP = "skip"
    """It is not."""
    REPLACE = "replace"
    """It is, and the task before is cancelled."""


class Schedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A named entry that submits a task at each of its fire times."""

    name: str
    cron: str
    """When: five or six fields, a word such as `@daily`, or `every 30 seconds`; see `fairlead.core.cron`."""
    timezone: str = "UTC"
    """Whose wall clock the expression is about."""
    submission: Submission
    """The task."""
    missed: Missed = Missed.RUN_ONCE
    missed_cap: int = 100
    """How many missed fire times `run_all` makes up for."""
    overlap: Overlap = Overlap.ALLOW
    jitter: Span = 0
    """Each fire time is submitted later by up to this, by an amount that is its own."""
    start: Instant | None = None
    """No fire time is before this; an interval counts from here."""
    end: Instant | None = None
    """No fire time is after this."""


class Fire(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fire time that is decided, and the task that is to be submitted for it."""

    at: Instant
    task: TaskId
    since: Instant = 0
    """When it was decided; who decided submits it, and others only if that one does not in `TAKEN_OVER_AFTER`."""
    replaces: TaskId | None = None
    """The task to cancel before."""


class ScheduleStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a schedule stands: all that changes by itself."""

    next_at: Instant | None = None
    """The next fire time; None when there is none any more."""
    paused: bool = False
    last_at: Instant | None = None
    """The last fire time that was decided for."""
    last_task: TaskId | None = None
    fired: int = 0
    """How many tasks it has submitted."""
    pending: tuple[Fire, ...] = ()
    """Decided, and perhaps not submitted yet."""
    failure: str | None = None
    """Why the last fire time could not be submitted."""


class ScheduleEntry(Struct, frozen=True):
    """A schedule and its state."""

    schedule: Schedule
    status: ScheduleStatus
    created_at: Instant = 0

    @property
    def name(self) -> str:
        return self.schedule.name

    @property
    def attention(self) -> Instant | None:
        """When someone must look at it: to take over what is pending, else at its next fire time; None for never."""
        if self.status.pending:
            return min(fire.since for fire in self.status.pending) + TAKEN_OVER_AFTER
        if self.status.paused or self.status.next_at is None:
            return None
        return moment_of(self.schedule, self.status.next_at)


class Decision(Struct, frozen=True):
    """Which fire times to submit now, and the next one after."""

    times: tuple[Instant, ...]
    next_at: Instant | None


def check(schedule: Schedule) -> Schedule:
    """The schedule, if it can fire at all; raises InvalidSchedule, naming the field, if not.

    Its task goes through the one door of all tasks, `submission.check`.
    """
    check_name("name", schedule.name)
    if len(schedule.name) > _LONGEST_NAME:
        raise InvalidSchedule(
            "name", f"name {schedule.name!r} has {len(schedule.name)} characters; use at most {_LONGEST_NAME}"
        )
    check_text("cron", schedule.cron, _LONGEST_CRON, InvalidSchedule)
    check_text("timezone", schedule.timezone, _LONGEST_NAME, InvalidSchedule)
    for field in ("start", "end"):
        if getattr(schedule, field) is not None:
            check_instant(field, getattr(schedule, field), InvalidSchedule)
    recurrence_of(schedule)
    submission = check_submission(
        check_type("submission", schedule.submission, Submission, "make one with task.call(…)", InvalidSchedule)
    )
    check_type("parameters", submission.parameters, bytes, "encode a JSON object", InvalidSchedule)
    if submission.after:
        raise InvalidSchedule(
            "after", "after cannot be set for a schedule's task, which is due when the schedule fires; leave it out"
        )
    for field in ("run_at", "delay", "idempotency_key"):
        if getattr(submission, field) is not None:
            raise InvalidSchedule(
                field,
                f"{field} cannot be set for a schedule's task, which is due when the schedule fires; leave it out",
            )
    check_type("missed", schedule.missed, Missed, f"use one of {', '.join(Missed)}", InvalidSchedule)
    check_type("overlap", schedule.overlap, Overlap, f"use one of {', '.join(Overlap)}", InvalidSchedule)
    check_count("missed_cap", schedule.missed_cap, 1, MOST_MISSED, InvalidSchedule)
    check_span("jitter", schedule.jitter, 0, MOST_JITTER, InvalidSchedule)
    if schedule.start is not None and schedule.end is not None and schedule.end < schedule.start:
        raise InvalidSchedule("end", "the end is before the start, so it would never fire; choose a later end")
    return schedule


def recurrence_of(schedule: Schedule) -> Recurrence:
    """When a schedule recurs, regardless of its start and end."""
    return parse(schedule.cron, schedule.timezone, schedule.start or 0)


def next_time(schedule: Schedule, after: Instant) -> Instant | None:
    """The first fire time beyond an instant."""
    begin = after if schedule.start is None else max(after, schedule.start - 1)
    following = recurrence_of(schedule).next_after(begin)
    if following is None or (schedule.end is not None and following > schedule.end):
        return None
    return following


def goes_on(schedule: Schedule, after: Instant) -> bool:
    """Whether a schedule has a fire time beyond an instant."""
    return next_time(schedule, after) is not None


def upcoming(schedule: Schedule, after: Instant) -> Iterator[Instant]:
    """All fire times beyond an instant."""
    following = next_time(schedule, after)
    while following is not None:
        yield following
        following = next_time(schedule, following)


def moment_of(schedule: Schedule, at: Instant) -> Instant:
    """When a fire time is submitted: it, and its jitter, which follows from the schedule's name and the time."""
    if not schedule.jitter:
        return at
    # For jitter only: it brings in all digests of OpenSSL, which most processes never use.
    import hashlib

    digest = hashlib.blake2b(f"{schedule.name} {at}".encode(), digest_size=8).digest()
    return at + int.from_bytes(digest) % (schedule.jitter + 1)


def late(entry: ScheduleEntry, now: Instant) -> Span:
    """How long ago a schedule should have submitted a task that it has not; 0 if it need not have."""
    status = entry.status
    due = [fire.since for fire in status.pending]
    if status.next_at is not None and not status.paused:
        due.append(moment_of(entry.schedule, status.next_at))
    return max(0, now - min(due, default=now))


def fires(schedule: Schedule, status: ScheduleStatus, now: Instant, *, busy: bool = False) -> Decision:
    """Which fire times to submit at this moment; busy says that the task before has not ended.

    As long as none is late, all are submitted. As soon as one is, nobody was there to fire them, and what becomes of
    all of them is for the schedule to say; but the latest may be on time. Each fire time is decided for once, submitted
    or not: the next decision begins at `next_at`.
    """
    if status.paused or status.next_at is None:
        return Decision((), status.next_at)
    enough = schedule.missed_cap if schedule.missed is Missed.RUN_ALL else 1
    due, next_at = _due(schedule, status.next_at, now, enough)
    # Each waits for those before it, whose jitter may be longer.
    moments = itertools.accumulate((moment_of(schedule, at) for at in due), max)
    on_time = [at for at, moment in zip(due, moments, strict=True) if now - moment <= ON_TIME]
    chosen = due if on_time == due and due[:1] == [status.next_at] else _made_up(schedule, due, on_time)
    match schedule.overlap:
        case Overlap.ALLOW:
            pass
        case Overlap.SKIP:
            chosen = [] if busy else chosen[-1:]
        case Overlap.REPLACE:
            # Those before the last would be cancelled as soon as they are there.
            chosen = chosen[-1:]
        case _:
            assert_never(schedule.overlap)
    return Decision(tuple(chosen), next_at)


def _made_up(schedule: Schedule, due: list[Instant], on_time: list[Instant]) -> list[Instant]:
    """Which fire times to submit when some were missed."""
    match schedule.missed:
        case Missed.SKIP:
            return on_time[-1:]
        case Missed.RUN_ONCE:
            return due[-1:]
        case Missed.RUN_ALL:
            return due[-schedule.missed_cap :]
        case _:
            assert_never(schedule.missed)


def decided(
    schedule: Schedule,
    status: ScheduleStatus,
    decision: Decision,
    ids: Sequence[TaskId],
    now: Instant,
    *,
    busy: bool = False,
) -> ScheduleStatus:
    """How a schedule stands once its decision is taken, with an id for each task that is to be submitted."""
    status = replace(status, next_at=decision.next_at)
    if not decision.times:
        return status
    replaces = status.last_task if busy and schedule.overlap is Overlap.REPLACE else None
    pending = [
        Fire(at=at, task=task, since=now, replaces=replaces) for at, task in zip(decision.times, ids, strict=True)
    ]
    return replace(with_pending(status, pending), last_at=decision.times[-1])


def with_pending(status: ScheduleStatus, fires: Sequence[Fire]) -> ScheduleStatus:
    """How a schedule stands with more tasks to submit."""
    return replace(
        status,
        last_task=fires[-1].task,
        fired=status.fired + len(fires),
        pending=(*status.pending, *fires),
        failure=None,
    )


def _due(schedule: Schedule, first: Instant, now: Instant, enough: int) -> tuple[list[Instant], Instant | None]:
    """The latest fire times whose moment has come, at least so many if there are, and the one after.

    A schedule that recurs every second and stood still for a month has millions: only the latest are looked for.
    """
    window = ON_TIME
    while True:
        begin = max(first, now - schedule.jitter - window)
        times = itertools.chain([first], upcoming(schedule, first)) if begin == first else upcoming(schedule, begin - 1)
        due: list[Instant] = []
        next_at: Instant | None = None
        for at in times:
            if moment_of(schedule, at) > now:
                next_at = at
                break
            due.append(at)
        if begin == first or len(due) >= enough:
            return due, next_at
        window *= _WIDER


class Put(Struct, frozen=True):
    """What became of a schedule that was put."""

    entry: ScheduleEntry
    created: bool
    """Whether there was none by this name before."""
