"""Schedules over HTTP: their shapes, their endpoints, and the calls of a client."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import replace

from fairlead.core.cron import local, zone_of
from fairlead.core.errors import InvalidSchedule, RecordUnreadable, ScheduleNotFound, StoreMismatch
from fairlead.core.identity import TaskId, check_name
from fairlead.core.instant import LONGEST, SECOND, Instant
from fairlead.core.retry import MOST_RETRIES
from fairlead.core.schedule import (
    MOST_JITTER,
    MOST_MISSED,
    MOST_PREVIEWED,
    Missed,
    Overlap,
    Put,
    Schedule,
    ScheduleEntry,
    ScheduleStatus,
    goes_on,
)
from fairlead.core.task import Task
from fairlead.core.tenancy import Role
from fairlead.core.validation import check_count, span_of
from fairlead.engine.runtime.clock import Clock
from fairlead.wire.endpoint import Ask, Empty, Endpoint
from fairlead.wire.task_endpoints import SHOW_TASK
from fairlead.wire.task_shown import TaskWhole, task_of
from fairlead.wire.tasks import (
    HTTP_NAMES,
    JsonObject,
    Moment,
    Name,
    Names,
    PriorityGiven,
    RetentionSpans,
    RetryPolicy,
    Rules,
    SubmitRequest,
    TaskCreated,
    Text,
    submission_of,
    template_of,
)
from fairlead.wire.text import instant_of, iso, maybe_iso, maybe_parse_iso, parse_iso

_YEAR: Final = LONGEST // SECOND

MissedWord: TypeAlias = Literal["skip", "run_once", "run_all"]
OverlapWord: TypeAlias = Literal["allow", "skip", "replace"]
ScheduleName: TypeAlias = Annotated[str, Meta(extra_json_schema={"pattern": "^[A-Za-z0-9_.:-]{1,100}$"})]


class TaskTemplate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=HTTP_NAMES):
    """The task that a schedule submits: the fields of a submit, except when it is due."""

    type: Name
    """The name of what it does: workers have handlers by this name."""
    priority: PriorityGiven | None = None
    """How urgent it is; `normal` is another word for medium."""
    parameters: JsonObject = Raw(b"{}")
    """The arguments of its handler; stored and passed on exactly as written, to the digit."""
    requires: Names = ()
    """What a worker must be able to do to take it."""
    timeout: Annotated[float, Meta(gt=0, le=_YEAR)] | None = None
    """How long an attempt may take; at most a year."""
    max_retries: Annotated[int, Meta(ge=0, le=MOST_RETRIES)] | None = None
    """How often a failure is tried again."""
    max_crashes: Annotated[int, Meta(ge=0, le=MOST_RETRIES)] | None = None
    """How many workers it may lose before it is a dead letter."""
    backoff: RetryPolicy | None = None
    retry_rules: Rules = ()
    """What to do after particular errors; the first rule that fits an error counts."""
    queue: Name = "default"
    """The line that it waits in."""
    tenant: Text | None = None
    """On whose behalf it runs; with a key that is bound to a tenant it may be left out, and can be no other."""
    tags: Annotated[tuple[Name, ...], Meta(extra_json_schema={"maxItems": 49})] = ()
    """Words to find it by; `schedule:` and the schedule's name is added to them."""
    trace: Text | None = None
    """The W3C traceparent of its submits."""
    concurrency_key: Text | None = None
    """Tasks of one queue that share it run one at a time, or as many at once as the queue says."""
    expires: Annotated[float, Meta(gt=0, le=_YEAR)] | None = None
    """How long after it is due it may still be started; after that it is cancelled, with the error `Expired`."""
    retention: RetentionSpans | None = None
    """How long it is kept once it has ended."""
    fair_key: Text | None = None
    """Whose turns its tasks take, in a queue that fair keys share."""


class ScheduleFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule without its name."""

    cron: Annotated[str, Meta(max_length=500)]
    """When: five fields (minute, hour, day of month, month, day of week), six with the second first, a word such as
    `@daily`, or `every 30 seconds`."""
    task: TaskTemplate
    """What it submits."""
    timezone: Annotated[str, Meta(max_length=100)] = "UTC"
    """The time zone of `cron`."""
    missed: MissedWord = "run_once"
    """What to do about fire times that passed while nothing could fire them."""
    missed_cap: Annotated[int, Meta(ge=1, le=MOST_MISSED)] = 100
    """How many missed fire times `run_all` makes up for."""
    overlap: OverlapWord = "allow"
    """What becomes of a fire time while the task of the one before has not ended."""
    jitter_seconds: Annotated[float, Meta(ge=0, le=MOST_JITTER // SECOND)] = 0.0
    """How much later than its fire time a task may be submitted, to spread the load; each has a delay of its own."""
    start_at: Moment | None = None
    """No fire time is before this; an interval counts from here."""
    end_at: Moment | None = None
    """No fire time is after this."""
    paused: bool | None = None
    """Whether it is paused; if left out, a new schedule is not, and a replaced one stays as it is."""


class ScheduleRequest(ScheduleFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule to add."""

    name: ScheduleName


class DeclaredSchedules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The schedules that the program of a worker declares."""

    schedules: Annotated[list[ScheduleRequest], Meta(extra_json_schema={"maxItems": 1_000})]


class SchedulesDeclared(Struct, frozen=True, kw_only=True):
    """The answer to declaring schedules."""

    declared: int
    """How many were named."""


class ScheduleShown(Struct, frozen=True, kw_only=True):
    """A schedule and its state."""

    name: str
    cron: str
    timezone: str
    task: TaskTemplate
    missed: str
    missed_cap: int
    overlap: str
    jitter_seconds: float
    start_at: str | None
    end_at: str | None
    paused: bool
    next_fire_at: str | None
    """The next fire time, before jitter; null for one that has come to its end."""
    last_fire_at: str | None
    """The last fire time for which a task was submitted."""
    last_task_id: str | None
    fired: int
    """How many tasks it has submitted."""
    failure: str | None
    """Why the last fire time could not be submitted."""
    created_at: str


class ScheduleList(Struct, frozen=True, kw_only=True):
    """Every schedule, by name."""

    schedules: list[ScheduleShown]


class FireTime(Struct, frozen=True, kw_only=True):
    """One of the times at which a schedule recurs."""

    at: str
    local: str
    """What the wall clock of the schedule's zone shows, with its offset."""


class SchedulePreview(Struct, frozen=True, kw_only=True):
    """The next fire times of a schedule."""

    name: str
    timezone: str
    fire_times: list[FireTime]


def schedule_of(name: str, fields: ScheduleFields, tenant: str | None) -> Schedule:
    """The schedule that a request describes, on behalf of this tenant."""
    template = fields.task
    request = SubmitRequest(**{field: getattr(template, field) for field in template.__struct_fields__})
    return Schedule(
        name=name,
        cron=fields.cron,
        timezone=fields.timezone,
        # It says all that there is to say, whatever workers publish of its type.
        submission=replace(submission_of(request, tenant), by_name=False),
        missed=Missed(fields.missed),
        missed_cap=fields.missed_cap,
        overlap=Overlap(fields.overlap),
        jitter=span_of("jitter", fields.jitter_seconds),
        start=None if fields.start_at is None else instant_of(fields.start_at),
        end=None if fields.end_at is None else instant_of(fields.end_at),
    )


def shown(entry: ScheduleEntry) -> ScheduleShown:
    """A schedule and its state."""
    schedule, status = entry.schedule, entry.status
    return ScheduleShown(
        name=schedule.name,
        cron=schedule.cron,
        timezone=schedule.timezone,
        task=TaskTemplate(**template_of(schedule.submission)),
        missed=schedule.missed.value,
        missed_cap=schedule.missed_cap,
        overlap=schedule.overlap.value,
        jitter_seconds=schedule.jitter / SECOND,
        start_at=maybe_iso(schedule.start),
        end_at=maybe_iso(schedule.end),
        paused=status.paused,
        next_fire_at=maybe_iso(status.next_at),
        last_fire_at=maybe_iso(status.last_at),
        last_task_id=status.last_task,
        fired=status.fired,
        failure=status.failure,
        created_at=iso(entry.created_at),
    )


def previewed(schedule: Schedule, times: list[Instant]) -> SchedulePreview:
    """The next fire times of a schedule."""
    zone = zone_of(schedule.timezone)
    return SchedulePreview(
        name=schedule.name,
        timezone=schedule.timezone,
        fire_times=[FireTime(at=iso(at), local=local(at, zone).isoformat(timespec="seconds")) for at in times],
    )


