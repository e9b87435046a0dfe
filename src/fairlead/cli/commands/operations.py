"""Operations: the options of commands on all tasks that match a query, and `operations`, how far they are."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from cyclopts import App, Parameter

from fairlead.admin.facade import Facade
from fairlead.admin.operations.api import OperationShown, operation_shown
from fairlead.app.requests import finish, whoami
from fairlead.cli import tables, task_json
from fairlead.cli.options import COMMON_WITH_STORE, PLAIN, CommonWithStore, SharedWithStore, reached, whole
from fairlead.cli.output import Cell, Column, complain, console, write, write_json, write_styled, write_table
from fairlead.cli.times import ago, parse
from fairlead.core.errors import InvalidTask
from fairlead.core.instant import Instant
from fairlead.core.operation import Action, NewOperation, Operation, Stage
from fairlead.core.query.parser import parse_query
from fairlead.core.query.query import Query
from fairlead.core.task import Priority
from fairlead.engine.runtime.inline import run_inline, sleep_inline
from fairlead.wire.text import iso

QueryOption: TypeAlias = Annotated[
    str | None,
    Parameter(
        name=["--query", "-q"],
        help="Which tasks, such as 'state:dead_letter error:Timeout created:>-1h -tag:eu'.",
        metavar="QUERY",
        allow_leading_hyphen=True,
    ),
]

Yes: TypeAlias = Annotated[bool, Parameter(help="Do not ask for confirmation.")]
Detach: TypeAlias = Annotated[bool, Parameter(help="Return at once: any running worker or server does the work.")]

_INTERRUPTED: Final = 130
_RATE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:/(s|m|h))?")
_PER: Final = {"s": 1.0, "m": 60.0, "h": 3_600.0}
_WARNING: Final = {
    Action.REPLAY: "They will be queued again.",
    Action.DISCARD: "They will be removed, and that cannot be undone.",
    Action.CANCEL: "Those that wait will not run, and those that run will be asked to stop.",
    Action.PRIORITIZE: "They keep the wait they have behind them.",
}
_PAST: Final = {
    Action.REPLAY: "replayed",
    Action.DISCARD: "discarded",
    Action.CANCEL: "cancelled",
    Action.PRIORITIZE: "prioritized",
}


@dataclass(frozen=True, kw_only=True)
class ByQuery:
    """The options of an action on all tasks that a query means."""

    query: QueryOption = None
    dry_run: Annotated[bool, Parameter(help="Only show how many tasks match, and some of them.")] = False
    max_rate: Annotated[
        str | None, Parameter(help="Act on at most so many tasks per second or minute: 50/s, 100/m.", metavar="N/s")
    ] = None
    canary: Annotated[
        int | None,
        Parameter(
            converter=whole,
            help="Act on so many first, then pause until `fairlead operations resume`.",
            metavar="N",
        ),
    ] = None
    as_of: Annotated[
        str | None,
        Parameter(
            help="Only tasks that matched at this moment, such as that of a dry run.",
            metavar="MOMENT",
            allow_leading_hyphen=True,
        ),
    ] = None
    expect: Annotated[
        int | None,
        Parameter(converter=whole, help="Do nothing unless exactly so many tasks match.", metavar="N"),
    ] = None
    yes: Yes = False
    detach: Detach = False

    def check(self, ids: tuple[str, ...]) -> bool:
        """Whether it is a query that names the tasks; raises InvalidTask if both or neither do."""
        if self.query is not None and ids:
            raise InvalidTask("id", "both ids and a query are given; use one of them, or id:… in the query")
        if self.query is None and not ids:
            raise InvalidTask("id", "no task is named; give the ids of one or more, or --query for all that it means")
        if self.query is None and replace(self, yes=False) != ByQuery():
            raise InvalidTask("query", "--dry-run, --max-rate and the like need --query; give it instead of ids")
        return self.query is not None


BY_QUERY: Final = ByQuery()
ByQueryOptions: TypeAlias = Annotated[ByQuery, Parameter(name="*")]


def operate(
    action: Action,
    options: ByQuery,
    common: SharedWithStore,
    *,
    narrowed: Callable[[Query], Query] = lambda query: query,
    priority: Priority | None = None,
    reset_retries: bool = True,
) -> int:
    """Do, or only show, what the options ask for; the exit code."""
    query = narrowed(parse_query(options.query or ""))
    rate = None if options.max_rate is None else _parse_rate(options.max_rate)
    with reached(common) as connection:
        engine = connection.inline()
        wish = NewOperation(
            action=action,
            query=query,
            as_of=None if options.as_of is None else parse("--as-of", options.as_of, engine.clock.now()),
            expected=options.expect,
            rate=rate,
            canary=options.canary,
            priority=priority,
            reset_retries=reset_retries,
            who=whoami(),
        )
        if options.dry_run:
            _preview(engine, wish, common)
            return 0
        # Who says how many it must be has seen them.
        if not options.yes and options.expect is None:
            confirmed = _confirmed(engine, wish)
            if confirmed is None:
                write("nothing was done")
                return 1
            wish = confirmed
        operation = run_inline(engine.operations.start(wish))
        if options.detach:
            _report(operation, common)
            return 0
        return follow(engine, operation, common)


def _confirmed(engine: Facade, wish: NewOperation) -> NewOperation | None:
    """The wish for exactly the tasks that a person was shown the number of; None if they are not meant."""
    if not sys.stdin.isatty():
        raise InvalidTask(
            "query",
            f"{wish.action} by a query may change many tasks, and there is no terminal to ask on; look with "
            f"--dry-run, then pass --yes, or --expect with their number",
        )
    preview = run_inline(engine.operations.preview(wish))
    least = "" if preview.exact else "at least "
    # On stderr: what a script reads from stdout is the answer alone.
    sys.stderr.write(
        f"{least}{preview.count:,} tasks match {wish.query}. {_WARNING[wish.action]}\n"
        f"Type {preview.count} to {wish.action} them: "
    )
    sys.stderr.flush()
    if sys.stdin.readline().strip().replace(",", "") != str(preview.count):
        return None
    return msgspec.structs.replace(
        wish, as_of=preview.as_of, expected=preview.count if preview.exact else wish.expected
    )


def follow(engine: Facade, operation: Operation, common: SharedWithStore) -> int:
    """Work on an operation, or watch who does, until it stops; the exit code. Ctrl-C pauses it."""
    try:
        with _bar(operation, shown=not common.json and sys.stderr.isatty()) as show:
            operation = run_inline(finish(engine.operations, operation, show, sleep_inline))
    except KeyboardInterrupt:
        operation = run_inline(engine.operations.pause(operation.id))
        complain(
            f"operation {operation.id} is paused after {operation.done:,} of {operation.expected:,}; go on with "
            f"`fairlead operations resume {operation.id}`, or end it with `fairlead operations cancel {operation.id}`",
            as_json=common.json,
        )
        return _INTERRUPTED
    _report(operation, common)
    return 1 if operation.failed or operation.stage is Stage.CANCELLED else 0


def progress_of(operation: Operation) -> str:
    """How far an operation is, in words."""
    least = "" if operation.exact else "at least "
    text = f"{_PAST[operation.action]} {operation.done:,} of {least}{operation.expected:,}"
    if operation.skipped:
        text += f", {operation.skipped:,} had changed"
    if operation.failed:
        text += f", {operation.failed:,} could not be changed"
    return text


def _report(operation: Operation, common: SharedWithStore) -> None:
    if common.json:
        write_json(operation_shown(operation))
        return
    write(f"operation {operation.id} {operation.stage}: {progress_of(operation)}")
    if operation.note:
        write(f"{operation.note}: fairlead operations resume {operation.id}")


def _preview(engine: Facade, wish: NewOperation, common: SharedWithStore) -> None:
    preview = run_inline(engine.operations.preview(wish))
    if common.json:
        sample = [task_json.brief(task, engine) for task in preview.sample]
        counted = {"as_of": iso(preview.as_of), "count": preview.count, "exact": preview.exact}
        write_json({"action": wish.action, **counted, "sample": sample})
        return
    write(f"would {wish.action} {'' if preview.exact else 'at least '}{preview.count:,} tasks that match {wish.query}")
    if preview.sample:
        tables.write_tasks(preview.sample, engine.clock.now())
    if preview.count > len(preview.sample):
        write(f"and {preview.count - len(preview.sample):,} more")
    if preview.count and preview.exact:
        write(f"for exactly these: --as-of {iso(preview.as_of)} --expect {preview.count}")


@contextlib.contextmanager
def _bar(operation: Operation, *, shown: bool) -> Iterator[Callable[[Operation], None]]:
    """A bar on the terminal."""
    if not shown:
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        bar = progress.add_task(f"{operation.action}, Ctrl-C pauses", total=operation.expected)
        yield lambda now: progress.update(bar, completed=now.done + now.skipped + now.failed)


def _parse_rate(text: str) -> float:
    found = _RATE.fullmatch(text.strip())
    if found is None:
        raise InvalidTask("rate", f"--max-rate {text!r} is not a rate; use a number, or 50/s, 100/m, 1000/h")
    return float(found[1]) / _PER[found[2] or "s"]


Id = Annotated[str, Parameter(name="ID", help="Id of the operation.")]

_STYLES = {
    Stage.PENDING: "cyan",
    Stage.RUNNING: "yellow",
    Stage.PAUSED: "bold yellow",
    Stage.CANCELLED: "dim",
    Stage.DONE: "green",
}

operations = App(
    name="operations",
    default_parameter=PLAIN,
    group_commands="Operations",
    help="""List, show, pause, resume and cancel operations: actions on many tasks at once.

    One begins with `fairlead dlq replay -q`, `fairlead dlq discard -q` or `fairlead cancel -q`. Any running worker
    or server carries it out, and it is listed until 30 days after its end.""",
)


def list_operations(*, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """List the operations, the newest first; with `--json`, one per line."""
    with reached(common) as connection:
        engine = connection.inline()
        kept, now = run_inline(engine.operations.all()), engine.clock.now()
    if common.json:
        for each in kept:
            write_json(_shape(each))
        return
    if not kept:
        write("no operations")
        return
    columns = [Column("ID"), Column("ACTION"), Column("STATE"), Column("DONE", right=True), Column("OF", right=True)]
    columns += [Column("BEGAN", right=True), Column("WHO", cut=True), Column("QUERY", cut=True)]
    write_table(columns, [_row(each, now) for each in kept])


def show(operation_id: Id, /, *, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Show an operation: what it does, its progress, and who started it."""
    with reached(common) as connection:
        engine = connection.inline()
        operation, now = run_inline(engine.operations.get(operation_id)), engine.clock.now()
    _write(operation, now, as_json=common.json)


