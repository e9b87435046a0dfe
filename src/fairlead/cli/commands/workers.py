"""`workers`: who works here, and how to pause one or have it leave; and `autoscale`: how many there should be."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, TypeAlias

from cyclopts import App, Parameter

from fairlead.admin.workers.api import RemoteWorkers, worker_shown, worker_whole
from fairlead.admin.workers.api import autoscale as autoscale_shown
from fairlead.admin.workers.service import Workers
from fairlead.cli import tables, task_json
from fairlead.cli.options import COMMON_WITH_STORE, PLAIN, CommonWithStore, reached, whole
from fairlead.cli.output import Cell, Column, complain, write, write_json, write_styled, write_table
from fairlead.cli.tables import STYLES, WORKER_STYLES
from fairlead.cli.times import ago, brief
from fairlead.core.errors import FairleadError, InvalidSettings, StoreError
from fairlead.core.health.autoscale import WITHIN
from fairlead.core.instant import SECOND, Instant
from fairlead.core.task import Task
from fairlead.core.validation import span_of
from fairlead.engine.runtime.inline import run_inline
from fairlead.engine.worker_records import WorkerRecord, WorkerState
from fairlead.engine.worker_tasks import LostTask, WorkerReport
from fairlead.wire.text import iso

"""By the word for how a worker stands."""

_Names: TypeAlias = Annotated[str, Parameter(name="WORKER", help="Ids or names of one or more workers.")]
_OnHost: TypeAlias = Annotated[str | None, Parameter(help="Do so with all workers on this host.", metavar="NAME")]

workers = App(
    name="workers",
    default_parameter=PLAIN,
    group_commands="Workers",
    help="""List, show, pause, drain and forget workers on any host.

    A worker without a heartbeat for one lease length is dead, and stays listed for an hour.""",
)


def list_workers(*, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """List the workers: state, host and load of each."""
    with reached(common) as connection:
        engine = connection.inline()
        found, now = run_inline(engine.workers.all()), engine.clock.now()
    if common.json:
        for worker in found:
            write_json(worker_shown(worker))
        return
    if not found:
        write("no workers")
        return
    columns = [Column("ID"), Column("STATE"), Column("RUNNING", right=True), Column("QUEUES", cut=True)]
    columns += [Column("CAPABILITIES", cut=True, optional=True), Column("HOST", cut=True, optional=True)]
    columns += [Column("VERSION", optional=True), Column("SINCE"), Column("SEEN")]
    write_table(columns, [_row(worker, now) for worker in found])


def show(
    worker: Annotated[str, Parameter(name="WORKER", help="Its id, or its name if no other has it.")],
    /,
    *,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Show a worker, the tasks that it runs, and what became of the tasks that it lost."""
    with reached(common) as connection:
        engine = connection.inline()
        report, now = run_inline(engine.workers.get(worker)), engine.clock.now()
    if common.json:
        write_json(worker_whole(report, lambda task: task_json.brief(task, engine)))
    else:
        _write_report(report, now)


