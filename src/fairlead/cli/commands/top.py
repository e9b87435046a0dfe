"""`top`: everything at a glance, again and again."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Final

from cyclopts import Parameter
from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len, set_cell_size

from fairlead.admin.facade import Facade
from fairlead.admin.stats import Standing, standing
from fairlead.admin.workers.api import WorkerShown, worker_shown
from fairlead.cli import task_json
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, reached
from fairlead.cli.output import (
    Cell,
    Column,
    clean,
    console,
    on_terminal,
    one_line,
    table_lines,
    write_json,
    write_styled,
)
from fairlead.cli.tables import URGENT, WORKER_STYLES, summary
from fairlead.cli.times import ago, brief
from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import MINUTE, SECOND, Instant, Span
from fairlead.core.secret_mask import masked
from fairlead.core.task import Priority, State, Task
from fairlead.core.validation import span_of
from fairlead.engine.metrics.throughput import Throughput
from fairlead.engine.runtime.inline import run_inline
from fairlead.engine.stats import Stats
from fairlead.engine.worker_records import WorkerRecord
from fairlead.storage.values import Filter
from fairlead.wire.task_shown import TaskBrief
from fairlead.wire.text import iso

SHOWN: Final = 20
"""How many tasks of each kind are kept."""
LOOKED_AT: Final = 200
"""Of how many they are chosen. A look must stay cheap however many tasks there are, so those that have run longest are
chosen among the running tasks that were submitted first, and the newest errors among those submitted last."""


class Survey(Struct, frozen=True, kw_only=True):
    """How everything stands."""

    at: Instant
    stats: Stats
    workers: tuple[WorkerRecord, ...]
    running: tuple[Task, ...]
    """Those that have run longest, the longest first."""
    failed: tuple[Task, ...]
    """The latest that ended as failed or as a dead letter, the latest first."""


async def survey(engine: Facade) -> Survey:
    """Look at everything once."""
    running = await engine.find(Filter(states=frozenset({State.EXECUTING})), limit=LOOKED_AT, newest_first=False)
    failed = await engine.find(Filter(states=frozenset({State.FAILED, State.DEAD_LETTER})), limit=LOOKED_AT)
    return Survey(
        at=engine.clock.now(),
        stats=await engine.stats(),
        workers=tuple(await engine.workers.all()),
        running=tuple(sorted(running, key=lambda task: task.status.started_at or 0)[:SHOWN]),
        failed=tuple(sorted(failed, key=lambda task: -(task.status.ended_at or 0))[:SHOWN]),
    )


class SurveyShown(Struct, kw_only=True):
    """How everything stands."""

    at: str
    stats: Standing
    workers: list[WorkerShown]
    running_longest: list[TaskBrief]
    """At most 20, the longest first."""
    newest_errors: list[TaskBrief]
    """Failed tasks and dead letters, at most 20, the latest first."""


def survey_shown(survey: Survey, show: Callable[[Task], TaskBrief]) -> SurveyShown:
    """A survey in the shapes of the API."""
    return SurveyShown(
        at=iso(survey.at),
        stats=standing(survey.stats),
        workers=[worker_shown(worker) for worker in survey.workers],
        running_longest=[show(task) for task in survey.running],
        newest_errors=[show(task) for task in survey.failed],
    )


KEPT: Final = 60
"""How many looks back the throughput is drawn."""
_BARS: Final = "▁▂▃▄▅▆▇█"
_TOLD_FOR: Final = MINUTE
"""How long it is told that the store is back."""
_LATE: Final = 3
"""So many times the interval without an answer, and it is said."""
_NOTICE_LINES: Final = 3
_OVERHEAD: Final = 2
"""The lines of a table that are no rows of it: a blank one above, and its header."""
_TROUBLE: Final = ("dead", "draining", "paused", "active")

Line = list[Cell]


class Gap(Struct, frozen=True, kw_only=True):
    """A time in which the store could not be looked at."""

    since: Instant
    reason: str
    until: Instant | None = None
    """When it answered again; None if it has not."""


class TopView(Struct, frozen=True, kw_only=True):
    """All that was seen so far. Instants other than those of the survey are of this machine's clock."""

    store: str
    interval: Span
    survey: Survey
    seen_at: Instant
    history: tuple[Throughput, ...] = ()
    """What ended in the minute before each look, the oldest first."""
    gap: Gap | None = None

    def seen(self, survey: Survey, now: Instant) -> TopView:
        """After a look that succeeded."""
        history = (*self.history, survey.stats.throughput)[-KEPT:]
        gap = replace(self.gap, until=now) if self.gap and self.gap.until is None else self.gap
        return replace(self, survey=survey, seen_at=now, history=history, gap=gap)

    def missed(self, reason: str, now: Instant) -> TopView:
        """After a look that failed."""
        ongoing = self.gap is not None and self.gap.until is None
        since = self.gap.since if self.gap is not None and ongoing else now
        return replace(self, gap=Gap(since=since, reason=reason))


