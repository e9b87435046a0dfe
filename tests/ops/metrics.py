"""The metrics that fairlead has, and those that a PromQL expression names."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

ISSUED: Final[dict[str, frozenset[str]]] = {
    "fairlead_queue_depth": frozenset({"queue", "priority"}),
    "fairlead_queue_oldest_age_seconds": frozenset({"queue", "priority"}),
    "fairlead_queue_wait_seconds_bucket": frozenset({"priority", "le"}),
    "fairlead_queue_wait_seconds_sum": frozenset({"priority"}),
    "fairlead_queue_wait_seconds_count": frozenset({"priority"}),
    "fairlead_tasks_submitted_total": frozenset({"type", "priority"}),
    "fairlead_tasks_promoted_total": frozenset({"from", "to"}),
    "fairlead_task_duration_seconds_bucket": frozenset({"type", "status", "le"}),
    "fairlead_task_duration_seconds_sum": frozenset({"type", "status"}),
    "fairlead_task_duration_seconds_count": frozenset({"type", "status"}),
    "fairlead_tasks_completed_total": frozenset({"type", "status"}),
    "fairlead_task_retries_total": frozenset({"type", "reason"}),
    "fairlead_tasks_failed_total": frozenset({"type", "reason"}),
    "fairlead_tasks_dead_letter_total": frozenset({"type", "reason"}),
    "fairlead_dead_letter_size": frozenset(),
    "fairlead_task_state": frozenset({"status"}),
    "fairlead_workers": frozenset({"status"}),
    "fairlead_worker_capacity_used_ratio": frozenset(),
    "fairlead_worker_heartbeat_failures_total": frozenset(),
    "fairlead_store_seconds_bucket": frozenset({"operation", "le"}),
    "fairlead_store_seconds_sum": frozenset({"operation"}),
    "fairlead_store_seconds_count": frozenset({"operation"}),
    "fairlead_batch_size_bucket": frozenset({"operation", "le"}),
    "fairlead_batch_size_sum": frozenset({"operation"}),
    "fairlead_batch_size_count": frozenset({"operation"}),
    "fairlead_schedule_late_seconds": frozenset(),
    "fairlead_journal_behind": frozenset(),
}
"""The series by name, with their labels, as they were agreed on."""

KNOWN: Final = ISSUED
"""The series that the rules and the dashboard may use. `scraped(text)` of a real scrape can stand here as well."""

FROM_PROMETHEUS: Final = frozenset({"instance", "job"})
"""Labels that Prometheus itself adds to every series."""

_SAMPLE: Final = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? \S+", re.MULTILINE)
_LABEL: Final = re.compile(r'([a-zA-Z_]\w*)="(?:[^"\\]|\\.)*"')


def scraped(text: str) -> dict[str, frozenset[str]]:
    """The series of a scrape by name, with their labels."""
    known: dict[str, frozenset[str]] = {}
    for sample in _SAMPLE.finditer(text):
        labels = frozenset(_LABEL.findall(sample["labels"] or ""))
        known[sample["name"]] = known.get(sample["name"], frozenset()) | labels
    return known


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
