"""The merge of lane heads by the order of service, for stores that merge in Python."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from fairlead.core.instant import Instant
from fairlead.core.order import ServiceKey, Table, service_key
from fairlead.core.task import Lane, Priority
from fairlead.storage.values import Claim

Head: TypeAlias = tuple[Any, ...]
"""When a task's wait began, its id, and whatever the store wants to get back: lanes are in this order."""


def merge(claim: Claim, lanes: Iterable[tuple[Lane, Iterator[Head]]]) -> list[Head]:
    """The heads a claim takes, best first.

    Each lane's iterator is advanced past a head when, and only when, that head is taken. Lanes of one queue and
    priority are in the same order under every table, so they are merged first and each turn compares a few lines.
    """
    lines: dict[tuple[str, Priority], list[Iterator[Head]]] = {}
    for lane, heads in lanes:
        lines.setdefault((lane.queue, lane.priority), []).append(heads)
    merged = {line: heapq.merge(*heads) if len(heads) > 1 else heads[0] for line, heads in lines.items()}
    tables = {order.queue: order.tables for order in claim.queues}
    waiting = [_Line(line, head, tables[line[0]]) for line, heads in merged.items() if (head := next(heads, None))]
    taken: list[Head] = []
    while waiting and len(taken) < claim.limit:
        turn = len(taken)
        best = min(waiting, key=lambda line: line.key(turn, claim.now)) if len(waiting) > 1 else waiting[0]
        taken.append(best.head)
        if head := next(merged[best.name], None):
            best.advance(head)
        else:
            waiting.remove(best)
    return taken


class _Line:
    """One queue and priority: its head, and what the order of service compares it by."""

    def __init__(self, name: tuple[str, Priority], head: Head, tables: tuple[Table, ...]) -> None:
        self.name = name
        self.head = head
        self._tables = tables
        self._key: ServiceKey | None = None

    def advance(self, head: Head) -> None:
        self.head = head
        self._key = None

    def key(self, turn: int, now: Instant) -> ServiceKey:
        tables = self._tables
        if self._key is None or len(tables) > 1:
            ready_at, task, *_ = self.head
            self._key = service_key(tables[turn % len(tables)], self.name[1], ready_at, task, now)
        return self._key
