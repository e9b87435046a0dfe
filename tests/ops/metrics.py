"""The metrics that fairlead has, and those that a PromQL expression names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, TypeAlias

from msgspec import Struct

from fairlead.engine.metrics.names import CATALOGUE

Row: TypeAlias = tuple[str, str, tuple[str, ...]]
"""A metric: its name, its kind and its labels."""


def series(rows: Iterable[Row]) -> dict[str, frozenset[str]]:
    """The series that metrics have, by name, with their labels: a histogram has three."""
    known: dict[str, frozenset[str]] = {}
    for name, kind, labels in rows:
        if kind == "histogram":
            known[f"{name}_bucket"] = frozenset((*labels, "le"))
            known[f"{name}_sum"] = known[f"{name}_count"] = frozenset(labels)
        else:
            known[name] = frozenset(labels)
    return known


KNOWN: Final = series((family.name, family.kind, family.labels) for family in CATALOGUE)
"""The series that the rules and the dashboard may use."""

FROM_PROMETHEUS: Final = frozenset({"instance", "job"})
"""Labels that Prometheus itself adds to every series."""


class Names(Struct, frozen=True):
    """What an expression names."""

    metrics: frozenset[str]
    labels: frozenset[str]


_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'|`[^`]*`")
_GROUPING: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_MATCHERS: Final = re.compile(r"\{([^}]*)\}")
_RANGE: Final = re.compile(r"\[[^\]]*\]|\boffset\s+\S+|\$\w+")
_WORD: Final = re.compile(r"[a-zA-Z_:][\w:]*(?!\w)(?!\s*\()")
_KEYWORDS: Final = frozenset({"and", "or", "unless", "bool", "by", "without", "on", "ignoring", "inf", "nan"})
_LETTERS: Final = re.compile(r"[a-zA-Z_]\w*")


def names_in(expression: str) -> Names:
    """The metrics and labels that a PromQL expression names, without those of functions and variables."""
    rest = _STRING.sub('""', expression)
    labels = {label for inside in _GROUPING.findall(rest) for label in _LETTERS.findall(inside)}
    labels |= {label for inside in _MATCHERS.findall(rest) for label in _LETTERS.findall(inside)}
    for part in (_GROUPING, _MATCHERS, _RANGE):
        rest = part.sub(" ", rest)
    metrics = {word for word in _WORD.findall(rest) if word.lower() not in _KEYWORDS}
    return Names(frozenset(metrics), frozenset(labels))


def unknown_in(expression: str) -> set[str]:
    """What an expression names and fairlead does not have: metrics, and labels that none of its metrics has."""
    names = names_in(expression)
    had = FROM_PROMETHEUS.union(*(KNOWN.get(metric, frozenset()) for metric in names.metrics))
    return {*(names.metrics - KNOWN.keys()), *(names.labels - had)}
