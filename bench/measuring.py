"""Measuring: repeat, take the median, say how far the runs spread."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable

from msgspec import Struct


class Figure(Struct, frozen=True, kw_only=True):
    """One measured number."""

    store: str
    work: str
    value: float
    unit: str
    spread: float
    """(largest - smallest) / median, over the repeats."""
    runs: int
    target: float | None = None
    """What the value should at least be; at most, if `at_most`."""
    at_most: bool = False

    @property
    def reached(self) -> bool | None:
        if self.target is None:
            return None
        return self.value <= self.target if self.at_most else self.value >= self.target


async def figure(
    store: str,
    work: str,
    unit: str,
    run: Callable[[], Awaitable[float]],
    *,
    repeats: int,
    target: float | None = None,
    at_most: bool = False,
) -> Figure:
    """The median of several runs, each of which answers its own value."""
    values = [await run() for _ in range(repeats)]
    return summed(store, work, unit, values, target=target, at_most=at_most)


def summed(
    store: str, work: str, unit: str, values: list[float], *, target: float | None = None, at_most: bool = False
) -> Figure:
    """The median of these values."""
    median = statistics.median(values)
    return Figure(
        store=store,
        work=work,
        value=median,
        unit=unit,
        spread=(max(values) - min(values)) / median if median else 0.0,
        runs=len(values),
        target=target,
        at_most=at_most,
    )
