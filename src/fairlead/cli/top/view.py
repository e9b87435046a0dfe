"""What `fairlead top` shows, as lines: a pure function of what was seen, and of the size of the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len, set_cell_size

from fairlead.cli.commands.workers import WORKER_STYLES
from fairlead.cli.output import Cell, Column, clean, one_line, table_lines
from fairlead.cli.tables import URGENT, summary
from fairlead.cli.times import ago, brief
from fairlead.cli.top.survey import Survey
from fairlead.core.instant import MINUTE, SECOND, Instant, Span
from fairlead.core.task import Priority, State, Task
from fairlead.engine.metrics.throughput import Throughput
from fairlead.wire.times import iso

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
