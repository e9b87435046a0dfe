"""Every metric that fairlead shows, by name, and the text format of Prometheus in which its samples are written out.

By these names the code counts; the reference lists them and alerts ask for them.
"""

from __future__ import annotations

import enum
import itertools
import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from fairlead.core.instant import SECOND, Span

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricKind(enum.StrEnum):
    """How a metric behaves."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricSource(enum.StrEnum):
    """What a metric tells of, and so where it is shown."""

    PROCESS = "process"
    """What the process did to the store, since it started."""
    STORE = "store"
    """How the store stands, for all processes; shown by servers."""
    WORKER = "worker"
    """What a worker is; of all workers on a server, of the one on its own port."""


class Family(Struct, frozen=True):
    """A metric: its name and what it means."""

    name: str
    kind: MetricKind
    source: MetricSource
    labels: tuple[str, ...]
    doc: str


class Histogram:
    """How often a value was at most this or that. Durations are counted in microseconds."""

    __slots__ = ("bounds", "counts", "total", "unit")

    def __init__(self, bounds: Sequence[int], unit: int = 1) -> None:
        """The bounds are in the values' own unit; `unit` of them are shown as 1."""
        self.bounds = bounds
        self.unit = unit
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0

    def observe(self, value: int) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self.counts)


Value: TypeAlias = int | float | Histogram
Samples: TypeAlias = Iterable[tuple[tuple[str, ...], Value]]
"""The values of a family, each with those of its labels."""


def seconds(*bounds: float) -> tuple[Span, ...]:
    """Bounds for durations."""
    return tuple(round(bound * SECOND) for bound in bounds)