def fields_of(schedule: Schedule) -> dict[str, Any]:
    """A schedule without its name, as a request has it."""
    return {
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "task": TaskTemplate(**template_of(schedule.submission)),
        "missed": schedule.missed,
        "missed_cap": schedule.missed_cap,
        "overlap": schedule.overlap,
        "jitter_seconds": schedule.jitter / SECOND,
        "start_at": maybe_iso(schedule.start),
        "end_at": maybe_iso(schedule.end),
    }


class PreviewQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far to look ahead."""

    count: Annotated[int, Meta(ge=1, le=MOST_PREVIEWED)] = 10
    """How many fire times."""


def _shown(path: Mapping[str, str], entry: ScheduleEntry, now: Instant) -> ScheduleShown:
    return shown(entry)


LIST_SCHEDULES: Final = Endpoint[Empty, None](
    method="GET",
    path="/api/v1/schedules",
    summary="List the schedules",
    role=Role.READ,
    answers={200: ScheduleList},
)
ADD: Final = Endpoint[Empty, ScheduleRequest](
    method="POST",
    path="/api/v1/schedules",
    summary="Add a schedule",
    role=Role.ADMIN,
    body=ScheduleRequest,
    answers={201: ScheduleShown},
    problems=(409,),
)
SHOW: Final = Endpoint[Empty, None](
    method="GET",
    path="/api/v1/schedules/{schedule}",
    summary="Show a schedule",
    role=Role.READ,
    answers={200: ScheduleShown},
    problems=(404,),
    calls="schedules.get",
    shows=_shown,
    about="Show a schedule and its state.",
)
PUT: Final = Endpoint[Empty, ScheduleFields](
    method="PUT",
    path="/api/v1/schedules/{schedule}",
    summary="Add or replace a schedule",
    role=Role.ADMIN,
    body=ScheduleFields,
    answers={200: ScheduleShown, 201: ScheduleShown},
    problems=(409,),
)
DECLARE: Final = Endpoint[Empty, DeclaredSchedules](
    method="PUT",
    path="/internal/workers/{worker_id}/schedules",
    summary="Put the schedules of a worker",
    role=Role.WORK,
    body=DeclaredSchedules,
    answers={200: SchedulesDeclared},
    problems=(404, 409),
)
REMOVE: Final = Endpoint[Empty, None](
    method="DELETE",
    path="/api/v1/schedules/{schedule}",
    summary="Remove a schedule",
    role=Role.ADMIN,
    answers={200: ScheduleShown},
    problems=(404,),
    calls="schedules.remove",
    shows=_shown,
    about="Remove a schedule; the answer is how it stood. The tasks that it has submitted stay.",
)
PAUSE: Final = Endpoint[Empty, None](
    method="POST",
    path="/api/v1/schedules/{schedule}/pause",
    summary="Pause a schedule",
    role=Role.ADMIN,
    answers={200: ScheduleShown},
    problems=(404,),
    calls="schedules.pause",
    shows=_shown,
    about="Pause a schedule: it does not fire until it is resumed.",
)
RESUME: Final = Endpoint[Empty, None](
    method="POST",
    path="/api/v1/schedules/{schedule}/resume",
    summary="Resume a schedule",
    role=Role.ADMIN,
    answers={200: ScheduleShown},
    problems=(404,),
    calls="schedules.resume",
    shows=_shown,
    about="Resume a paused schedule from its next fire time on. Those that have passed are not made up for.",
)
RUN: Final = Endpoint[Empty, None](
    method="POST",
    path="/api/v1/schedules/{schedule}/run",
    summary="Run a schedule now",
    role=Role.ADMIN,
    answers={201: TaskCreated},
    problems=(404,),
)
PREVIEW: Final = Endpoint[PreviewQuery, None](
    method="GET",
    path="/api/v1/schedules/{schedule}/preview",
    summary="Show the next fire times of a schedule",
    role=Role.READ,
    query=PreviewQuery,
    answers={200: SchedulePreview},
    problems=(404,),
)


log = logging.getLogger("fairlead.schedules")

_CREATED: Final = 201
_FIELDS: Final = frozenset(ScheduleFields.__struct_fields__)


class RemoteSchedules:
    """The schedules behind a server."""

    def __init__(self, ask: Ask, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock

    async def add(self, schedule: Schedule, *, paused: bool = False) -> ScheduleEntry:
        """Store a new schedule; raises ScheduleExists if there is one by this name."""
        body = {**fields_of(schedule), "name": schedule.name, "paused": paused}
        return _entry(await self._ask(ADD, ScheduleShown, body, subject=schedule.name))

    async def put(self, schedule: Schedule, *, paused: bool | None = None) -> Put:
        """Store a schedule, new or in place of the one by this name."""
        body, name = {**fields_of(schedule), "paused": paused}, check_name("name", schedule.name)
        status, shown = await self._ask.answer(PUT, ScheduleShown, body, subject=name, schedule=name)
        return Put(_entry(shown), created=status == _CREATED)

    async def declare(self, schedules: Iterable[Schedule], worker: str | None = None) -> None:
        """Put the schedules that a program declares, but for those that are over and are not stored.

        One that cannot be read is left as it is. A worker that runs them needs no role for schedules.
        """
        schedules = list(schedules)
        if worker is not None and schedules:
            try:
                said = {"schedules": [{**fields_of(each), "name": each.name} for each in schedules]}
                await self._ask(DECLARE, SchedulesDeclared, said, subject=worker, worker_id=worker)
            except StoreMismatch:
                # A server of an earlier version: it wants the role for it.
                pass
            else:
                return
        for schedule in schedules:
            try:
                if await self._is_stored(schedule.name) or goes_on(schedule, self._clock.now()):
                    await self.put(schedule)
            except RecordUnreadable as error:
                log.warning("schedule %s does not fire: %s", schedule.name, error)

    async def _is_stored(self, name: str) -> bool:
        try:
            await self.get(name)
        except ScheduleNotFound:
            return False
        return True

    async def all(self) -> list[ScheduleEntry]:
        """Every schedule, by name."""
        return [_entry(shown) for shown in (await self._ask(LIST_SCHEDULES, ScheduleList)).schedules]

    async def get(self, name: str) -> ScheduleEntry:
        """The schedule with this name."""
        return await self._one(SHOW, name)

    async def pause(self, name: str) -> ScheduleEntry:
        """Pause a schedule: it does not fire until it is resumed."""
        return await self._one(PAUSE, name)

    async def resume(self, name: str) -> ScheduleEntry:
        """Let a paused schedule fire again, from its next fire time on."""
        return await self._one(RESUME, name)

    async def remove(self, name: str) -> ScheduleEntry:
        """Remove a schedule; the answer is how it stood. Its tasks stay."""
        return await self._one(REMOVE, name)

    async def run_now(self, name: str) -> Task:
        """Submit a schedule's task at once; its fire times stay as they are."""
        created = await self._ask(RUN, TaskCreated, subject=name, schedule=_known(name))
        task_id = created.task_id
        return task_of(await self._ask(SHOW_TASK, TaskWhole, subject=task_id, task_id=task_id))

    async def preview(self, name: str, count: int = 10) -> list[Instant]:
        """The next fire times of a schedule, as if it were not paused."""
        check_count("count", count, 1, MOST_PREVIEWED, InvalidSchedule)
        query = {"count": str(count)}
        shown = await self._ask(PREVIEW, SchedulePreview, query=query, subject=name, schedule=_known(name))
        return [parse_iso(fire.at) for fire in shown.fire_times]

    async def _one(self, endpoint: Endpoint[Any, Any], name: str) -> ScheduleEntry:
        return _entry(await self._ask(endpoint, ScheduleShown, subject=name, schedule=_known(name)))


def _known(name: str) -> str:
    """A name that a schedule can have."""
    try:
        return check_name("name", name)
    except ValueError:
        raise ScheduleNotFound(name) from None


def _entry(shown: ScheduleShown) -> ScheduleEntry:
    """A schedule as the engine has it, but for what is pending, which only the server knows."""
    known = {name: value for name, value in msgspec.structs.asdict(shown).items() if name in _FIELDS}
    fields = msgspec.convert({**known, "task": shown.task}, ScheduleFields)
    status = ScheduleStatus(
        next_at=maybe_parse_iso(shown.next_fire_at),
        paused=shown.paused,
        last_at=maybe_parse_iso(shown.last_fire_at),
        last_task=None if shown.last_task_id is None else TaskId(shown.last_task_id),
        fired=shown.fired,
        failure=shown.failure,
    )
    return ScheduleEntry(schedule_of(shown.name, fields, shown.task.tenant), status, parse_iso(shown.created_at))
