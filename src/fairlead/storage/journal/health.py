"""What a hot store and the journal behind it say of their health, together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from fairlead.core.errors import FairleadError
from fairlead.core.health.diagnosis import JOURNAL, Examination, Finding, Level, durability
from fairlead.storage.journal.incarnation import Incarnation

_BEHIND: Final = 10_000


def examined(hot: Examination, journal: Examination | FairleadError, behind: int, *, required: bool) -> Examination:
    """What both say. What the hot store loses the journal has, so its own durability is no longer what counts."""
    findings = [finding for finding in hot.findings if finding.what != "durability"]
    if isinstance(journal, FairleadError):
        return Examination(tier=hot.tier, findings=(_unreachable(journal, required=required), *findings))
    safe = next((finding for finding in journal.findings if finding.what == "durability"), durability(JOURNAL))
    first = replace(durability(JOURNAL), level=safe.level, remedy=safe.remedy)
    return Examination(tier=JOURNAL, findings=(first, *findings, *_of_journal(journal), lag(behind)))


def of_incarnation(incarnation: Incarnation) -> Finding:
    """Whether the hot store is the journal's, and whole."""
    if incarnation.intact:
        return Finding(what="incarnation", value=incarnation.told())
    value, _, remedy = incarnation.told().partition("; ")
    return Finding(
        what="incarnation", level=Level.RED, value=value, remedy=remedy or "correct the URL of the store or the journal"
    )


def lag(behind: int) -> Finding:
    """How far the journal is behind."""
    if behind < _BEHIND:
        return Finding(what="journal lag", value=f"{behind:,} changed tasks are still to be written")
    return Finding(
        what="journal lag",
        level=Level.YELLOW,
        value=f"{behind:,} changed tasks are still to be written: lists are behind, and a rebuild would run them again",
        remedy="see that a worker or a server runs, and that PostgreSQL keeps up: its disk, its locks, its vacuum",
    )


def _of_journal(journal: Examination) -> Iterable[Finding]:
    for finding in journal.findings:
        if finding.what != "durability":
            yield replace(finding, what=f"journal: {finding.what}")


def _unreachable(error: FairleadError, *, required: bool) -> Finding:
    effect = "submits are refused" if required else "submits are kept in Redis alone until it is back"
    return Finding(
        what="journal",
        level=Level.RED,
        value=f"{error}; {effect}",
        remedy="start its PostgreSQL, or correct the setting journal; `fairlead config` shows where it comes from",
    )
