"""Schedules: how they are written and shown, over HTTP and by `--json` of the command line."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Raw, Struct

from fairlead.core.instant import SECOND, Instant, span
from fairlead.core.schedule import MOST_JITTER, MOST_MISSED, Missed, Overlap, Schedule, ScheduleEntry
from fairlead.core.submission import Submission
from fairlead.core.zones import local, zone_of
from fairlead.wire.moments import instant_of, iso, maybe_iso
from fairlead.wire.retrying import RetryPolicy, Rules, policy_of, rules_shown
from fairlead.wire.tasks import JsonObject, Moment, Name, Names, PriorityWord, SubmitRequest, Text
from fairlead.wire.tasks import submission_of as task_of

_YEAR: Final = 366 * 86_400

MissedWord: TypeAlias = Literal["skip", "run_once", "run_all"]
OverlapWord: TypeAlias = Literal["allow", "skip", "replace"]
ScheduleName: TypeAlias = Annotated[str, Meta(extra_json_schema={"pattern": "^[A-Za-z0-9_.:-]{1,100}$"})]


class TaskTemplate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The task that a schedule submits: what can be said in a submit, except when it is due."""

    task_type: Name
    """What the task is: workers have handlers by this name."""
    priority: PriorityWord | None = None
    """How urgent it is; `normal` is another word for medium."""
    parameters: JsonObject = Raw(b"{}")
    """What its handler is given; kept and handed on as it is written, to the digit."""
    required_capabilities: Names = ()
    """What a worker must be able to do to take it."""
    timeout_seconds: Annotated[float, Meta(gt=0, le=_YEAR)] | None = None
    """How long an attempt may take; at most a year."""
    max_retries: Annotated[int, Meta(ge=0, le=10_000)] | None = None
    """How often a failure is tried again."""
    max_crashes: Annotated[int, Meta(ge=0, le=10_000)] | None = None
    """How many lost workers it may cost."""
    retry_policy: RetryPolicy | None = None
    retry_rules: Rules = ()
    """What becomes of it after single kinds of errors; the first rule that an error goes by counts."""
    queue: Name = "default"
    """The line that it waits in."""
    tenant: Text | None = None
    """On whose behalf; a key that is bound to a tenant may leave it out and can name no other."""
    tags: Annotated[tuple[Name, ...], Meta(extra_json_schema={"maxItems": 49})] = ()
    """Words to find it by; `schedule:` and the schedule's name is added to them."""
    trace_id: Text | None = None
    """The W3C traceparent of its submits."""
    concurrency_key: Text | None = None
    """Tasks of one queue that share it run one at a time, or as many at once as the queue says."""


class ScheduleFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule without its name."""

    cron: Annotated[str, Meta(max_length=500)]
    """When: five fields (minute, hour, day of month, month, day of week), six with the second first, a word such as
    `@daily`, or `every 30 seconds`."""
    task: TaskTemplate
    """What it submits."""
    timezone: Annotated[str, Meta(max_length=100)] = "UTC"
    """Whose wall clock `cron` is about."""
    missed: MissedWord = "run_once"
    """What becomes of fire times that passed while nothing could fire them."""
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
    """Whether it fires; if not said, a new one does, and one that is replaced stays as it is."""


class ScheduleRequest(ScheduleFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule to add."""

    name: ScheduleName


class ScheduleShown(Struct, frozen=True, kw_only=True):
    """A schedule and how it stands."""

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
        submission=task_of(request, tenant),
        missed=Missed(fields.missed),
        missed_cap=fields.missed_cap,
        overlap=Overlap(fields.overlap),
        jitter=span(fields.jitter_seconds),
        start=None if fields.start_at is None else instant_of(fields.start_at),
        end=None if fields.end_at is None else instant_of(fields.end_at),
    )


def shown(entry: ScheduleEntry) -> ScheduleShown:
    """A schedule and how it stands."""
    schedule, status = entry.schedule, entry.status
    return ScheduleShown(
        name=schedule.name,
        cron=schedule.cron,
        timezone=schedule.timezone,
        task=_template(schedule.submission),
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
        "task": _template(schedule.submission),
        "missed": schedule.missed,
        "missed_cap": schedule.missed_cap,
        "overlap": schedule.overlap,
        "jitter_seconds": schedule.jitter / SECOND,
        "start_at": maybe_iso(schedule.start),
        "end_at": maybe_iso(schedule.end),
    }


def _template(submission: Submission) -> TaskTemplate:
    word: PriorityWord | None = None if submission.priority is None else submission.priority.word  # type: ignore[assignment]
    return TaskTemplate(
        task_type=submission.type,
        priority=word,
        parameters=Raw(submission.parameters),
        required_capabilities=tuple(sorted(submission.requires)),
        timeout_seconds=None if submission.timeout is None else submission.timeout / SECOND,
        max_retries=submission.max_retries,
        max_crashes=submission.max_crashes,
        retry_policy=policy_of(submission.backoff),
        retry_rules=rules_shown(submission.retry_rules),
        queue=submission.queue,
        tenant=submission.tenant,
        tags=submission.tags,
        trace_id=submission.trace,
        concurrency_key=submission.concurrency_key,
    )
