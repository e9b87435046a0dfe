"""`show`, `list`, `stats` and `explain`: how tasks and queues stand, and why a task waits, or ran when it ran."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from fairlead.admin.facade import Facade
from fairlead.admin.facade import gather as gather_page
from fairlead.admin.stats import standing
from fairlead.cli import tables, task_json
from fairlead.cli.commands.operations import QueryOption
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, reached, whole, words
from fairlead.cli.output import Cell, warn, write, write_json
from fairlead.cli.tables import STYLES, write_field
from fairlead.cli.times import ago, parse
from fairlead.core.errors import InvalidTask
from fairlead.core.explain.explanation import Cause, CauseCode, Explanation, Forecast, LinePlace
from fairlead.core.identity import WorkerId, parse_task_id
from fairlead.core.instant import Instant
from fairlead.core.query.parser import parse_query
from fairlead.core.query.query import Query
from fairlead.core.task import Priority, State
from fairlead.engine.runtime.inline import run_inline
from fairlead.engine.search import Found
from fairlead.storage.values import Filter
from fairlead.wire.explanations import explanation_shown
from fairlead.wire.text import iso

MOST = 10_000


def show(
    task_id: Annotated[str, Parameter(name="ID", help="Id of the task.")],
    /,
    *,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Show one task: its state, times, parameters, result, error and history."""
    wanted = parse_task_id(task_id)
    with reached(common) as connection:
        engine = connection.inline()
        task = run_inline(engine.get(wanted))
        if common.json:
            write_json(task_json.whole(task, engine))
        else:
            tables.write_task(task, engine.clock.now())


Limit: TypeAlias = Annotated[
    int, Parameter(converter=whole, help=f"How many at most, up to {MOST:,}; 50 by default.", metavar="N")
]
Cursor: TypeAlias = Annotated[
    str | None, Parameter(help="Continue after this task: the last one of the previous page.", metavar="ID")
]


