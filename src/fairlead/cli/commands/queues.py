"""`queues`: what can be said of a queue while everything runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, cast

from cyclopts import App, Parameter

from fairlead.admin.facade import Facade
from fairlead.admin.queues.api import queue_shown
from fairlead.admin.tenants.api import tenants_shown
from fairlead.cli.commands.operations import Yes
from fairlead.cli.options import COMMON_WITH_STORE, PLAIN, CommonWithStore, reached
from fairlead.cli.output import Cell, Column, write, write_json, write_styled, write_table
from fairlead.cli.setting_options import DEFAULT, labelled, option_texts, parsed
from fairlead.cli.tables import circuit_in_words
from fairlead.cli.times import brief
from fairlead.core.circuit import CircuitState
from fairlead.core.errors import InvalidSettings
from fairlead.core.identity import check_name
from fairlead.core.queues.queue import QueueOptions, QueueSettings, changed
from fairlead.core.task import WAITING, State
from fairlead.engine.fair_keys import QueueShares
from fairlead.engine.runtime.inline import run_inline
from fairlead.engine.stats import QueueStats, Stats

Name = Annotated[str, Parameter(name="QUEUE", help="Its name.")]

if TYPE_CHECKING:
    Options: TypeAlias = Any
else:
    Options = Annotated[option_texts(QueueSettings), Parameter(name="*")]

_NONE: Final[Any] = option_texts(QueueSettings)()


def change(
    queue: Name,
    /,
    *,
    texts: Options = _NONE,
    reset: Annotated[bool, Parameter(help="First remove all of the queue's own settings.")] = False,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Change a queue's bound, its order of service, its limits, the defaults of its tasks, or its tenant.

    The value `default` removes the queue's own setting, so that the one for all queues applies.
    """
    options = cast(QueueOptions, parsed(QueueSettings, texts))
    if not options and not reset:
        raise InvalidSettings("nothing is to be changed; say what with --bound, --order, --priority, … or --reset")
    changed(QueueSettings(), options)
    with reached(common, create=True) as connection:
        engine = connection.inline()
        if reset:
            run_inline(engine.queues.reset(queue))
        own = run_inline(engine.queues.change(queue, **options))
    if common.json:
        write_json(queue_shown(queue, own))
        return
    said = in_short(own)
    write(f"queue {queue} has {said}" if said else f"queue {queue} has the settings of all")


def in_short(own: QueueSettings) -> str:
    """What is said of a queue alone, on one line."""
    return ", ".join(f"{label} {value}" for label, value in labelled(own).items() if value != DEFAULT)


queues = App(
    name="queues",
    default_parameter=PLAIN,
    group_commands="Queues",
    help="""List, pause, resume, change and purge queues.

    A change applies within a second, in every worker and server of the store.""",
)