def first_view(store: str, interval: Span, survey: Survey, now: Instant) -> TopView:
    """After the first look."""
    return TopView(store=store, interval=interval, survey=survey, seen_at=now, history=(survey.stats.throughput,))


def whole(store: str, survey: Survey, width: int | None) -> list[Line]:
    """One survey with all its rows, as wide as there is room."""
    head = [[Cell(store, "bold"), Cell(f"  {_clock(survey.at)}", "dim")], *summary(survey.stats, survey.at)]
    tables = [[[], *table] for table in _tables(survey, width)]
    return [*head, *(line for table in tables for line in table)]


def frame(view: TopView, now: Instant, width: int, height: int) -> list[Line]:
    """A screen full: at most so many lines, none of them wider than that."""
    lost = view.gap is not None and view.gap.until is None
    top = [_title(view), *_notices(view, now, width)]
    body = [*summary(view.survey.stats, view.survey.at), *_rates(view.history, width)]
    tables = _shortened(_tables(view.survey, width), height - len(top) - len(body))
    body += [line for table in tables for line in ([], *table)]
    if lost:
        body = [[Cell(cell.text, "dim") for cell in line] for line in body]
    return [_cut(line, width) for line in (*top, *body)][:height]


def sparkline(counts: Sequence[int]) -> str:
    """Counts as bars; the highest is the greatest of them."""
    most = max(counts, default=0)
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // most)] if most else _BARS[0] for count in counts)


def _title(view: TopView) -> Line:
    rhythm = f" q quits  {_clock(view.survey.at)}, every {view.interval / SECOND:g} s  "
    return [Cell("fairlead top", "bold"), Cell(rhythm, "dim"), Cell(view.store)]


def _notices(view: TopView, now: Instant, width: int) -> list[Line]:
    """What is wrong with the picture itself, on as many lines as it takes to read why, within reason."""
    gap = view.gap
    if gap is not None and gap.until is None:
        said, style = f"out of reach since {_clock(gap.since)}, trying again: {one_line(gap.reason)}", "bold red"
    elif now - view.seen_at > _LATE * view.interval + SECOND:
        said, style = f"no answer for {brief(now - view.seen_at)}", "yellow"
    elif gap is not None and gap.until is not None and now - gap.until < _TOLD_FOR:
        took = brief(gap.until - gap.since)
        said, style = f"reached again at {_clock(gap.until)}, after {took}: {one_line(gap.reason)}", "yellow"
    else:
        return []
    return [[Cell(part, style)] for part in textwrap.wrap(said, width)[:_NOTICE_LINES]]


def _rates(history: Sequence[Throughput], width: int) -> Iterator[Line]:
    room = max(0, min(KEPT, width - 30))
    for label, counts, style in (
        ("completed", [each.completed for each in history], "green"),
        ("failed", [each.failed for each in history], "red"),
    ):
        bars = sparkline(counts[-room:] if room else ())
        yield [Cell(f"{label:<10}", "dim"), Cell(bars, style), Cell(f" {counts[-1] if counts else 0:,} a minute")]


def _tables(survey: Survey, width: int | None) -> list[list[Line]]:
    parts = (_queues(survey), _workers(survey), _running(survey), _errors(survey))
    return [table_lines(columns, rows, width) for columns, rows in parts if rows]


Part = tuple[list[Column], list[list[Cell | str]]]


def _queues(survey: Survey) -> Part:
    columns = [Column("QUEUE", cut=True), *(Column(priority.word.upper(), right=True) for priority in Priority)]
    columns += [Column("OLDEST", right=True), Column("RUNNING", right=True, optional=True)]
    columns += [Column("STATE", optional=True)]
    rows: list[list[Cell | str]] = []
    by_depth = sorted(survey.stats.queues.items(), key=lambda item: (-item[1].states[State.QUEUED], item[0]))
    for name, queue in by_depth:
        depths = [
            Cell(f"{line.depth:,}", URGENT.get(priority, "") if line.depth else "dim")
            for priority, line in queue.lines.items()
        ]
        oldest = max(line.oldest_age for line in queue.lines.values())
        waits = any(line.depth for line in queue.lines.values())
        state = Cell("paused", "yellow") if queue.paused else Cell("")
        running = f"{queue.states[State.EXECUTING]:,}"
        rows.append([name, *depths, brief(oldest) if waits else "-", running, state])
    return columns, rows


def _workers(survey: Survey) -> Part:
    columns = [Column("WORKER", cut=True), Column("STATE"), Column("RUNNING", right=True)]
    columns += [Column("DONE/MIN", right=True, optional=True), Column("FAILED/MIN", right=True, optional=True)]
    columns += [Column("QUEUES", cut=True, optional=True), Column("SEEN", right=True)]
    workers = sorted(survey.workers, key=lambda worker: (_TROUBLE.index(worker.word), -worker.running, worker.id))
    rows: list[list[Cell | str]] = [
        [
            worker.id,
            Cell(worker.word, WORKER_STYLES[worker.word]),
            f"{worker.running}/{worker.capacity}",
            f"{worker.completed:,}",
            Cell(f"{worker.failed:,}", "red" if worker.failed else "dim"),
            ",".join(worker.queues),
            ago(worker.seen_at, survey.at),
        ]
        for worker in workers
    ]
    return columns, rows


