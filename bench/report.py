"""What was measured, as a table for people and JSON for programs."""

from __future__ import annotations

import os
import platform
import sqlite3
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench.measuring import Figure


def show(figures: list[Figure]) -> None:
    table = Table("store", "work", "median", "unit", "spread", "target", "")
    for figure in figures:
        bound = "≤" if figure.at_most else "≥"
        table.add_row(
            figure.store,
            figure.work,
            f"{figure.value:,.0f}" if figure.value >= 100 else f"{figure.value:,.2f}",
            figure.unit,
            f"{figure.spread:.0%}",
            "" if figure.target is None else f"{bound} {figure.target:,g}",
            {None: "", True: "reached", False: "MISSED"}[figure.reached],
        )
    Console(width=120).print(table)


def save(figures: list[Figure], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "cores": os.cpu_count(),
        "figures": [msgspec.to_builtins(figure) | {"reached": figure.reached} for figure in figures],
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
