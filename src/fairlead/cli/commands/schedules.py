"""`schedule`: tasks that are submitted again and again."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import App, Parameter
from msgspec.structs import replace

from fairlead.admin.schedules.api import previewed, shown
from fairlead.admin.schedules.service import Schedules
from fairlead.app.cron import schedule_of
from fairlead.app.task_type import template
from fairlead.cli.commands.submit import parameters_of
from fairlead.cli.options import COMMON_WITH_STORE, PLAIN, CommonWithStore, SharedWithStore, reached, whole, words
from fairlead.cli.output import Cell, Column, write, write_json, write_styled, write_table
from fairlead.cli.tables import write_document, write_field
from fairlead.cli.task_json import brief
from fairlead.cli.times import ago, check_seconds, moment, parse
from fairlead.core.cron import local, zone_of
from fairlead.core.errors import InvalidSchedule
from fairlead.core.instant import SECOND, Instant
from fairlead.core.schedule import Missed, Overlap, Schedule, ScheduleEntry
from fairlead.core.submission import Submission
from fairlead.engine.runtime.clock import SystemClock
from fairlead.engine.runtime.inline import run_inline
from fairlead.wire.text import iso

schedule = App(
    name="schedule",
    default_parameter=PLAIN,
    group_commands="Schedules",
    help="""Add, list, pause and run schedules, which submit tasks at set times (cron).

    Servers and workers fire schedules, any number of them at once; each fire time submits one task.""",
)

Name = Annotated[str, Parameter(name="NAME", help="Name of the schedule.")]
Timezone = Annotated[
    str | None, Parameter(help="Time zone of its fire times, such as Europe/Berlin; UTC by default.", metavar="ZONE")
]
Start = Annotated[str | None, Parameter(help="No fire time is before this moment.", metavar="MOMENT")]
End = Annotated[str | None, Parameter(help="No fire time is after this moment: 2027-01-01, or +30d.", metavar="MOMENT")]


def add(
    name: Name,
    cron: Annotated[
        str,
        Parameter(
            name="CRON",
            help="When: `*/5 * * * *`, six fields with the second first, `@daily`, or `every 30 seconds`.",
        ),
    ],
    task_type: Annotated[str, Parameter(name="TYPE", help="Type of the task.")],
    /,
    *pairs: Annotated[
        str,
        Parameter(
            name="PARAMETER",
            help="Parameters as key=value; a value that is valid JSON is read as JSON, any other as text.",
            metavar="KEY=VALUE",
        ),
    ],
    params: Annotated[str | None, Parameter(help="All parameters as one JSON object.", metavar="JSON")] = None,
    timezone: Timezone = None,
    missed: Annotated[
        str | None,
        Parameter(
            help="What becomes of fire times that passed while nothing ran: `skip`, `run_once` (default), `run_all`.",
            metavar="WORD",
        ),
    ] = None,
    missed_cap: Annotated[
        int | None,
        Parameter(converter=whole, help="How many of them `run_all` makes up for; 100 by default.", metavar="N"),
    ] = None,
    overlap: Annotated[
        str | None,
        Parameter(
            help="What becomes of a fire time while the task before has not ended: `allow` (default), `skip`, "
            "`replace`.",
            metavar="WORD",
        ),
    ] = None,
    jitter: Annotated[
        float | None, Parameter(help="Seconds by which a submit may come later, to spread the load.", metavar="S")
    ] = None,
    start: Start = None,
    end: End = None,
    priority: Annotated[str | None, Parameter(help="critical, high, medium or low.", metavar="WORD")] = None,
    queue: Annotated[str | None, Parameter(help="Queue to wait in.", metavar="NAME")] = None,
    timeout: Annotated[float | None, Parameter(help="Seconds that an attempt may take.", metavar="S")] = None,
    max_retries: Annotated[
        int | None, Parameter(converter=whole, help="How often a failure is tried again.", metavar="N")
    ] = None,
    requires: Annotated[str | None, Parameter(help="Capabilities that its worker must have.", metavar="A,B")] = None,
    tag: Annotated[tuple[str, ...], Parameter(help="A tag; may be given more than once.", metavar="NAME")] = (),
    paused: Annotated[bool, Parameter(help="Add it paused: it fires once it is resumed.")] = False,
    replaced: Annotated[
        bool, Parameter(name="--replace", help="Replace the schedule of this name; it stays paused if it is.")
    ] = False,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Add a schedule; it fires from its next fire time on."""
    task = {
        "priority": priority,
        "queue": queue,
        "timeout": check_seconds("--timeout", timeout),
        "max_retries": max_retries,
        "requires": words(requires) or None,
        "tags": tuple(each for several in tag for each in words(several)) or None,
    }
    submission = template(task_type, {option: value for option, value in task.items() if value is not None})
    submission = replace(submission, parameters=parameters_of(pairs, params))
    policies = {"missed": missed, "missed_cap": missed_cap, "overlap": overlap}
    wanted = _described(name, cron, submission, timezone, start, end, {**policies, "jitter": jitter})
    with reached(common, create=True) as connection:
        schedules = connection.inline().schedules
        if replaced:
            entry = run_inline(schedules.put(wanted, paused=True if paused else None)).entry
        else:
            entry = run_inline(schedules.add(wanted, paused=paused))
    _answer(entry, common, f"{name} is {_standing(entry, SystemClock().now())}")