def render(families: Iterable[tuple[Family, Samples]]) -> bytes:
    """The page that Prometheus reads."""
    lines: list[str] = []
    for family, samples in families:
        lines.append(f"# HELP {family.name} {_escaped(family.doc)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for labels, value in samples:
            pairs = [f'{name}="{_quoted(label)}"' for name, label in zip(family.labels, labels, strict=True)]
            if isinstance(value, Histogram):
                lines += _histogram(family.name, pairs, value)
            else:
                lines.append(f"{family.name}{_braces(pairs)} {_number(value)}")
    lines.append("")
    return "\n".join(lines).encode()


def _histogram(name: str, pairs: list[str], histogram: Histogram) -> Iterable[str]:
    counts = list(itertools.accumulate(histogram.counts))
    for bound, count in zip((*histogram.bounds, math.inf), counts, strict=True):
        shown = "+Inf" if bound == math.inf else _number(bound / histogram.unit)
        label = f'le="{shown}"'
        yield f"{name}_bucket{_braces([*pairs, label])} {count}"
    yield f"{name}_sum{_braces(pairs)} {_number(histogram.total / histogram.unit)}"
    yield f"{name}_count{_braces(pairs)} {counts[-1]}"


def _braces(pairs: Sequence[str]) -> str:
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')


_COUNTER, _GAUGE, _HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM
_PROCESS, _STORE, _WORKER = MetricSource.PROCESS, MetricSource.STORE, MetricSource.WORKER

QUEUE_DEPTH: Final = Family(
    "fairlead_queue_depth", _GAUGE, _STORE, ("queue", "priority"), "Tasks that are ready and wait for a worker."
)
QUEUE_OLDEST_AGE: Final = Family(
    "fairlead_queue_oldest_age_seconds",
    _GAUGE,
    _STORE,
    ("queue", "priority"),
    "How long the ready task that has waited longest has waited; 0 if none waits.",
)
AT_RISK: Final = Family(
    "fairlead_tasks_at_risk",
    _GAUGE,
    _STORE,
    ("queue", "priority"),
    "Ready tasks that have waited for more than half of the time after which nothing new can pass them.",
)
UNSERVED: Final = Family(
    "fairlead_unserved_tasks",
    _GAUGE,
    _STORE,
    ("queue", "type", "reason"),
    "Ready tasks that no live worker could run, by why, as explain has it; of the type any if none serves the queue.",
)
FAIR_KEYS: Final = Family(
    "fairlead_fair_keys", _GAUGE, _STORE, ("queue",), "Fair keys, such as tenants, that share a queue now, at least."
)
FAIR_KEY_WAITING: Final = Family(
    "fairlead_fair_key_waiting",
    _GAUGE,
    _STORE,
    ("queue", "key"),
    "Ready tasks of a fair key, of the 10 keys of a queue that have most; of all others under the key other.",
)
QUEUE_PAUSED: Final = Family(
    "fairlead_queue_paused", _GAUGE, _STORE, ("queue",), "Whether a queue is paused: 1 if it is."
)
QUEUE_WAIT: Final = Family(
    "fairlead_queue_wait_seconds",
    _HISTOGRAM,
    _PROCESS,
    ("priority",),
    "How long tasks were ready before they were claimed.",
)
SUBMITTED: Final = Family(
    "fairlead_tasks_submitted_total", _COUNTER, _PROCESS, ("type", "priority"), "Tasks that were submitted."
)
REFUSED: Final = Family(
    "fairlead_submits_refused_total",
    _COUNTER,
    _PROCESS,
    ("rule",),
    "Tasks that a server did not take, by the rule: urgent_only, listed_only, key_rate, tenant_rate or overloaded.",
)
PROMOTED: Final = Family(
    "fairlead_tasks_promoted_total",
    _COUNTER,
    _PROCESS,
    ("from", "to"),
    "Tasks that were claimed as if of a higher priority, because of their age.",
)
DURATION: Final = Family(
    "fairlead_task_duration_seconds",
    _HISTOGRAM,
    _PROCESS,
    ("type", "priority", "status"),
    "How long attempts took, by how they ended: completed, failed, dead_letter, cancelled, retrying or handed_back.",
)
COMPLETED: Final = Family(
    "fairlead_tasks_completed_total",
    _COUNTER,
    _PROCESS,
    ("type", "status"),
    "Tasks that came to an end, by how: completed, failed, dead_letter or cancelled.",
)
RETRIES: Final = Family(
    "fairlead_task_retries_total",
    _COUNTER,
    _PROCESS,
    ("type", "priority", "reason"),
    "Attempts after which the task is tried again: failed, timed_out, worker_lost or crashed.",
)
TRANSITIONS: Final = Family(
    "fairlead_task_transitions_total",
    _COUNTER,
    _PROCESS,
    ("from", "to"),
    "Changes of state, by the state left and the state come to; from new when submitted, to removed at the end.",
)
FAILED: Final = Family(
    "fairlead_tasks_failed_total",
    _COUNTER,
    _PROCESS,
    ("type", "reason"),
    "Tasks that ended without success, dead letters included: rejected, retries_used_up or crash_loop.",
)
DEAD_LETTERS: Final = Family(
    "fairlead_tasks_dead_letter_total",
    _COUNTER,
    _PROCESS,
    ("type", "reason"),
    "Tasks that became dead letters: retries_used_up or crash_loop.",
)
FOREIGN: Final = Family(
    "fairlead_foreign_tasks_total",
    _COUNTER,
    _PROCESS,
    (),
    "Claims of workers of one tenant that met another's task in a queue that is bound to it, and returned it unseen.",
)
DEAD_LETTERS_WAITING: Final = Family(
    "fairlead_dead_letters", _GAUGE, _STORE, ("type",), "Dead letters that wait to be replayed or discarded, by type."
)
DEAD_LETTER_ALERT: Final = Family(
    "fairlead_dead_letter_alert_threshold",
    _GAUGE,
    _STORE,
    ("type",),
    "From how many dead letters of a type on there is an alert; for those types that have any, and a threshold.",
)
DEAD_LETTER_SIZE: Final = Family(
    "fairlead_dead_letter_size", _GAUGE, _STORE, (), "Dead letters that wait to be replayed or discarded."
)
CIRCUIT_STATE: Final = Family(
    "fairlead_circuit_state",
    _GAUGE,
    _STORE,
    ("type", "state"),
    "Circuits of a task type in a state, closed, open or half_open: 1 in the state that it is in, 0 in the others.",
)
QUARANTINED: Final = Family(
    "fairlead_quarantined_records",
    _GAUGE,
    _STORE,
    ("kind",),
    "Records in quarantine, because they cannot be decoded, by kind: task, schedule, queue, key and others.",
)
TASK_STATE: Final = Family("fairlead_task_state", _GAUGE, _STORE, ("status",), "Tasks in the store, by state.")
WORKERS: Final = Family(
    "fairlead_workers",
    _GAUGE,
    _STORE,
    ("status",),
    "Workers: active, paused, draining, or dead (within the last hour: without a heartbeat for one lease length).",
)
WORKER_FAILURES: Final = Family(
    "fairlead_worker_failures_total",
    _COUNTER,
    _PROCESS,
    ("reason",),
    "Workers that failed: lost (no heartbeat for one lease length) or crashed (an isolated handler's process ended).",
)
CAPACITY_USED: Final = Family(
    "fairlead_worker_capacity_used_ratio",
    _GAUGE,
    _WORKER,
    (),
    "Tasks that run, as a share of those that could, of the kind of handler that is busiest: of all live workers on a "
    "server, of the worker on its own port.",
)
HEARTBEAT_FAILURES: Final = Family(
    "fairlead_worker_heartbeat_failures_total",
    _COUNTER,
    _WORKER,
    (),
    "Heartbeats of a worker, for itself or its tasks, that did not reach the store or server.",
)
STORE_SECONDS: Final = Family(
    "fairlead_store_seconds", _HISTOGRAM, _PROCESS, ("operation",), "How long operations of the store took."
)
BATCH_SIZE: Final = Family(
    "fairlead_batch_size",
    _HISTOGRAM,
    _PROCESS,
    ("operation",),
    "Tasks in one operation of the store; what a claim got.",
)
SCHEDULE_LATE: Final = Family(
    "fairlead_schedule_late_seconds",
    _GAUGE,
    _STORE,
    (),
    "How late the most overdue schedule is; 0 if none is. A second or two is usual.",
)
JOURNAL_BEHIND: Final = Family(
    "fairlead_journal_behind",
    _GAUGE,
    _STORE,
    (),
    "Changed tasks that the journal has yet to learn of; only with a journal.",
)
STORE_INTACT: Final = Family(
    "fairlead_store_intact",
    _GAUGE,
    _STORE,
    (),
    "1 while the store has all that its journal knows of, 0 when it has lost something; only with a journal.",
)

CATALOGUE: Final = (
    QUEUE_DEPTH, QUEUE_OLDEST_AGE, AT_RISK, UNSERVED, FAIR_KEYS, FAIR_KEY_WAITING, QUEUE_PAUSED, QUEUE_WAIT,
    SUBMITTED, REFUSED, PROMOTED, DURATION, COMPLETED, TRANSITIONS, RETRIES, FAILED, DEAD_LETTERS, FOREIGN,
    DEAD_LETTER_SIZE, DEAD_LETTERS_WAITING, DEAD_LETTER_ALERT, CIRCUIT_STATE, QUARANTINED, TASK_STATE, WORKERS,
    WORKER_FAILURES, CAPACITY_USED, HEARTBEAT_FAILURES, STORE_SECONDS, BATCH_SIZE, SCHEDULE_LATE, JOURNAL_BEHIND,
    STORE_INTACT,
)  # fmt: skip
"""All of them, in the order of the reference."""
