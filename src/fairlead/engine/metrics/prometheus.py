"""The text format of Prometheus: families of metrics and their samples, written out."""

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
