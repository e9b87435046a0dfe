"""How many workers a queue wants: a suggestion for whatever starts and stops them."""

from __future__ import annotations

import math
from typing import Final

from msgspec import Struct

from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import LATEST, MINUTE, SECOND, Span
from fairlead.core.validation import bad_setting, check_count

WITHIN: Final[Span] = MINUTE
"""How soon the backlog should be worked off, unless it is said otherwise."""


class Load(Struct, frozen=True, kw_only=True):
    """What a queue, or all of them, has to do, and who does it."""

    ready: int = 0
    """Tasks that could be claimed now."""
    executing: int = 0
    oldest_age: Span = 0
    """How long the ready task that has waited longest has waited."""
    ended: int = 0
    """Tasks that came to an end within the last minute."""
    spent: Span = 0
    """How long their last attempts took, together."""
    workers: int = 0
    """Workers that claim tasks here."""
    slots: int = 0
    """Tasks that these can run at once."""


class Advice(Struct, frozen=True, kw_only=True):
    """What follows from a load."""

    seconds_per_task: float | None
    """How long a task takes; None if none has ended lately."""
    backlog_seconds: float | None
    """How long one slot would need for what is ready; None if it is not known how long a task takes."""
    capacity: float
    """How many tasks a worker is taken to run at once."""
    workers: int
    """How many workers should there be."""


class Scaling(Struct, frozen=True):
    """A load, and the advice that follows from it."""

    queue: str | None
    """None for all queues together."""
    load: Load
    advice: Advice


def advise(load: Load, *, within: Span = WITHIN, capacity: int | None = None) -> Advice:
    """How many workers keep up with what comes and work off what waits within a span.

    As many slots as are in use keep up: those of this moment, or of the last minute if they were more. The backlog
    takes the work that it is, divided by the span. There are never more slots than tasks, and none without tasks. As
    long as it is not known how long a task takes, there are twice as many workers whenever all slots are in use.
    """
    check_question(within, capacity)
    each = _capacity(load) if capacity is None else float(capacity)
    seconds = load.spent / load.ended / SECOND if load.ended else None
    backlog = None if seconds is None else load.ready * seconds
    return Advice(
        seconds_per_task=seconds,
        backlog_seconds=backlog,
        capacity=each,
        workers=_workers(load, backlog, within / SECOND, each),
    )


def check_question(within: Span, capacity: int | None) -> None:
    """Raise InvalidSettings for what nothing can be advised about."""
    if within <= 0:
        raise InvalidSettings(f"a backlog cannot be worked off within {within / SECOND:g} s; use more than 0")
    if capacity is not None:
        check_count("capacity", capacity, 1, LATEST, bad_setting)


def _capacity(load: Load) -> float:
    return load.slots / load.workers if load.workers and load.slots else 1.0


def _workers(load: Load, backlog: float | None, within: float, capacity: float) -> int:
    tasks = load.ready + load.executing
    if not tasks:
        return 0
    if backlog is None:
        busy = load.ready and load.executing >= load.slots
        wanted = max(1, load.workers * (2 if busy else 1))
        return min(wanted, max(1, math.ceil(tasks / capacity)))
    used = max(load.executing, load.spent / MINUTE)
    slots = min(used + backlog / within, max(tasks, used))
    return max(1, math.ceil(slots / capacity))
