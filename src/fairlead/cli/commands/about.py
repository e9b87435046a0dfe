"""`config` and `version`: what this program is and how it is set."""

from __future__ import annotations

import platform
import sqlite3
from typing import Any

from fairlead._version import __version__
from fairlead.app.config import DEFAULT
from fairlead.cli.options import COMMON, COMMON_WITH_STORE, AnySetting, Common, CommonWithStore, configured
from fairlead.cli.output import Cell, Column, write, write_json, write_table


def config(*, common: CommonWithStore = COMMON_WITH_STORE, **settings: AnySetting) -> None:
    """Show every setting, its value and where the value comes from.

    The first of these counts: a flag, a FAIRLEAD_* variable, fairlead.toml, the default. An invalid value is an
    error, so this also checks a configuration before it is used. Passwords are not shown.

    Every setting can be given as a flag here and to `worker`, `serve` and `up`: `--lease-seconds 60`. One that is true
    or false needs no value to be true: `--admission`.
    """
    entries = list(configured(common, settings).entries())
    if common.json:
        write_json({entry.key: {"value": entry.value, "origin": entry.origin, "about": entry.doc} for entry in entries})
        return
    columns = [Column("SETTING"), Column("VALUE", cut=True), Column("FROM"), Column("ABOUT", cut=True, optional=True)]
    write_table(
        columns,
        [
            [
                Cell(entry.key, "" if entry.origin == DEFAULT else "bold"),
                _shown(entry.value),
                Cell(entry.origin, "dim" if entry.origin == DEFAULT else "green"),
                Cell(entry.doc, "dim"),
            ]
            for entry in entries
        ],
    )


def version(*, common: Common = COMMON) -> None:
    """Show the version."""
    if common.json:
        write_json({"version": __version__, "python": platform.python_version(), "sqlite": sqlite3.sqlite_version})
    else:
        write(f"fairlead {__version__}")


def _shown(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}" if value < 1e15 else str(value)
        case tuple():
            return ",".join(value)
        case _:
            return str(value)
