"""`doctor`: whether all is as it should be."""

from __future__ import annotations

import warnings
from typing import Final

from fairlead.admin.doctor.api import diagnosis_shown
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, reached
from fairlead.cli.output import Cell, write, write_json, write_styled
from fairlead.core.errors import FairleadError, InvalidSettings, StoreMismatch, StoreRefused
from fairlead.core.health.diagnosis import Diagnosis, Finding, Level
from fairlead.engine.runtime.inline import run_inline

_STYLES: Final = {Level.GREEN: "green", Level.YELLOW: "yellow", Level.RED: "bold red"}


def doctor(*, common: CommonWithStore = COMMON_WITH_STORE) -> int:
    """Check the store's durability, clocks, versions, limits and leftovers, and say how to fix each problem.

    It changes nothing. The exit code is 1 if anything is red: tasks may be lost, or are stuck.
    """
    diagnosis = _diagnosed(common)
    if common.json:
        write_json(diagnosis_shown(diagnosis))
    else:
        _write(diagnosis)
    return 1 if diagnosis.level is Level.RED else 0


def _diagnosed(common: CommonWithStore) -> Diagnosis:
    try:
        # What a store warns of when it is opened is among the findings.
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning), reached(common) as connection:
            return run_inline(connection.inline().diagnose())
    except FairleadError as error:
        return Diagnosis(
            findings=(Finding(what="store", level=Level.RED, value=str(error), remedy=_remedy(error)),),
        )


def _remedy(error: FairleadError) -> str:
    match error:
        case InvalidSettings():
            return "correct the setting; `fairlead config` shows each and where it comes from"
        case StoreMismatch():
            return "run `fairlead migrate` if the schema is behind; otherwise upgrade fairlead, or use another store"
        case StoreRefused():
            return (
                "correct user and password in the store URL; a server wants a key with the role admin in "
                "FAIRLEAD_API_KEY, and `fairlead keys create` makes one"
            )
        case _:
            return "see that it runs and that this host reaches it; `fairlead config` shows which store is meant"


def _write(diagnosis: Diagnosis) -> None:
    width = max(len(finding.what) for finding in diagnosis.findings)
    for finding in diagnosis.findings:
        style = _STYLES[finding.level]
        write_styled([Cell(f"{finding.level:<6}  ", style), Cell(f"{finding.what:<{width}}  "), Cell(finding.value)])
        if finding.remedy:
            write_styled([Cell(" " * (width + 10)), Cell(f"→ {finding.remedy}", "bold")])
    if diagnosis.level is Level.GREEN:
        write("all is as it should be")
