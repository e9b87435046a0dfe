"""The merge of lane heads by the order of service, for stores that merge in Python."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

from msgspec.structs import replace

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.queues.order import (
    Candidate,
    ServiceKey,
    next_by_turns,
    passed_after,
    rank_after,
    service_key,
)
from fairlead.core.task import Lane, Priority
from fairlead.storage.values import Claim, QueueOrder

Head: TypeAlias = tuple[Any, ...]
"""When a task's wait began, its id, and whatever the store wants to get back: lanes are in this order."""
Front = TypeVar("Front")
"""Whatever has a head."""
Standing: TypeAlias = tuple[str, Priority, Instant, TaskId]
"""The queue and the priority of a task, when its wait began and its id."""


class Turns:
    """Which of several heads is served next, as a claim goes on: the order of service with its shared places."""

    def __init__(self, claim: Claim) -> None:
        self._orders = {order.queue: order for order in claim.queues}
        self._turns = {order.queue: order.turns for order in claim.queues}
        self._now = claim.at

    def best(self, fronts: Iterable[Front], turn: int, standing: Callable[[Front], Standing]) -> Front:
        """The one to be served next; there is at least one."""
        best_of: dict[tuple[str, Priority], tuple[ServiceKey, Front]] = {}
        for front in fronts:
            queue, priority, ready_at, task_id = standing(front)
            tables = self._orders[queue].tables
            key = service_key(tables[turn % len(tables)], priority, ready_at, task_id, self._now)
            known = best_of.get((queue, priority))
            if known is None or key < known[0]:
                best_of[queue, priority] = key, front
        by_queue: dict[str, list[tuple[Candidate, Front]]] = {}
        for (queue, priority), (key, front) in best_of.items():
            by_queue.setdefault(queue, []).append(((priority, key), front))
        offered = [self._next_of(queue, heads) for queue, heads in by_queue.items()]
        return min(offered, key=lambda each: each[0])[1]

    def served(self, standing: Standing) -> None:
        """Take note of the one that is served."""
        queue, priority, ready_at, _ = standing
        turns = self._turns[queue]
        if turns.share is not None:
            self._turns[queue] = replace(turns, passed=passed_after(turns, [(priority, self._now - ready_at)]))

    def _next_of(self, queue: str, heads: Sequence[tuple[Candidate, Front]]) -> tuple[ServiceKey, Front]:
        turns = self._turns[queue]
        if turns.share is None or (len(heads) == 1 and not turns.share.everywhere):
            (_, key), front = min(heads, key=lambda each: each[0][1])
            return key, front
        at, key, _ = next_by_turns(turns.tables[0], turns.share, turns.passed, [candidate for candidate, _ in heads])
        return key, heads[at][1]


def merge(claim: Claim, lanes: Iterable[tuple[Lane, Iterator[Head]]]) -> list[Head]:
    """The heads a claim takes, best first.

    Each lane's iterator is advanced past a head when, and only when, that head is taken. Lanes of one queue and
    priority are in the same order under every table, so they are merged first and each turn compares a few lines.
    """
    by_line: dict[tuple[str, Priority], list[Iterator[Head]]] = {}
    for lane, heads in lanes:
        by_line.setdefault((lane.queue, lane.priority), []).append(heads)
    orders = {order.queue: order for order in claim.queues}
    # Under one table the best line stays the best until its head is worse than that of the second best.
    steady = all(len(order.tables) == 1 for order in claim.queues)
    lines = [_Line(priority, heads, orders[queue], claim.at) for (queue, priority), heads in by_line.items()]
    turns: Turns | None = None
    sharing = True
    taken: list[Head] = []
    while len(taken) < claim.limit and (waiting := [line for line in lines if line.head is not None]):
        # Heads only get younger as a claim goes on: where none has been promoted by now, none will be.
        sharing = sharing and len(waiting) > 1 and any(line.shares for line in waiting)
        if sharing:
            turns = turns or Turns(claim)
            best = turns.best(waiting, len(taken), _Line.standing)
            turns.served(best.standing())
            best.serve(taken, len(taken) + 1, None)
        else:
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

    def __init__(self, priority: Priority, heads: list[Iterator[Head]], order: QueueOrder, now: Instant) -> None:
        self._priority = priority
        self._heads = heapq.merge(*heads) if len(heads) > 1 else heads[0]
        self._order = order
        self._now = now
        self.head = next(self._heads, None)

    @property
    def shares(self) -> bool:
        """Whether its head was promoted, and so takes turns with others."""
        if self._order.share is None or self.head is None:
            return False
        line = self._order.tables[0][self._priority]
        return rank_after(line, self._now - self.head[0]) < line.rank

    def standing(self) -> Standing:
        assert self.head is not None  # noqa: S101 - only lines that have a head are compared
        return self._order.queue, self._priority, self.head[0], self.head[1]

    def key_of_head(self, turn: int) -> ServiceKey:
        assert self.head is not None  # noqa: S101 - only lines that have a head are compared
        tables = self._order.tables
        table = tables[turn % len(tables)]
        return service_key(table, self._priority, self.head[0], self.head[1], self._now)

    def serve(self, taken: list[Head], limit: int, bar: ServiceKey | None) -> None:
        """Take heads until so many are taken, the line ends, or its head is worse than the bar."""
        while self.head is not None:
            taken.append(self.head)
            self.head = next(self._heads, None)
            if len(taken) >= limit or (bar is not None and self.head is not None and self.key_of_head(0) > bar):
                return
