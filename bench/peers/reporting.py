"""The report of a run: tables for people, JSON for programs, and pictures."""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from bench.ceilings import Ceiling
from bench.peers.drawing import bars
from bench.peers.environments import Contestant
from bench.peers.kinds import Amounts, Figures
from bench.peers.ledger import OURS, Figure, Ledger, Summary
from bench.peers.targets import TARGETS, Verdict, judged

DRAWN: Final = (
    ("submit one by one", "tasks/s"),
    ("submit one by one, awaited", "tasks/s"),
    ("submit by 50 at once", "tasks/s"),
    ("submit in bulk of 1,000", "tasks/s"),
    ("run, 1 process", "tasks/s"),
    ("run, 2 processes", "tasks/s"),
    ("latency, p50 ms", "ms"),
    ("latency, p99 ms", "ms"),
    ("bytes per waiting task", "bytes"),
)
_BARE: Final = "the bare server"
_Row = tuple[str, ...]


class Report:
    """Collects figures, and says what they come to."""

    def __init__(self, amounts: Amounts, servers: str, *, whole: bool = True) -> None:
        self.ledger = Ledger()
        self._ceilings = Ledger()
        self._likes: dict[tuple[str, str], str] = {}
        self._amounts = amounts
        self._servers = servers
        self._whole = whole
        self._contestants: list[tuple[Contestant, str]] = []
        self._remarks: list[str] = []
        self._began = time.monotonic()

    def has(self, contestant: Contestant, version: str) -> None:
        """Note that a contestant takes part."""
        self._contestants.append((contestant, version))

    def remark(self, text: str) -> None:
        """Note what is missing or has failed, once."""
        if text not in self._remarks:
            self._remarks.append(text)
            self._tell(text)

    def note(self, turn: int, server: str, contestant: str, work: str, figures: Figures) -> None:
        """Note what some work came to in a round."""
        for part, value in figures.items():
            if value is not None:
                self.ledger.note(Figure(turn, server, work + part, contestant, float(value)))
                self._tell(f"{contestant} ({server}): {work}{part}: {value:,.2f}")

    def bound(self, turn: int, server: str, ceilings: list[Ceiling]) -> None:
        """Note what a bare server did in a round."""
        for ceiling in ceilings:
            self._ceilings.note(Figure(turn, server, ceiling.work, _BARE, ceiling.rate))
            self._tell(f"{_BARE} ({server}): {ceiling.work}: {ceiling.rate:,.0f}")
            if ceiling.like is not None:
                self._likes[server, ceiling.work] = ceiling.like

    @property
    def verdicts(self) -> list[Verdict]:
        """Every target; of a run that was not to measure everything, those that it did measure."""
        verdicts = [judged(self.ledger, target) for target in TARGETS]
        return [verdict for verdict in verdicts if self._whole or verdict.measured is not None]

    def show(self) -> None:
        console = Console(width=180)
        for title, head, rows in self._tables():
            table = Table(*head, title=title)
            for row in rows:
                table.add_row(*row)
            console.print(table)
        for remark in self._remarks:
            console.print(remark)

    def save(self, folder: Path) -> None:
        """Write report.json, report.md and a picture for each kind of work that has one."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(self._data())))
        pictures = self._pictures()
        for name, picture in pictures.items():
            (folder / name).write_text(picture)
        (folder / "report.md").write_text(self._markdown(list(pictures)))

    def _tell(self, text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        print(f"{minutes:02d}:{seconds:02d} {text}", file=sys.stderr, flush=True)

    def _tables(self) -> list[tuple[str, _Row, list[_Row]]]:
        """Title, head and rows of each table."""
        tables: list[tuple[str, _Row, list[_Row]]] = [
            ("Targets", ("server", "work", "against", "measured", "extremes", "target", ""), self._verdict_rows())
        ]
        for server in self.ledger.servers():
            names = self.ledger.contestants(server)
            rows = [
                (work, *(_cell(self.ledger.summary(server, work, name)) for name in names))
                for work in self.ledger.works(server)
            ]
            tables.append((server, ("", *names), rows))
        if self._ceilings.figures:
            head = ("server", "work", "a second", "fairlead's work that is like it", "a second")
            tables.append(("Ceilings: what the bare servers do", head, self._ceiling_rows()))
        return tables

    def _verdict_rows(self) -> list[_Row]:
        rows: list[_Row] = []
        for verdict in self.verdicts:
            target, measured = verdict.target, verdict.measured
            against = verdict.peer or target.against or ""
            if target.against not in (None, against):
                against = f"{against}, {target.against}"
            if target.against_work is not None:
                against += f", {target.against_work}"
            bound = f"{'≤' if target.at_most else '≥'} {target.bound:,g}"
            said = {True: "reached", False: "missed", None: "not measured"}[verdict.reached]
            shown = "–" if measured is None else _number(measured.median)
            spread = "" if measured is None or measured.runs == 1 else _span(measured)
            rows.append((target.server, target.work, against, shown, spread, bound, said))
        return rows

    def _ceiling_rows(self) -> list[_Row]:
        rows: list[_Row] = []
        for server in self._ceilings.servers():
            for work in self._ceilings.works(server):
                like = self._likes.get((server, work), "")
                ours = self.ledger.summary(server, like, OURS)
                found = self._ceilings.summary(server, work, _BARE)
                rows.append((server, work, _cell(found), like, "" if ours is None else _cell(ours)))
        return rows

    def _pictures(self) -> dict[str, str]:
        pictures = {}
        for server in self.ledger.servers():
            for work, unit in DRAWN:
                names = self.ledger.contestants(server, work)
                found = {name: summary.median for name in names if (summary := self.ledger.summary(server, work, name))}
                if len(found) > 1:
                    name = f"{server}-{work}".replace(" ", "-").replace(",", "")
                    pictures[f"{name}.svg"] = bars(f"{work}, {server} ({unit})", found, OURS, least=unit != "tasks/s")
        return pictures

    def _markdown(self, pictures: list[str]) -> str:
        lines = [
            "<!-- Generated by make bench. -->",
            "",
            "# fairlead beside its peers",
            "",
            f"Python {platform.python_version()}, {os.cpu_count()} cores; {self._servers}. Rates are tasks a second. "
            "Figures are medians of the rounds, with half the distance of the extremes. A ratio to a peer is the "
            "median of the ratios of neighbouring runs, with their extremes.",
            "",
        ]
        for title, head, rows in self._tables():
            lines += [f"## {title}", "", _line(head), "|---" * len(head) + "|", *map(_line, rows), ""]
        lines += ["## How much was done", "", *(f"- {line}" for line in self._said_amounts()), ""]
        lines += ["## Versions and settings", ""]
        lines += [f"- {one.label} {version}: {one.settings}" for one, version in self._contestants]
        if self._remarks:
            lines += ["", "## Missing", "", *(f"- {remark}" for remark in self._remarks)]
        if pictures:
            lines += ["", "## Pictures", "", *(f"![{name.removesuffix('.svg')}]({name})" for name in pictures)]
        return "\n".join(lines).rstrip() + "\n"

    def _said_amounts(self) -> list[str]:
        amounts = self._amounts
        lines = [
            f"{amounts.one:,} submits one by one, {amounts.crowd:,} by 50 at once, {amounts.bulk:,} in bulk",
            f"a full queue of {amounts.run:,} tasks; latency of {amounts.pace:,} tasks in every round",
            f"{amounts.low:,} low tasks, then {amounts.high:,} high ones",
        ]
        for one, _ in self._contestants:
            if one.submits < 1 or one.runs < 1:
                bulk, low, ran = (
                    amounts.submitted(amounts.bulk, one),
                    amounts.submitted(amounts.low, one),
                    amounts.ran(one),
                )
                least = f"{bulk:,} in bulk, {low:,} low tasks if it has priorities, a full queue of {ran:,}"
                lines.append(f"{one.label}, which is slower: {least}")
        return lines

    def _data(self) -> dict[str, object]:
        return {
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "servers": self._servers,
            "amounts": self._amounts,
            "contestants": [
                {"name": one.name, "server": one.server, "version": version, "settings": one.settings}
                for one, version in self._contestants
            ],
            "figures": self.ledger.figures,
            "ceilings": self._ceilings.figures,
            "verdicts": [msgspec.to_builtins(each) | {"reached": each.reached} for each in self.verdicts],
            "remarks": self._remarks,
        }


def _cell(summary: Summary | None) -> str:
    if summary is None:
        return "–"
    shown = _number(summary.median)
    return f"{shown} ±{summary.spread:.0%}" if summary.runs > 1 else shown


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.2f}"


def _span(summary: Summary) -> str:
    return f"{_number(summary.least)} to {_number(summary.most)}"


def _line(cells: _Row) -> str:
    return "| " + " | ".join(cells) + " |"
