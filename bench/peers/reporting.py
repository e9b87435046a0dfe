"""What was measured, for people and for programs: a table, ratios, JSON, Markdown and pictures."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from bench.peers.drawing import bars
from bench.peers.environments import Contestant
from bench.peers.targets import OURS, TARGETS, Comparison, compared

DRAWN: Final = ("submit by 50 at once", "submit in bulk of 1,000", "run, 1 process", "run, 2 processes")
_Key = tuple[str, str, str]
"""A server, a kind of work and a contestant."""


class Report:
    """Collects figures."""

    def __init__(self) -> None:
        self._values: dict[_Key, list[float]] = defaultdict(list)
        self._contestants: list[tuple[Contestant, str]] = []
        self._remarks: list[str] = []

    def has(self, contestant: Contestant, version: str) -> None:
        """Note that a contestant takes part."""
        self._contestants.append((contestant, version))

    def lacks(self, contestant: Contestant, why: str) -> None:
        """Note that a contestant cannot take part."""
        self._remark(f"{contestant.label} is missing: {why}")

    def failed(self, contestant: Contestant, work: str, why: str) -> None:
        """Note that a contestant did not do some work."""
        self._remark(f"{contestant.label} failed at “{work}”: {why}")

    def note(self, contestant: Contestant, work: str, figures: object) -> None:
        """Note what some work came to; what a contestant cannot do is None."""
        assert isinstance(figures, Mapping)
        for part, value in figures.items():
            if value is not None:
                self._values[contestant.server, work + part, contestant.name].append(float(value))
                print(f"{contestant.label}: {work}{part}: {value:,.2f}", file=sys.stderr, flush=True)

    @property
    def medians(self) -> dict[_Key, float]:
        return {key: statistics.median(values) for key, values in self._values.items()}

    @property
    def comparisons(self) -> list[Comparison]:
        medians = self.medians
        return [comparison for target in TARGETS if (comparison := compared(medians, target)) is not None]

    def show(self) -> None:
        console = Console(width=140)
        for server in dict.fromkeys(server for server, _, _ in self._values):
            console.print(self._table(server))
        ratios = Table("server", "work", "against", "ratio", "target", "", title="fairlead against its peers")
        for comparison in self.comparisons:
            target = comparison.target
            bound = "≤" if target.at_most else "≥"
            said = "reached" if comparison.reached else "MISSED"
            against = comparison.peer if comparison.peer == target.against else f"{comparison.peer}, {target.against}"
            ratios.add_row(
                target.server, target.work, against, f"{comparison.ratio:.2f}", f"{bound} {target.ratio:g}", said
            )
        console.print(ratios)
        for remark in self._remarks:
            console.print(remark)

    def save(self, folder: Path) -> None:
        """Write report.json, report.md and a picture for each kind of work that has one."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(self._data())))
        (folder / "report.md").write_text(self._markdown())
        medians = self.medians
        for server in dict.fromkeys(server for server, _, _ in medians):
            for work in DRAWN:
                figures = {name: value for (at, what, name), value in medians.items() if (at, what) == (server, work)}
                if len(figures) > 1:
                    name = f"{server}-{work}".replace(" ", "-").replace(",", "")
                    (folder / f"{name}.svg").write_text(bars(f"{work}, {server} (tasks/s)", figures, OURS))

    def _remark(self, text: str) -> None:
        if text not in self._remarks:
            self._remarks.append(text)

    def _rows(self, server: str) -> tuple[list[str], list[list[str]]]:
        """The names of the contestants on a server, and a row for each kind of work."""
        names = list(dict.fromkeys(name for at, _, name in self._values if at == server))
        works = dict.fromkeys(work for at, work, _ in self._values if at == server)
        return names, [[work, *(self._cell(server, work, name) for name in names)] for work in works]

    def _cell(self, server: str, work: str, name: str) -> str:
        values = self._values.get((server, work, name))
        if not values:
            return "–"
        median = statistics.median(values)
        spread = (max(values) - min(values)) / median if median else 0.0
        shown = f"{median:,.0f}" if median >= 100 else f"{median:,.2f}"
        return f"{shown} ±{spread / 2:.0%}" if len(values) > 1 else shown

    def _table(self, server: str) -> Table:
        names, rows = self._rows(server)
        table = Table("work", *names, title=f"{server}: medians, and half the spread")
        for row in rows:
            table.add_row(*row)
        return table

    def _markdown(self) -> str:
        lines = [f"Python {platform.python_version()}, {os.cpu_count()} cores.", ""]
        for server in dict.fromkeys(server for server, _, _ in self._values):
            names, rows = self._rows(server)
            lines += [f"## {server}", "", "| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
            lines += ["| " + " | ".join(row) + " |" for row in rows]
            lines.append("")
        lines += ["## Ratios", "", "| server | work | against | ratio | target | |", "|---|---|---|---|---|---|"]
        for each in self.comparisons:
            target, bound = each.target, "≤" if each.target.at_most else "≥"
            said = "reached" if each.reached else "missed"
            row = (target.server, target.work, each.peer, f"{each.ratio:.2f}", f"{bound} {target.ratio:g}", said)
            lines.append("| " + " | ".join(row) + " |")
        lines += ["", "## Settings", ""]
        lines += [f"- {one.label} {version}: {one.settings}" for one, version in self._contestants]
        lines += ["", *(f"- {remark}" for remark in self._remarks)]
        return "\n".join(lines).rstrip() + "\n"

    def _data(self) -> dict[str, object]:
        return {
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "contestants": [
                {"name": one.name, "server": one.server, "version": version, "settings": one.settings}
                for one, version in self._contestants
            ],
            "figures": [
                {"server": server, "work": work, "contestant": name, "runs": values}
                for (server, work, name), values in self._values.items()
            ],
            "comparisons": [
                {
                    "server": each.target.server,
                    "work": each.target.work,
                    "against": each.peer,
                    "ratio": each.ratio,
                    "target": each.target.ratio,
                    "reached": each.reached,
                }
                for each in self.comparisons
            ],
            "remarks": self._remarks,
        }