def pause(operation_id: Id, /, *, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Pause an operation until it is resumed; the current batch is finished first."""
    with reached(common) as connection:
        engine = connection.inline()
        _write(run_inline(engine.operations.pause(operation_id)), engine.clock.now(), as_json=common.json)


def resume(
    operation_id: Id,
    /,
    *,
    detach: Detach = False,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> int:
    """Resume an operation where it stopped, also after its canary, and wait for its end. Ctrl-C pauses it."""
    with reached(common) as connection:
        engine = connection.inline()
        operation = run_inline(engine.operations.resume(operation_id))
        if not detach:
            return follow(engine, operation, common)
        _write(operation, engine.clock.now(), as_json=common.json)
        return 0


def cancel(operation_id: Id, /, *, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Cancel an operation; tasks that were changed stay changed."""
    with reached(common) as connection:
        engine = connection.inline()
        _write(run_inline(engine.operations.cancel(operation_id)), engine.clock.now(), as_json=common.json)


def _row(operation: Operation, now: Instant) -> list[Cell | str]:
    return [
        operation.id,
        operation.action,
        Cell(operation.stage, _STYLES[operation.stage]),
        f"{operation.done:,}",
        f"{operation.expected:,}",
        ago(operation.created_at, now),
        operation.who,
        operation.query,
    ]


def _write(operation: Operation, now: Instant, *, as_json: bool) -> None:
    if as_json:
        write_json(_shape(operation))
        return
    lines: dict[str, Any] = {
        "operation": operation.id,
        "action": operation.action,
        "query": operation.query,
        "progress": progress_of(operation),
        "rate": None if operation.rate is None else f"{operation.rate:g}/s",
        "canary": operation.canary,
        "tenant": operation.tenant,
        "note": operation.note or None,
        "who": operation.who or None,
        "as of": iso(operation.as_of),
    }
    write_styled([Cell(f"{'state':<10} ", "dim"), Cell(operation.stage, _STYLES[operation.stage])])
    for label, value in lines.items():
        if value is not None:
            write_styled([Cell(f"{label:<10} ", "dim"), Cell(str(value))])
    for label, at in (("began", operation.created_at), ("ended", operation.ended_at)):
        if at is not None:
            write_styled([Cell(f"{label:<10} ", "dim"), Cell(iso(at)), Cell(f"  {ago(at, now)}", "dim")])


def _shape(operation: Operation) -> OperationShown:
    return operation_shown(operation)


for _name, _command in {
    "list": list_operations,
    "show": show,
    "pause": pause,
    "resume": resume,
    "cancel": cancel,
}.items():
    # By its place, as the program has its own commands: only so does it know its name in the reference.
    operations.command(f"{__name__}:{_command.__name__}", name=_name)
    # Its first line of help is known only when it is loaded.
    operations[_name]
