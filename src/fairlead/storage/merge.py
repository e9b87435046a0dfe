"""The merge of lane heads by the order of service, for stores that merge in Python."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.order import ServiceKey, service_key
from fairlead.core.task import Lane, Priority
from fairlead.storage.values import Claim

Head: TypeAlias = tuple[Instant, TaskId]
"""When a task's wait began, and its id: lanes are in this order."""


def merge(claim: Claim, lanes: Iterable[tuple[Lane, Iterator[Head]]]) -> list[TaskId]:
    """The ids a claim takes, best first.

    Each lane's iterator is advanced past a head when, and only when, that head is taken. Lanes of one queue and
    priority are in the same order under every table, so they are merged first and each turn compares a few lines.
    """
    lines: dict[tuple[str, Priority], list[Iterator[Head]]] = {}
    for lane, heads in lanes:
        lines.setdefault((lane.queue, lane.priority), []).append(heads)
    merged = {line: heapq.merge(*heads) if len(heads) > 1 else heads[0] for line, heads in lines.items()}
    waiting = {line: head for line, heads in merged.items() if (head := next(heads, None))}
    tables = {order.queue: order.tables for order in claim.queues}
    taken: list[TaskId] = []
    while waiting and len(taken) < claim.limit:
        turn = len(taken)

        def key(line: tuple[str, Priority], turn: int = turn) -> ServiceKey:
            queue, priority = line
            choices = tables[queue]
            ready_at, task = waiting[line]
            return service_key(choices[turn % len(choices)], priority, ready_at, task, claim.now)

        best = min(waiting, key=key) if len(waiting) > 1 else next(iter(waiting))
        taken.append(waiting[best][1])
        if head := next(merged[best], None):
            waiting[best] = head
        else:
            del waiting[best]
    return taken
