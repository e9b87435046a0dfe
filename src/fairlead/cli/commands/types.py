"""`types`: task types as workers have published them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from fairlead.admin.types.api import type_shown
from fairlead.cli.options import COMMON_WITH_STORE, PLAIN, CommonWithStore, reached
from fairlead.cli.output import Cell, Column, pretty, write, write_json, write_table
from fairlead.cli.times import ago
from fairlead.core.submission import Declaration
from fairlead.engine.runtime.inline import run_inline

TaskType = Annotated[str, Parameter(name="TYPE", help="The task type.")]

types = App(
    name="types",
    default_parameter=PLAIN,
    group_commands="Task types",
    help="""List and show the task types that workers have published.

    Workers publish the types that they handle when they start. `fairlead submit`, submits over HTTP and those by name
    get the options that are published, unless they say otherwise.""",
)


def list_types(*, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """List the published task types and their options."""
    with reached(common) as connection:
        engine = connection.inline()
        known, now = run_inline(engine.types.all()), engine.clock.now()
    if common.json:
        write_json({"types": [type_shown(each) for each in known]})
        return
    if not known:
        write("no task types are published: a worker publishes those that it handles when it starts")
        return
    columns = [Column("TYPE", cut=True), Column("QUEUE"), Column("OPTIONS", cut=True), Column("PUBLISHED")]
    write_table(
        columns,
        [
            [
                Cell(each.submission.type, "bold"),
                each.submission.queue,
                ", ".join(f"{name}={value}" for name, value in _options(each).items()) or "-",
                Cell(f"{ago(each.at, now)} by {each.worker or '-'}", "dim"),
            ]
            for each in known
        ],
    )


def show(task_type: TaskType, /, *, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Show a published task type: its options, and the JSON schema of its parameters."""
    with reached(common) as connection:
        engine = connection.inline()
        declaration, now = run_inline(engine.types.get(task_type)), engine.clock.now()
    if common.json:
        write_json(type_shown(declaration))
        return
    write(f"{task_type}, published {ago(declaration.at, now)} by {declaration.worker or '-'}")
    write(f"queue: {declaration.submission.queue}")
    for name, value in _options(declaration).items():
        write(f"{name}: {value}")
    for name in declaration.computed:
        write(f"{name}: made of a call's arguments; a submit by name has to say it itself")
    write(f"parameters:\n{pretty(declaration.schema)}" if declaration.schema else "parameters: no schema is known")


def remove(task_type: TaskType, /, *, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Remove a published task type: submits by name get the defaults, until a worker publishes it again."""
    with reached(common) as connection:
        declaration = run_inline(connection.inline().types.remove(task_type))
    if common.json:
        write_json(type_shown(declaration))
        return
    write(f"task type {task_type} is not published any more")


def _options(declaration: Declaration) -> dict[str, str]:
    """What is said of the options, beside the queue."""
    said = msgspec.json.decode(msgspec.json.encode(type_shown(declaration).options))
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in said.items()
        if name not in {"task_type", "parameters", "queue"}
    }


for _name, _command in (("list", list_types), ("show", show), ("remove", remove)):
    # By its place, as the program has its own commands: only so does it know its name in the reference.
    types.command(f"{__name__}:{_command.__name__}", name=_name)
    # Its first line of help is known only when it is loaded.
    types[_name]
