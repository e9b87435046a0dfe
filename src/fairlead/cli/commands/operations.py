"""`operations`: actions on many tasks, how far they are, and stopping them."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import App, Parameter

from fairlead.admin.operations.api import OperationShown, operation_shown
from fairlead.cli.commands.tasks.bulk_options import Detach, follow, progress_of
from fairlead.cli.options import COMMON_WITH_STORE, PLAIN, CommonWithStore, reached
from fairlead.cli.output import Cell, Column, write, write_json, write_styled, write_table
from fairlead.cli.times import ago
from fairlead.core.instant import Instant
from fairlead.core.operation import Operation, Stage
from fairlead.engine.runtime.inline import run_inline
from fairlead.wire.times import iso

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
