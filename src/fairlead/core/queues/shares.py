"""Shares: how the queues that one worker serves share it.

Nothing of it is the store's: a claim compares queues by their tables, and these are moved. The queue that has had the
least for its weight comes first in the next claim, among tasks of the same rank or before any rank. So shares hold over
claims; within one, all that is asked for may be of one queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import DAY, Span
from fairlead.core.queues.fairness import check_weight
from fairlead.core.queues.order import Step, Table
from fairlead.core.validation import check_type, shown

_LEVEL: Final[Span] = 366 * DAY
"""How much earlier the tasks of one queue count than those of the next; who waits for longer is before both."""
_RANKS: Final = 16
"""More than there are ranks in a table."""


class SharedAmong(StrEnum):
    """Where queues share a worker."""

    RANK = "rank"
    """Among tasks of the same rank: a more urgent task of any queue goes first."""
    ALL = "all"
    """Before priority: within a queue its own order holds."""
    STRICT = "strict"
    """Not at all: a queue that is named later has what those before it leave."""


class WorkerShares(Struct, frozen=True):
    """How a worker's queues share it."""

    weights: Mapping[str, float]
    among: SharedAmong = SharedAmong.RANK


def shares_of(queues: Sequence[object], share: str | None) -> tuple[list[str], WorkerShares | None]:
    """The names of queues as a user writes them, such as `web=3`, and how they share a worker if any of it is said.

    What the names are is for `names_of`, but what is no text has none.
    """
    among = _among(share)
    weights: dict[str, float] = {}
    texts = [check_type("queues", each, str, "write a name such as 'mail'") for each in queues]
    for text in texts:
        name, separator, said = text.partition("=")
        if separator and among is SharedAmong.STRICT:
            raise InvalidSettings(f"queue {shown(text)} has a weight, which says nothing in strict order; leave it out")
        weight = check_weight(f"weight of queue {name}", _number(said)) if separator else 1
        if weights.setdefault(name, weight) != weight:
            raise InvalidSettings(
                f"queue {shown(name)} has two weights, {weights[name]:g} and {weight:g}; leave one out"
            )
    is_said = among is not None or any("=" in text for text in texts)
    return [*weights], WorkerShares(weights, among or SharedAmong.RANK) if is_said and len(weights) > 1 else None


def _among(share: str | None) -> SharedAmong | None:
    if share is None:
        return None
    try:
        return SharedAmong(share)
    except ValueError:
        raise InvalidSettings(f"share {shown(share)} is unknown; use rank, all or strict") from None


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text  # What it is called in the error.


class Passes:
    """How much each queue has had for its weight, as far as one process has claimed."""

    def __init__(self) -> None:
        self._passes: dict[str, float] = {}

    def order(self, queues: Sequence[str], shares: WorkerShares) -> list[str]:
        """The queues, the one that is to be served next first."""
        if shares.among is SharedAmong.STRICT:
            return list(queues)
        return sorted(queues, key=lambda queue: self._passes.get(queue, 0.0))

    def served(self, queues: Sequence[str], shares: WorkerShares, counts: Mapping[str, int]) -> None:
        """So many tasks were taken of each. Who had none to give saves nothing for later."""
        if not counts:
            return
        before = {queue: self._passes.get(queue, 0.0) for queue in queues}
        least = min(before[queue] for queue in counts)
        now = {
            queue: before[queue] + counts[queue] / shares.weights.get(queue, 1)
            if queue in counts
            else max(before[queue], least)
            for queue in queues
        }
        # Numbers stay small however long the process runs.
        base = min(now.values())
        self._passes |= {queue: passed - base for queue, passed in now.items()}


def moved(tables: Sequence[Table], at: int, of: int, among: SharedAmong) -> tuple[Table, ...]:
    """The tables of a queue that is at this place among so many."""
    if among is SharedAmong.RANK:
        return tuple(_each(table, head_start=(of - at) * _LEVEL, rank=0) for table in tables)
    return tuple(_each(table, head_start=0, rank=at * _RANKS) for table in tables)


def _each(table: Table, *, head_start: Span, rank: int) -> Table:
    critical, high, medium, low = (
        replace(
            line,
            rank=line.rank + rank,
            head_start=line.head_start + head_start,
            steps=tuple(Step(step.after, step.rank + rank) for step in line.steps),
        )
        for line in table
    )
    return critical, high, medium, low