def _running(survey: Survey) -> Part:
    columns = [Column("RUNS FOR", right=True), Column("TYPE", cut=True), Column("QUEUE", cut=True, optional=True)]
    columns += [Column("WORKER", cut=True, optional=True), Column("ID")]
    rows: list[list[Cell | str]] = [
        [
            "-" if task.status.started_at is None else brief(survey.at - task.status.started_at),
            task.spec.type,
            task.spec.queue,
            "-" if task.status.lease is None else task.status.lease.worker,
            Cell(task.id, "dim"),
        ]
        for task in survey.running
    ]
    return columns, rows


def _errors(survey: Survey) -> Part:
    columns = [Column("FAILED", right=True), Column("TYPE", cut=True), Column("ID", optional=True)]
    columns += [Column("ERROR", cut=True)]
    rows: list[list[Cell | str]] = [
        [
            "-" if task.status.ended_at is None else ago(task.status.ended_at, survey.at),
            task.spec.type,
            Cell(task.id, "dim"),
            Cell(_error(task), "red"),
        ]
        for task in survey.failed
    ]
    return columns, rows


def _error(task: Task) -> str:
    failure = task.status.failure
    return task.status.reason if failure is None else f"{failure.type}: {failure.message}"


def _shortened(tables: list[list[Line]], room: int) -> list[list[Line]]:
    """As many rows of each as there is room for, dealt out one by one; what has no room at all is left out."""
    while tables and room < len(tables) * (_OVERHEAD + 1):
        tables = tables[:-1]
    given = [0] * len(tables)
    left = room - len(tables) * _OVERHEAD
    while left > 0:
        wanting = [at for at, table in enumerate(tables) if given[at] < len(table) - 1]
        if not wanting:
            break
        for at in wanting[:left]:
            given[at] += 1
        left -= len(wanting)
    return [_first(table, rows) for table, rows in zip(tables, given, strict=True)]


def _first(table: list[Line], rows: int) -> list[Line]:
    if rows >= len(table) - 1:
        return table
    more = [Cell(f"… {len(table) - rows:,} more", "dim")]
    return [*table[:rows], more]


def _cut(line: Line, width: int) -> Line:
    """A line that is not wider than the terminal, however wide its characters are."""
    cut: Line = []
    for cell in line:
        text = clean(cell.text).replace("\t", " ").replace("\n", " ")
        size = cell_len(text)
        if size > width:
            return [*cut, Cell(set_cell_size(text, max(0, width - 1)) + "…" * (width > 0), cell.style)]
        width -= size
        cut.append(Cell(text, cell.style))
    return cut


def _clock(at: Instant) -> str:
    return f"{iso(at)[11:19]} UTC"


_SHORTEST: Final = 0.1
_LONGEST: Final = 3600.0


def top(
    *,
    once: Annotated[bool, Parameter(help="Show everything once and end, for scripts; with all rows.")] = False,
    interval: Annotated[float, Parameter(help="Seconds between two updates; 2 by default.", metavar="S")] = 2.0,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Show a live overview: queues, throughput, workers, the longest-running tasks and the newest errors.

    `q` quits. While the store cannot be reached, the last figures stay, with a line that says so. The tasks that run
    longest are found among the 200 running ones that were submitted first, and errors among the 200 failed tasks and
    dead letters that were submitted last.
    """
    if not _SHORTEST <= interval <= _LONGEST:
        raise InvalidSettings(f"--interval {interval:g} is out of range; use {_SHORTEST:g} to {_LONGEST:g} seconds")
    if not once:
        _check_terminal(as_json=common.json)
    with reached(common) as connection:
        engine = connection.inline()
        seen = run_inline(survey(engine))
        if common.json:
            write_json(survey_shown(seen, lambda task: task_json.brief(task, engine)))
        elif once:
            _write_once(masked(connection.url), seen)
        else:
            # A system without such terminals has been refused already.
            from fairlead.cli.terminal import now, watch

            view = first_view(masked(connection.url), span_of("interval", interval), seen, now())
            watch(view, lambda: run_inline(survey(engine)), frame, interval)


def _check_terminal(*, as_json: bool) -> None:
    if as_json:
        raise InvalidSettings("--json needs --once: a live view is not one JSON document")
    if not (sys.stdin.isatty() and on_terminal()):
        raise InvalidSettings("top needs a terminal to draw on and to read keys from; use --once elsewhere")
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown") or sys.platform == "win32":
        raise InvalidSettings("this terminal cannot show a picture in place; use --once, or set TERM to what it is")


def _write_once(store: str, seen: Survey) -> None:
    screen = console() if on_terminal() else None
    for line in whole(store, seen, None if screen is None else screen.width):
        write_styled(line, screen)