def pause(
    *names: _Names,
    on_host: _OnHost = None,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> int:
    """Pause workers: they finish what they run and claim no more tasks, until they are resumed.

    This takes effect within a second. A worker that leaves, or is started again, is paused no longer.
    """
    return _ask(names, on_host, lambda fleet, name: fleet.pause(name), _paused, common)


def resume(
    *names: _Names,
    on_host: _OnHost = None,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> int:
    """Let paused workers claim tasks again."""
    return _ask(names, on_host, lambda fleet, name: fleet.resume(name), _resumed, common)


def drain(
    *names: _Names,
    on_host: _OnHost = None,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> int:
    """Drain workers: they claim no more tasks, and stop when their running tasks have ended.

    They learn of it at their next heartbeat: within ten seconds, unless that is configured otherwise.
    """
    return _ask(names, on_host, lambda fleet, name: fleet.drain(name), _drained, common)


def _ask(
    names: Sequence[str],
    on_host: str | None,
    ask: Callable[[Workers | RemoteWorkers, str], Coroutine[Any, Any, WorkerRecord]],
    tell: Callable[[WorkerRecord], str],
    common: CommonWithStore,
) -> int:
    """Ask something of workers by their names, and of all that live on a host."""
    if not names and on_host is None:
        raise InvalidSettings("no worker is named; give the ids of one or more, or --on-host")
    asked: list[WorkerRecord] = []
    refused: dict[str, str] = {}
    with reached(common) as connection:
        workers = connection.inline().workers
        there = run_inline(workers.all()) if on_host is not None else []
        alive = [each.id for each in there if each.host == on_host and each.state is not WorkerState.DEAD]
        if on_host is not None and not alive:
            refused[on_host] = f"no worker runs on the host {on_host!r}; `fairlead workers list` shows where they are"
        for name in dict.fromkeys((*names, *alive)):
            try:
                asked.append(run_inline(ask(workers, name)))
            except StoreError:
                raise
            except FairleadError as error:
                refused[name] = str(error)
    if common.json:
        errors = [{"worker": name, "error": reason} for name, reason in refused.items()]
        write_json({"workers": [worker_shown(worker) for worker in asked], "errors": errors})
    else:
        for worker in asked:
            write(tell(worker))
        for reason in refused.values():
            complain(reason, as_json=False)
    return 1 if refused else 0


def forget(
    worker: Annotated[str, Parameter(name="WORKER", help="Its id, or its name if no other has it.")],
    /,
    *,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Take a dead worker off the list at once, instead of an hour after its last heartbeat."""
    with reached(common) as connection:
        forgotten = run_inline(connection.inline().workers.forget(worker))
    if common.json:
        write_json(worker_shown(forgotten))
    else:
        write(f"{forgotten.id} is forgotten")


def _paused(worker: WorkerRecord) -> str:
    return f"{worker.id} is paused; it ran {worker.running} tasks at its last heartbeat, and finishes them"


def _resumed(worker: WorkerRecord) -> str:
    return f"{worker.id} is not paused any more"


def _drained(worker: WorkerRecord) -> str:
    if worker.state is WorkerState.DEAD:
        return f"{worker.id} is dead already; its tasks run elsewhere once their leases have ended"
    return f"drain of {worker.id} requested; it ran {worker.running} tasks at its last heartbeat"


def _row(worker: WorkerRecord, now: Instant) -> list[Cell | str]:
    return [
        Cell(worker.id, "bold"),
        Cell(worker.word, WORKER_STYLES[worker.word]),
        _slots(worker),
        ",".join(worker.queues),
        ",".join(worker.capabilities) or "-",
        worker.host or "-",
        worker.version or "-",
        ago(worker.since, now),
        ago(worker.seen_at, now),
    ]


def _slots(worker: WorkerRecord) -> str:
    """How many slots are used of how many, by kind where there are several."""
    if len(worker.slots) < 2:
        return f"{worker.running}/{worker.capacity}"
    return " ".join(f"{each.kind} {each.running}/{each.capacity}" for each in worker.slots)


def _write_report(report: WorkerReport, now: Instant) -> None:
    worker = report.worker
    _field("worker", worker.id, "bold")
    if worker.name != worker.id:
        _field("name", worker.name)
    _field("state", worker.word, WORKER_STYLES[worker.word])
    if worker.paused and worker.state is not WorkerState.ACTIVE:
        _field("", "paused", "yellow")
    if report.drain_asked and worker.state is WorkerState.ACTIVE:
        _field("", "drain requested", "yellow")
    _field("host", f"{worker.host or '-'}{f', process {worker.pid}' if worker.pid else ''}")
    _field("version", worker.version or "-")
    _field("queues", ", ".join(worker.queues))
    _field("can do", ", ".join(worker.capabilities) or "-")
    _field("types", "any" if worker.types is None else ", ".join(worker.types))
    by_kind = ", ".join(f"{each.kind} {each.running} of {each.capacity}" for each in worker.slots)
    _field("running", f"{worker.running} of {worker.capacity}" + (by_kind and f" ({by_kind})"))
    _field("last min", f"{worker.completed:,} completed, {worker.failed:,} failed")
    _field("since", f"{iso(worker.since)}  {ago(worker.since, now)}")
    _field("seen", f"{iso(worker.seen_at)}  {ago(worker.seen_at, now)}")
    if report.running:
        dead = worker.state is WorkerState.DEAD
        write()
        write("it still holds these tasks, until their leases end:" if dead else "it runs:")
        columns = [Column("ID"), Column("TYPE", cut=True), Column("QUEUE", cut=True), Column("RUNS FOR", right=True)]
        write_table([*columns, Column("LEASE ENDS")], [_running(task, now) for task in report.running])
    if report.lost:
        write()
        write(f"{report.lost_count:,} tasks were taken from it because their leases ended; they are now:")
        columns = [Column("ID"), Column("TAKEN"), Column("STATE"), Column("REASON"), Column("WORKER", cut=True)]
        write_table(columns, [_lost(lost, now) for lost in report.lost])


def _running(task: Task, now: Instant) -> list[Cell | str]:
    lease, started = task.status.lease, task.status.started_at
    return [
        task.id,
        task.spec.type,
        task.spec.queue,
        "-" if started is None else brief(now - started),
        "-" if lease is None else ago(lease.until, now),
    ]


def _lost(lost: LostTask, now: Instant) -> list[Cell | str]:
    task = lost.task
    if task is None:
        return [lost.id, ago(lost.at, now), Cell("removed", "dim"), "-", "-"]
    holder = task.status.lease.worker if task.status.lease else "-"
    return [
        lost.id,
        ago(lost.at, now),
        Cell(task.state, STYLES[task.state]),
        task.status.reason,
        holder,
    ]


def _field(label: str, text: str, style: str = "") -> None:
    write_styled([Cell(f"{label:<10} ", "dim"), Cell(text, style)])


for _name, _command in (
    ("list", list_workers),
    ("show", show),
    ("pause", pause),
    ("resume", resume),
    ("drain", drain),
    ("forget", forget),
):
    # By its place, as the program has its own commands: only so does it know its name in the reference.
    workers.command(f"{__name__}:{_command.__name__}", name=_name)
    # Its first line of help is known only when it is loaded.
    workers[_name]


def autoscale(
    *,
    queue: Annotated[
        str | None, Parameter(help="The queue that the workers serve; all by default.", metavar="NAME")
    ] = None,
    within_seconds: Annotated[
        float | None, Parameter(help="How soon the backlog should be done; 60 by default.", metavar="S")
    ] = None,
    capacity: Annotated[
        int | None,
        Parameter(
            converter=whole,
            help="Tasks that a worker runs at once; by default, as many as the current workers.",
            metavar="N",
        ),
    ] = None,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Show the backlog, and suggest a number of workers."""
    within = WITHIN if within_seconds is None else span_of("--within-seconds", within_seconds)
    with reached(common) as connection:
        scaling = run_inline(connection.inline().autoscale(queue, within=within, capacity=capacity))
    if common.json:
        write_json(autoscale_shown(scaling))
        return
    load, advice = scaling.load, scaling.advice
    takes = advice.seconds_per_task
    tables.write_field("workers", Cell(f"{advice.workers} suggested, {load.workers} there"))
    tables.write_field("tasks", Cell(f"{load.ready:,} ready, {load.executing:,} executing"))
    tables.write_field("oldest", Cell(f"ready for {brief(load.oldest_age)}"))
    tables.write_field(
        "backlog",
        Cell(
            "not known: no task has ended within a minute"
            if takes is None
            else f"{advice.backlog_seconds or 0:,.1f} s of work, at {brief(round(takes * SECOND))} a task"
        ),
    )
    tables.write_field("capacity", Cell(f"{advice.capacity:g} tasks at once per worker"))
