"""`operations`: actions on many tasks, how far they are, and stopping them."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import App, Parameter

from fairlead.cli.moments import ago
from fairlead.cli.operating import follow, progress_of
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, reached
from fairlead.cli.output import Cell, Column, write, write_json, write_styled, write_table
from fairlead.core.instant import Instant
from fairlead.core.operation import Operation, Stage
from fairlead.engine.inline import run_inline
from fairlead.wire.moments import iso
from fairlead.wire.operations import OperationShown, operation_shown

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
    group_commands="Operations",
    help="""List, show, pause, resume and cancel actions on many tasks.

    One begins with `fairlead dlq replay -q`, `fairlead dlq discard -q` or `fairlead cancel -q`. Whichever worker or
    server runs works on it, and it is kept until 30 days after its end.""",
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
    """Show an operation: what it is, how far, and who began it."""
    with reached(common) as connection:
        engine = connection.inline()
        operation, now = run_inline(engine.operations.get(operation_id)), engine.clock.now()
    _write(operation, now, as_json=common.json)


def pause(operation_id: Id, /, *, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Stop an operation until it is resumed; the batch under way is still done."""
    with reached(common) as connection:
        engine = connection.inline()
        _write(run_inline(engine.operations.pause(operation_id)), engine.clock.now(), as_json=common.json)


def resume(
    operation_id: Id,
    /,
    *,
    detach: Annotated[bool, Parameter(help="Do not wait; whichever worker or server runs does it.")] = False,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> int:
    """Let an operation go on from where it was, also past its canary, and see it through. Ctrl-C pauses it."""
    with reached(common) as connection:
        engine = connection.inline()
        operation = run_inline(engine.operations.resume(operation_id))
        if not detach:
            return follow(engine, operation, common)
        _write(operation, engine.clock.now(), as_json=common.json)
        return 0


def cancel(operation_id: Id, /, *, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """End an operation; what is done stays done."""
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
