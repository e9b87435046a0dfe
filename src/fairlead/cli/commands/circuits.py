"""`circuits`: task types that stop being claimed while they keep failing."""

from __future__ import annotations

from typing import Annotated, Final

from cyclopts import App, Parameter
from msgspec.structs import replace

from fairlead.cli.moments import ago, check_seconds
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, reached
from fairlead.cli.output import Cell, Column, write, write_json, write_table
from fairlead.core.circuit import Circuit, CircuitSettings, CircuitState
from fairlead.core.identity import check_name
from fairlead.core.instant import SECOND, Instant, span
from fairlead.engine.facade import Facade
from fairlead.engine.inline import run_inline
from fairlead.wire.circuits import circuit_shown, circuits_shown

STYLES: Final = {CircuitState.CLOSED: "green", CircuitState.OPEN: "bold red", CircuitState.HALF_OPEN: "yellow"}

TaskType = Annotated[str, Parameter(name="TYPE", help="The task type.")]

circuits = App(
    name="circuits",
    group_commands="Circuits",
    help="""List, set, open and close the circuits of task types.

    While the circuit of a type is open its tasks wait; a change counts within a second.""",
)


def list_circuits(*, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """List the circuits, and how they stand."""
    with reached(common) as connection:
        engine = connection.inline()
        known, now = run_inline(engine.circuits.all()), engine.clock.now()
    if common.json:
        write_json({"circuits": circuits_shown(known, now)})
        return
    if not known:
        write("no circuits: give a task type one with `fairlead circuits set`")
        return
    columns = [Column("TYPE", cut=True), Column("STATE"), Column("FAILED", right=True), Column("NEXT"), Column("OPENS")]
    write_table(columns, [_row(name, circuit, now) for name, circuit in sorted(known.items())])


def change(
    task_type: TaskType,
    /,
    *,
    failure_ratio: Annotated[
        float | None, Parameter(help="Which share of failures opens it, such as 0.5.", metavar="SHARE")
    ] = None,
    window: Annotated[float | None, Parameter(help="Over how long outcomes are counted.", metavar="SECONDS")] = None,
    min_outcomes: Annotated[
        int | None, Parameter(help="On how few outcomes it never opens, such as 20.", metavar="N")
    ] = None,
    open_for: Annotated[
        float | None, Parameter(help="How long tasks wait before some are tried.", metavar="SECONDS")
    ] = None,
    probes: Annotated[int | None, Parameter(help="How many are tried then; all must pass.", metavar="N")] = None,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Give a task type a circuit, or its circuit other settings. What is not said stays, or is at its default."""
    check_name("task_type", task_type)
    given = {
        "failure_ratio": failure_ratio,
        "window": None if window is None else span(check_seconds("--window", window) or 0.0),
        "min_outcomes": min_outcomes,
        "open_for": None if open_for is None else span(check_seconds("--open-for", open_for) or 0.0),
        "probes": probes,
    }
    said = {name: value for name, value in given.items() if value is not None}
    replace(CircuitSettings(), **said)
    with reached(common, create=True) as connection:
        engine = connection.inline()
        known = run_inline(engine.circuits.find(task_type))
        settings = replace(CircuitSettings() if known is None else known.settings, **said)
        _report(engine, task_type, run_inline(engine.circuits.set(task_type, settings)), common)


def remove(task_type: TaskType, /, *, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Take a task type's circuit away, so that its tasks are claimed whatever becomes of them."""
    with reached(common) as connection:
        engine = connection.inline()
        circuit = run_inline(engine.circuits.remove(task_type))
        if common.json:
            write_json(circuit_shown(task_type, circuit, engine.clock.now()))
            return
    write(f"task type {task_type} has no circuit any more")


def open_circuit(task_type: TaskType, /, *, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Open a circuit by hand: the type's tasks wait, and some are tried after the usual time. What runs goes on."""
    with reached(common) as connection:
        engine = connection.inline()
        _report(engine, task_type, run_inline(engine.circuits.open(task_type)), common)


def close_circuit(task_type: TaskType, /, *, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Close a circuit by hand: the type's tasks are claimed again, and what was counted is forgotten."""
    with reached(common) as connection:
        engine = connection.inline()
        _report(engine, task_type, run_inline(engine.circuits.close(task_type)), common)


def described(task_type: str, circuit: Circuit, now: Instant) -> str:
    """A circuit that is not closed, in a few words."""
    if circuit.state is CircuitState.OPEN and circuit.status.until is not None:
        return f"{task_type} is open, tried again {ago(circuit.status.until, now)}"
    return f"{task_type} is {_word(circuit.state)}"


def _report(engine: Facade, task_type: str, circuit: Circuit, common: CommonWithStore) -> None:
    now = engine.clock.now()
    if common.json:
        write_json(circuit_shown(task_type, circuit, now))
    else:
        write(f"the circuit of {described(task_type, circuit, now)}; it opens {_opens(circuit.settings)}")


def _row(task_type: str, circuit: Circuit, now: Instant) -> list[Cell | str]:
    outcomes, failures = circuit.tally(now)
    status = circuit.status
    following = "-"
    if status.until is not None:
        following = f"tried again {ago(status.until, now)}"
    elif circuit.state is CircuitState.HALF_OPEN:
        following = f"{status.passed} of {circuit.settings.probes} passed"
    return [
        Cell(task_type, "bold"),
        Cell(_word(circuit.state), STYLES[circuit.state]),
        f"{failures:,} of {outcomes:,}",
        following,
        Cell(_opens(circuit.settings), "dim"),
    ]


def _opens(settings: CircuitSettings) -> str:
    share = f"{settings.failure_ratio:.0%} of at least {settings.min_outcomes:,}"
    return f"at {share} in {settings.window / SECOND:g} s, for {settings.open_for / SECOND:g} s"


def _word(state: CircuitState) -> str:
    return state.value.replace("_", "-")


for _name, _command in (
    ("list", list_circuits),
    ("set", change),
    ("open", open_circuit),
    ("close", close_circuit),
    ("remove", remove),
):
    # By its place, as the program has its own commands: only so does it know its name in the reference.
    circuits.command(f"{__name__}:{_command.__name__}", name=_name)
    # Its first line of help is known only when it is loaded.
    circuits[_name]