def list_queues(*, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """List the queues that have tasks or settings of their own, and the task types that are paused."""
    with reached(common) as connection:
        engine = connection.inline()
        own, stats = run_inline(engine.queues.all()), run_inline(engine.stats())
        paused_types = run_inline(engine.queues.paused_types())
    names = sorted({*own, *stats.queues})
    if common.json:
        shown = [queue_shown(name, own.get(name, QueueSettings()), stats.queues.get(name)) for name in names]
        write_json({"queues": shown, "paused_types": paused_types})
        return
    if not names:
        write("no queues: none has tasks or settings of its own")
    else:
        columns = [Column("QUEUE", cut=True), Column("STATE"), Column("READY", right=True)]
        columns += [Column("SCHEDULED", right=True), Column("RUNNING", right=True), Column("SETTINGS", cut=True)]
        write_table(columns, [_row(name, own.get(name, QueueSettings()), stats) for name in names])
    if paused_types:
        write_styled([Cell(f"paused task types: {', '.join(paused_types)}", "yellow")])


def show(queue: Name, /, *, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Show a queue: whether it is paused, its tasks and its own settings."""
    with reached(common) as connection:
        engine = connection.inline()
        own = run_inline(engine.queues.get(queue))
        stood, now = run_inline(engine.stats()), engine.clock.now()
        stats = stood.queues.get(queue)
        paused_types = run_inline(engine.queues.paused_types())
    if common.json:
        write_json(queue_shown(queue, own, stats))
        return
    _field("queue", queue, "bold")
    _field("state", *_state(own, stats))
    if stats is not None and stats.unreadable:
        _field("", f"its settings cannot be read; `fairlead quarantine show queue/{queue}` says what to do", "red")
    counts = {} if stats is None else {state: count for state, count in stats.states.items() if count}
    _field("tasks", ", ".join(f"{count:,} {state}" for state, count in counts.items()) or "none")
    held = [] if stats is None else [task_type for task_type in paused_types if stats.types.get(task_type)]
    if held:
        _field("", f"of paused types: {', '.join(held)}", "yellow")
    for task_type, circuit in sorted(stood.circuits.items()):
        if circuit.state is not CircuitState.CLOSED and stats is not None and stats.types.get(task_type):
            _field("", f"circuit breaker of {circuit_in_words(task_type, circuit, now)}", "yellow")
    if stats is not None and stats.running:
        _field("running", ", ".join(f"{count:,} {task_type}" for task_type, count in sorted(stats.running.items())))
    for label, value in labelled(own).items():
        _field(label, value)


def pause(
    queue: Annotated[str | None, Parameter(name="QUEUE", help="Its name.")] = None,
    /,
    *,
    task_type: Annotated[
        str | None, Parameter(name="--type", help="Pause this task type instead, in every queue.", metavar="NAME")
    ] = None,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Pause a queue, or a task type: its tasks wait until it is resumed.

    It still accepts tasks, and running tasks continue.
    """
    _hold(queue, task_type, common, paused=True)


def resume(
    queue: Annotated[str | None, Parameter(name="QUEUE", help="Its name.")] = None,
    /,
    *,
    task_type: Annotated[
        str | None, Parameter(name="--type", help="Resume this task type instead.", metavar="NAME")
    ] = None,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Resume a paused queue, or a paused task type: its tasks run again."""
    _hold(queue, task_type, common, paused=False)


def purge(
    queue: Name,
    /,
    *,
    yes: Yes = False,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> int:
    """Delete the tasks that wait in a queue for good. Running tasks continue."""
    check_name("queue", queue)
    with reached(common) as connection:
        engine = connection.inline()
        if not yes and not _confirmed(engine, queue):
            write("nothing was removed")
            return 1
        done = run_inline(engine.queues.purge(queue))
    if common.json:
        write_json({"queue": queue, "scheduled": done.scheduled, "queued": done.queued})
    else:
        write(
            f"{done.total:,} tasks of queue {queue} are removed: {done.queued:,} queued, {done.scheduled:,} scheduled"
        )
    return 0


def _confirmed(engine: Facade, queue: str) -> bool:
    if not sys.stdin.isatty():
        raise InvalidSettings(f"a purge of {queue!r} cannot be undone, and there is no terminal to ask on; pass --yes")
    stats = run_inline(engine.stats()).queues.get(queue)
    waiting = 0 if stats is None else sum(stats.states[state] for state in WAITING)
    # On stderr: what a script reads from stdout is the answer alone.
    sys.stderr.write(
        f"{waiting:,} tasks wait in queue {queue}. They will be removed, and that cannot be undone.\n"
        f"Type the queue's name to remove them: "
    )
    sys.stderr.flush()
    return sys.stdin.readline().strip() == queue


def _hold(queue: str | None, task_type: str | None, common: CommonWithStore, *, paused: bool) -> None:
    if (queue is None) == (task_type is None):
        raise InvalidSettings("name either a queue or a task type with --type, and not both")
    with reached(common, create=True) as connection:
        desk = connection.inline().queues
        if task_type is not None:
            run_inline(desk.pause_type(task_type) if paused else desk.resume_type(task_type))
        elif queue is not None:
            run_inline(desk.pause(queue) if paused else desk.resume(queue))
    what = {"queue": queue} if queue is not None else {"task_type": task_type}
    if common.json:
        write_json({**what, "paused": paused})
        return
    name = f"queue {queue}" if queue is not None else f"task type {task_type}"
    write(f"{name} is paused; running tasks continue" if paused else f"{name} is resumed")


def _row(name: str, own: QueueSettings, stats: Stats) -> list[Cell | str]:
    queue: QueueStats | None = stats.queues.get(name)
    counts = {} if queue is None else queue.states
    said = in_short(own)
    word, style = _state(own, queue)
    return [
        Cell(name, "bold"),
        Cell(word, style),
        *(f"{counts.get(state, 0):,}" for state in (State.QUEUED, State.SCHEDULED, State.EXECUTING)),
        Cell(said or "-", "" if said else "dim"),
    ]


def _state(own: QueueSettings, stats: QueueStats | None) -> tuple[str, str]:
    if stats is not None and stats.unreadable:
        return "unreadable", "red"
    return ("paused", "yellow") if own.paused else ("open", "green")


def _field(label: str, text: str, style: str = "") -> None:
    write_styled([Cell(f"{label:<10} ", "dim"), Cell(text, style)])


def tenants(
    queue: Annotated[str | None, Parameter(name="QUEUE", help="Only this queue.")] = None,
    /,
    *,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Show who shares queues by fair keys, such as tenants: what waits and runs of each, and its part of the turns.

    Of each queue the 50 keys are shown of which most tasks wait. A key is a noisy neighbour if nearly all that waits is
    its own, while others wait, too.
    """
    with reached(common) as connection:
        found = run_inline(connection.inline().tenants.all(queue))
    if common.json:
        write_json(tenants_shown(found))
        return
    if not found:
        write("no queue is shared: `fairlead queues set QUEUE --fair tenant` has tenants take turns")
        return
    columns = [Column("QUEUE", cut=True), Column("KEY", cut=True), Column("WAITING", right=True)]
    columns += [Column("RUNNING", right=True), Column("WEIGHT", right=True), Column("TURNS", right=True)]
    columns += [Column("OLDEST", right=True), Column("")]
    write_table(columns, [row for each in found for row in _share_rows(each)])


def _share_rows(shared: QueueShares) -> Iterator[list[Cell | str]]:
    for share in shared.shares:
        yield [
            shared.queue,
            Cell(share.key, "bold"),
            f"{share.waiting:,}",
            f"{share.executing:,}",
            f"{share.weight:g}",
            "-" if share.part is None else f"{share.part:.0%}",
            "-" if share.oldest_age is None else brief(share.oldest_age),
            Cell("noisy", "yellow") if share.noisy else "",
        ]
    if shared.others:
        yield [shared.queue, Cell("all others", "dim"), f"{shared.others:,}", "", "", "", "", ""]


for _name, _command in (
    ("list", list_queues),
    ("show", show),
    ("tenants", tenants),
    ("pause", pause),
    ("resume", resume),
    ("set", change),
    ("purge", purge),
):
    # By its place, as the program has its own commands: only so does it know its name in the reference.
    queues.command(f"{_command.__module__}:{_command.__name__}", name=_name)
    # Its first line of help is known only when it is loaded.
    queues[_name]