def list_tasks(
    *,
    query: QueryOption = None,
    state: Annotated[str | None, Parameter(help="Only those in these states.", metavar="STATE,…")] = None,
    queue: Annotated[str | None, Parameter(help="Only those of this queue.", metavar="NAME")] = None,
    task_type: Annotated[str | None, Parameter(name="--type", help="Only those of this type.", metavar="NAME")] = None,
    priority: Annotated[str | None, Parameter(help="Only those of this priority.", metavar="WORD")] = None,
    worker: Annotated[str | None, Parameter(help="Only those that this worker runs.", metavar="ID")] = None,
    tag: Annotated[str | None, Parameter(help="Only those with this tag.", metavar="NAME")] = None,
    created_after: Annotated[
        str | None,
        Parameter(
            help="Only those submitted at this moment or later: 2026-11-15T08:00Z, or -1h, -30m, -7d.",
            metavar="MOMENT",
            allow_leading_hyphen=True,
        ),
    ] = None,
    created_before: Annotated[
        str | None,
        Parameter(help="Only those submitted before this moment.", metavar="MOMENT", allow_leading_hyphen=True),
    ] = None,
    oldest_first: Annotated[bool, Parameter(help="Begin with the oldest instead of the newest.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """List tasks, the newest first.

    With `--json`, one task per line, which `fairlead submit --from-file` takes. If there are as many as `--limit`,
    there may be more: go on with `--cursor` and the last id.
    """
    sought = parse_query(query or "")
    with reached(common) as connection:
        engine = connection.inline()
        now = engine.clock.now()
        matching = Filter(
            states=frozenset(_state(word) for word in words(state)),
            queue=queue,
            type=task_type,
            priority=None if priority is None else Priority.parse(priority),
            worker=None if worker is None else WorkerId(worker),
            tag=tag,
            created_from=None if created_after is None else parse("--created-after", created_after, now),
            created_before=None if created_before is None else parse("--created-before", created_before, now),
        )
        page = gather(
            engine, sought, matching, limit=limit, after=cursor, newest_first=not oldest_first, parameters=common.json
        )
    if common.json:
        for task in page.tasks:
            write_json(task_json.listed(task, engine))
        return
    if not page.tasks:
        write("no task matches" if sought.terms or matching != Filter() or cursor else "no tasks yet")
        return
    tables.write_tasks(page.tasks, now)
    if page.cursor is not None:
        write(f"there are more: --cursor {page.cursor}")


def gather(
    engine: Facade,
    query: Query,
    matching: Filter | None = None,
    *,
    limit: int,
    after: str | None,
    newest_first: bool = True,
    parameters: bool = False,
) -> Found:
    """A whole page of what a query means, however many tasks must be looked at."""
    if not 1 <= limit <= MOST:
        raise InvalidTask("limit", f"--limit {limit} is out of range; use 1 to {MOST:,}")
    place = None if after is None else parse_task_id(after)
    return run_inline(
        gather_page(engine, query, matching, limit=limit, after=place, newest_first=newest_first, parameters=parameters)
    )


def stats(*, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Show how many tasks are in each state, and how long the oldest of each queue and priority waits."""
    with reached(common) as connection:
        engine = connection.inline()
        now = engine.clock.now()
        stood = run_inline(engine.stats())
    if common.json:
        write_json(standing(stood))
    else:
        tables.write_stats(stood, now)


def _state(word: str) -> State:
    try:
        return State(word)
    except ValueError:
        valid = ", ".join(State)
        raise InvalidTask("state", f"state {word!r} is unknown; use one of {valid}") from None


def explain(
    task_id: Annotated[str, Parameter(name="ID", help="Id of the task.")],
    /,
    *,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Explain why a task waits, or why it ran when it did.

    For a waiting task: its place in line, when it is promoted, from when on its start is certain, which workers
    could take it or why none can, and when it will start, with the assumptions. For a task that was claimed: each
    attempt, how long the task had waited, and what came before.
    """
    wanted = parse_task_id(task_id)
    with reached(common) as connection:
        told = run_inline(connection.inline().explain(wanted))
    if common.json:
        write_json(explanation_shown(told))
    else:
        _write_explanation(told)


def warn_of(doubts: Sequence[Cause], *, as_json: bool, waits: bool) -> None:
    """Say on stderr why no live worker could run what was submitted.

    That none runs at all is how every start-up begins: it is said to people, and to whoever waits for the task.
    """
    for cause in doubts:
        if cause.code != CauseCode.NO_WORKERS or waits or sys.stderr.isatty():
            warn(f"the task waits until a worker can run it: {cause.text}", cause.code, as_json=as_json)


def _write_explanation(told: Explanation) -> None:
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
    if line.position is None:
        yield "position", [Cell(f"none: {line.unreached}", "yellow")]
    else:
        yield "position", [Cell(f"{'' if line.exact else 'about '}{line.position:,}")]
    promotion = line.next_promotion
    if promotion is not None:
        yield "promoted", [*_moment(promotion.at, now), Cell(f", to {promotion.to.word}")]
    if line.turns_from is not None:
        yield from _turns(line.turns_from, now)
    elif line.unpassable_from is None:
        yield "passable", [Cell("for as long as it waits: its order of service lets others go first")]
    elif line.unpassable_from > now:
        yield "passable", [Cell("until "), *_moment(line.unpassable_from, now)]
    else:
        yield "passable", [Cell("no more: nothing that is submitted now can pass it")]


def _turns(turns_from: Instant, now: Instant) -> Iterator[tuple[str, Sequence[Cell]]]:
    said = "1 start of 4 goes to the promoted task that has waited longest"
    if turns_from > now:
        yield "turns", [Cell("from "), *_moment(turns_from, now), Cell(f" on: {said}")]
    else:
        yield "turns", [Cell(f"now: {said}")]


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
