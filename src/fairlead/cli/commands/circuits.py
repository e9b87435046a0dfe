"""`circuits`: task types that stop being claimed while they keep failing."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter
from msgspec.structs import replace

from fairlead.admin.circuits.api import circuit_shown, circuits_shown
from fairlead.admin.facade import Facade
from fairlead.cli.options import COMMON_WITH_STORE, PLAIN, CommonWithStore, reached, whole
from fairlead.cli.output import Cell, Column, write, write_json, write_table
from fairlead.cli.tables import CIRCUIT_STYLES, circuit_in_words, circuit_word
from fairlead.cli.times import ago
from fairlead.core.circuit import Circuit, CircuitSettings, CircuitState
from fairlead.core.identity import check_name
from fairlead.core.instant import SECOND, Instant
from fairlead.core.validation import span_of
from fairlead.engine.runtime.inline import run_inline

TaskType = Annotated[str, Parameter(name="TYPE", help="The task type.")]

circuits = App(
    name="circuits",
    default_parameter=PLAIN,
    group_commands="Circuits",
    help="""List, set, open and close the circuit breakers of task types.

    While the circuit breaker of a type is open, its tasks wait; a change applies within a second.""",
)


def list_circuits(*, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """List the circuit breakers and their states."""
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
        float | None, Parameter(help="The share of failures that opens it, such as 0.5.", metavar="SHARE")
    ] = None,
    window: Annotated[float | None, Parameter(help="Over how long outcomes are counted.", metavar="SECONDS")] = None,
    min_outcomes: Annotated[
        int | None,
        Parameter(converter=whole, help="It never opens on fewer outcomes than this, such as 20.", metavar="N"),
    ] = None,
    open_for: Annotated[
        float | None, Parameter(help="How long tasks wait before some are tried again.", metavar="SECONDS")
    ] = None,
    probes: Annotated[
        int | None, Parameter(converter=whole, help="How many are tried then; all must pass.", metavar="N")
    ] = None,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Set the circuit breaker of a task type. Options that are left out stay as they are, or at their default."""
    check_name("task_type", task_type)
    given = {
        "failure_ratio": failure_ratio,
        "window": None if window is None else span_of("--window", window),
        "min_outcomes": min_outcomes,
        "open_for": None if open_for is None else span_of("--open-for", open_for),
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
    """Remove the circuit breaker of a task type: its tasks are claimed however many fail."""
    with reached(common) as connection:
        engine = connection.inline()
        circuit = run_inline(engine.circuits.remove(task_type))
        if common.json:
            write_json(circuit_shown(task_type, circuit, engine.clock.now()))
            return
    write(f"task type {task_type} has no circuit any more")


def open_circuit(task_type: TaskType, /, *, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Open a circuit breaker by hand: the type's tasks wait, and some are tried after the usual time."""
    with reached(common) as connection:
        engine = connection.inline()
        _report(engine, task_type, run_inline(engine.circuits.open(task_type)), common)


def close_circuit(task_type: TaskType, /, *, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Close a circuit breaker by hand: the type's tasks are claimed again, and its counts start at zero."""
    with reached(common) as connection:
        engine = connection.inline()
        _report(engine, task_type, run_inline(engine.circuits.close(task_type)), common)


def _report(engine: Facade, task_type: str, circuit: Circuit, common: CommonWithStore) -> None:
    now = engine.clock.now()
    if common.json:
        write_json(circuit_shown(task_type, circuit, now))
    else:
        write(
            f"the circuit breaker of {circuit_in_words(task_type, circuit, now)}; it opens {_opens(circuit.settings)}"
        )


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
        Cell(circuit_word(circuit.state), CIRCUIT_STYLES[circuit.state]),
        f"{failures:,} of {outcomes:,}",
        following,
        Cell(_opens(circuit.settings), "dim"),
    ]


def _opens(settings: CircuitSettings) -> str:
    share = f"{settings.failure_ratio:.0%} of at least {settings.min_outcomes:,}"
    return f"at {share} in {settings.window / SECOND:g} s, for {settings.open_for / SECOND:g} s"


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