def list_schedules(*, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """List the schedules by name."""
    with reached(common) as connection:
        engine = connection.inline()
        entries, now = run_inline(engine.schedules.all()), engine.clock.now()
        aside = 0 if common.json else run_inline(engine.stats()).quarantined.get("schedule", 0)
    if common.json:
        for entry in entries:
            write_json(shown(entry))
        return
    if aside:
        write_styled([Cell(f"{aside:,} cannot be read and do not fire; `fairlead quarantine list` shows them", "red")])
    if not entries:
        write("no schedules")
        return
    write_table(
        [Column("NAME"), Column("CRON"), Column("TIMEZONE", optional=True), Column("TYPE", cut=True), Column("NEXT"),
         Column("LAST"), Column("FIRED", right=True)],
        [
            [Cell(entry.name, "bold"), entry.schedule.cron, entry.schedule.timezone, entry.schedule.submission.type,
             _next(entry, now), _moment(entry.status.last_at, now), f"{entry.status.fired:,}"]
            for entry in entries
        ],
    )  # fmt: skip


def show(name: Name, /, *, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Show one schedule: its task, its policies and its state."""
    with reached(common) as connection:
        engine = connection.inline()
        entry, now = run_inline(engine.schedules.get(name)), engine.clock.now()
    if common.json:
        write_json(shown(entry))
    else:
        _write(entry, now)


def pause(name: Name, /, *, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Pause a schedule: it does not fire until it is resumed."""
    with reached(common) as connection:
        entry = run_inline(connection.inline().schedules.pause(name))
    _answer(entry, common, f"{name} is paused")


def resume(name: Name, /, *, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Resume a paused schedule; fire times that have passed are not made up for."""
    with reached(common) as connection:
        engine = connection.inline()
        entry = run_inline(engine.schedules.resume(name))
    _answer(entry, common, f"{name} is {_standing(entry, engine.clock.now())}")


def remove(name: Name, /, *, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Remove a schedule; its tasks stay. One that an app declares comes back when a worker of the app starts."""
    with reached(common) as connection:
        entry = run_inline(connection.inline().schedules.remove(name))
    _answer(entry, common, f"{name} is removed")


def run_now(name: Name, /, *, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Submit a schedule's task at once, paused or not; its fire times stay as they are."""
    with reached(common) as connection:
        engine = connection.inline()
        task = run_inline(engine.schedules.run_now(name))
        if common.json:
            write_json(brief(task, engine))
        else:
            write(f"{task.id} {task.state}")


def preview(
    name: Annotated[str | None, Parameter(name="NAME", help="Name of the schedule.")] = None,
    /,
    *,
    cron: Annotated[
        str | None, Parameter(help="A cron expression, instead of the name of a schedule.", metavar="CRON")
    ] = None,
    timezone: Timezone = None,
    start: Start = None,
    end: End = None,
    count: Annotated[
        int, Parameter(converter=whole, help="How many fire times, up to 1,000; 10 by default.", metavar="N")
    ] = 10,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Show the next fire times of a schedule, or of any cron expression with `--cron`."""
    if (name is None) == (cron is None):
        raise InvalidSchedule("cron", "preview needs a schedule's name, or --cron with an expression; give one of them")
    if name is None:
        wanted = _described("preview", cron or "", Submission(type="preview"), timezone, start, end, {})
        times = Schedules.foresee(wanted, count, after=SystemClock().now())
    else:
        with reached(common) as connection:
            engine = connection.inline()
            wanted = run_inline(engine.schedules.get(name)).schedule
            times = Schedules.foresee(wanted, count, after=engine.clock.now())
    if common.json:
        write_json(previewed(wanted, times))
        return
    for at in times:
        write(f"{local(at, zone_of(wanted.timezone)):%a %Y-%m-%d %H:%M:%S %z}  {iso(at)[:-8]}Z")
    if len(times) < count:
        write("and then never again" if times else "never")


def _described(
    name: str,
    cron: str,
    submission: Submission,
    timezone: str | None,
    start: str | None,
    end: str | None,
    more: dict[str, Any],
) -> Schedule:
    now = SystemClock().now()
    options = {
        "timezone": timezone,
        "start": None if start is None else moment(parse("--start", start, now)),
        "end": None if end is None else moment(parse("--end", end, now)),
        **more,
    }
    return schedule_of(name, cron, submission, options)


def _answer(entry: ScheduleEntry, common: SharedWithStore, said: str) -> None:
    if common.json:
        write_json(shown(entry))
    else:
        write(said)


def _standing(entry: ScheduleEntry, now: Instant) -> str:
    if entry.status.paused:
        return "paused"
    if entry.status.next_at is None:
        return "at its end"
    return f"to fire {ago(entry.status.next_at, now)}, at {iso(entry.status.next_at)}"


def _next(entry: ScheduleEntry, now: Instant) -> Cell:
    if entry.status.paused:
        return Cell("paused", "yellow")
    return Cell("ended", "dim") if entry.status.next_at is None else Cell(ago(entry.status.next_at, now))


def _moment(at: Instant | None, now: Instant) -> str:
    return "never" if at is None else ago(at, now)


def _write(entry: ScheduleEntry, now: Instant) -> None:
    wanted, status = entry.schedule, entry.status
    submission = wanted.submission
    write_field("schedule", Cell(wanted.name, "bold"))
    write_field("cron", Cell(wanted.cron), Cell(f"  {wanted.timezone}", "dim"))
    write_field("stands", Cell(_standing(entry, now), "yellow" if status.paused else ""))
    if status.failure is not None:
        write_field("failure", Cell(status.failure, "red"))
    write_field("fired", Cell(f"{status.fired:,}"), Cell(f"  last {_moment(status.last_at, now)}", "dim"))
    if status.last_task is not None:
        write_field("last task", Cell(status.last_task))
    cap = f", at most {wanted.missed_cap}" if wanted.missed is Missed.RUN_ALL else ""
    write_field("missed", Cell(f"{wanted.missed}{cap}"))
    write_field("overlap", Cell(wanted.overlap, "" if wanted.overlap is Overlap.ALLOW else "bold"))
    if wanted.jitter:
        write_field("jitter", Cell(f"{wanted.jitter / SECOND:g} s"))
    for label, at in (("start", wanted.start), ("end", wanted.end)):
        if at is not None:
            write_field(label, Cell(iso(at)))
    write()
    write_field("type", Cell(submission.type))
    write_field("queue", Cell(submission.queue))
    if submission.priority is not None:
        write_field("priority", Cell(submission.priority.word))
    for label, several in (("requires", sorted(submission.requires)), ("tags", submission.tags)):
        if several:
            write_field(label, Cell(", ".join(several)))
    write_document("parameters", submission.parameters)
    write_styled([Cell(f"see its tasks with: fairlead list --tag schedule:{wanted.name}", "dim")])


for _name, _command in {
    "add": add,
    "list": list_schedules,
    "show": show,
    "pause": pause,
    "resume": resume,
    "remove": remove,
    "run-now": run_now,
    "preview": preview,
}.items():
    # By its place, as the program has its own commands: only so does it know its name in the reference.
    schedule.command(f"{__name__}:{_command.__name__}", name=_name)
    # Its first line of help is known only when it is loaded.
    schedule[_name]
