"""The merge of lane heads by the order of service, for stores that merge in Python."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any, TypeAlias

from fairlead.core.instant import Instant
from fairlead.core.queues.order import ServiceKey, Table, service_key
from fairlead.core.task import Lane, Priority
from fairlead.storage.values import Claim

Head: TypeAlias = tuple[Any, ...]
"""When a task's wait began, its id, and whatever the store wants to get back: lanes are in this order."""


def merge(claim: Claim, lanes: Iterable[tuple[Lane, Iterator[Head]]]) -> list[Head]:
    """The heads a claim takes, best first.

    Each lane's iterator is advanced past a head when, and only when, that head is taken. Lanes of one queue and
    priority are in the same order under every table, so they are merged first and each turn compares a few lines.
    """
    by_line: dict[tuple[str, Priority], list[Iterator[Head]]] = {}
    for lane, heads in lanes:
        by_line.setdefault((lane.queue, lane.priority), []).append(heads)
    tables = {order.queue: order.tables for order in claim.queues}
    # Under one table the best line stays the best until its head is worse than that of the second best.
    steady = all(len(order.tables) == 1 for order in claim.queues)
    lines = [_Line(priority, heads, tables[queue], claim.at) for (queue, priority), heads in by_line.items()]
    taken: list[Head] = []
    while len(taken) < claim.limit and (waiting := [line for line in lines if line.head is not None]):
        best, bar = _best(waiting, len(taken))
        best.serve(taken, claim.limit if steady else len(taken) + 1, bar)
    return taken


def _best(waiting: list[_Line], turn: int) -> tuple[_Line, ServiceKey | None]:
    """The line to be served next, and the key up to which it remains so; None if there is no other."""
    if len(waiting) == 1:
        return waiting[0], None
    for line in waiting:
        line.key = line.key_of_head(turn)
    best, second = heapq.nsmallest(2, waiting, key=attrgetter("key"))
    return best, second.key


class _Line:
    """The waiting tasks of one queue and priority, in the order of their wait."""

    key: ServiceKey

    def __init__(
        self, priority: Priority, heads: list[Iterator[Head]], tables: tuple[Table, ...], now: Instant
    ) -> None:
        self._priority = priority
        self._heads = heapq.merge(*heads) if len(heads) > 1 else heads[0]
        self._tables = tables
        self._now = now
        self.head = next(self._heads, None)

    def key_of_head(self, turn: int) -> ServiceKey:
        assert self.head is not None  # noqa: S101 - only lines that have a head are compared
        table = self._tables[turn % len(self._tables)]
        return service_key(table, self._priority, self.head[0], self.head[1], self._now)

    def serve(self, taken: list[Head], limit: int, bar: ServiceKey | None) -> None:
        """Take heads until so many are taken, the line ends, or its head is worse than the bar."""
        while self.head is not None:
            taken.append(self.head)
            self.head = next(self._heads, None)
            if len(taken) >= limit or (bar is not None and self.head is not None and self.key_of_head(0) > bar):
                return
