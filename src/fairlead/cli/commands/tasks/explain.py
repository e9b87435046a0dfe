"""`explain`: why a task waits, or ran when it ran; and what to say of a task that nobody could run."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

from cyclopts import Parameter

from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, reached
from fairlead.cli.output import Cell, warn, write, write_json
from fairlead.cli.tables import STYLES, write_field
from fairlead.cli.times import ago
from fairlead.core.explain.explanation import Cause, CauseCode, Explanation, Forecast, LinePlace
from fairlead.core.identity import parse_task_id
from fairlead.core.instant import Instant
from fairlead.engine.runtime.inline import run_inline
from fairlead.wire.explanations import explanation_shown
from fairlead.wire.times import iso


def explain(
    task_id: Annotated[str, Parameter(name="ID", help="Id of the task.")],
    /,
    *,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Explain why a task waits, or why it ran when it did.

    For a waiting task: its place in line, when it is promoted, when new tasks can no longer pass it, which workers
    could take it or why none can, and when it will start, with the assumptions. For a task that was claimed: each
    attempt, how long the task had waited, and what came before.
    """
    wanted = parse_task_id(task_id)
    with reached(common) as connection:
        told = run_inline(connection.inline().explain(wanted))
    if common.json:
        write_json(explanation_shown(told))
    else:
        _write(told)


def warn_of(doubts: Sequence[Cause], *, as_json: bool, waits: bool) -> None:
    """Say on stderr why no live worker could run what was submitted.

    That none runs at all is how every start-up begins: it is said to people, and to whoever waits for the task.
    """
    for cause in doubts:
        if cause.code != CauseCode.NO_WORKERS or waits or sys.stderr.isatty():
            warn(f"the task waits until a worker can run it: {cause.text}", cause.code, as_json=as_json)


def _write(told: Explanation) -> None:
    write_field("task", Cell(told.task_id, "bold"), Cell(f"  {told.type}"))
    write_field("state", Cell(told.state, STYLES[told.state]), Cell(f"  in queue {told.queue}"))
    treated = "" if told.effective_priority is told.priority else f", treated as {told.effective_priority.word}"
    write_field("priority", Cell(f"{told.priority.word}{treated}"))
    if told.due_at is not None:
        write_field("due", *_moment(told.due_at, told.at))
    for label, cells in _place(told):
        write_field(label, *cells)
    write()
    for cause in told.causes:
        write_field("because" if cause is told.causes[0] else "", Cell(cause.text, "yellow" if cause.blocks else ""))
    if told.forecast is not None and told.forecast.assumptions:
        write()
        for assumption in told.forecast.assumptions:
            write_field("assuming" if assumption is told.forecast.assumptions[0] else "", Cell(assumption, "dim"))


def _place(told: Explanation) -> Iterator[tuple[str, Sequence[Cell]]]:
    if told.line is not None:
        yield from _line(told.line, told.at)
    if told.forecast is not None:
        yield from _forecast(told.forecast, told.at)


def _line(line: LinePlace, now: Instant) -> Iterator[tuple[str, Sequence[Cell]]]:
    yield "position", [Cell(f"{'' if line.exact else 'about '}{line.position:,}")]
    promotion = line.next_promotion
    if promotion is not None:
        yield "promoted", [*_moment(promotion.at, now), Cell(f", to {promotion.to.word}")]
    if line.unpassable_from is None:
        yield "passable", [Cell("for as long as it waits: its order of service lets others go first")]
    elif line.unpassable_from > now:
        yield "passable", [Cell("until "), *_moment(line.unpassable_from, now)]
    else:
        yield "passable", [Cell("no more: nothing that is submitted now can pass it")]


def _forecast(forecast: Forecast, now: Instant) -> Iterator[tuple[str, Sequence[Cell]]]:
    named = ", ".join(forecast.worker_ids[:5]) + (", …" if forecast.workers > 5 else "")
    could = f"{forecast.workers} could take it, with {forecast.free_slots} slots free: {named}"
    yield "workers", [Cell(could if forecast.workers else "none could take it", "" if forecast.workers else "yellow")]
    if forecast.rate is not None:
        yield "pace", [Cell(f"{forecast.rate:.3g} tasks ended per second in the last minute")]
    starts = (("start", forecast.estimated_start, forecast.no_estimate),)
    for label, at, why in (*starts, ("latest", forecast.latest_start, forecast.no_latest)):
        yield label, [Cell(f"cannot be told: {why}", "dim")] if at is None else _moment(at, now)


def _moment(at: Instant, now: Instant) -> list[Cell]:
    return [Cell(iso(at)), Cell(f"  {ago(at, now)}", "dim")]
