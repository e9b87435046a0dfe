"""A claim's search for the next task among lanes, however many there are: it opens only those that may have it.

A store's index gives lanes by a lower bound of what their heads are compared by. A lane is opened, which tells its
true head, when its bound is not beyond the best head that is known; so a claim costs what it takes and passes over,
and bounds may be out of date as long as they are lower ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol, TypeAlias

from msgspec.structs import replace

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.queues.fairness import LineTurns
from fairlead.core.queues.order import ServiceKey, Table, passed_after, pick_line, service_key
from fairlead.core.task import Lane, Priority
from fairlead.storage.fair_line import FairEntries, FairLine
from fairlead.storage.lane_merge import Head
from fairlead.storage.values import Claim, QueueOrder

FEW: Final = 16
"""Up to how many lanes, and how many queues, a claim looks at each."""

Bound: TypeAlias = tuple[Instant, TaskId]
"""A place in the order of a lane that is not beyond its head."""
Entry: TypeAlias = tuple[Instant, TaskId, Any]
"""The bound of a lane, and what its store opens it by."""


class Front(Protocol):
    """The front of one lane, as a claim goes through it."""

    lane: Lane

    @property
    def head(self) -> Head | None:
        """The best task that is left of it."""
        ...

    @property
    def key(self) -> str:
        """The head's concurrency key, in a lane of keyed tasks."""
        ...

    def take(self) -> None:
        """The head is taken: go on to the next."""
        ...

    def close(self, until: Instant) -> None:
        """The head's key is full until then: put its tasks aside and go on to the next."""
        ...


class LaneSource(Protocol):
    """The lanes that a claim may take from, by lower bounds of their heads."""

    @property
    def few(self) -> int:
        """Up to how many queues the claim enters at once."""
        ...

    def lines(self, queue: str) -> Mapping[Priority, Iterator[Entry]]:
        """The lanes of a queue by priority, each in the order of their bounds."""
        ...

    def queues(self) -> Mapping[Priority, Iterator[tuple[Instant, TaskId, str]]]:
        """The queues of all lanes of a priority, also queues that were not asked for, in the order of their bounds.

        Only asked of claims of many queues.
        """
        ...

    def open(self, entry: Entry) -> Front | None:
        """The front of a lane; None if the claim may take nothing of it after all."""
        ...


class FairSource(Protocol):
    """The lanes of fair tasks that a claim may take from."""

    def fair_lines(self, queue: str) -> Mapping[Priority, FairEntries]:
        """Those of a queue by priority; none where no fair task waits."""
        ...


class NoFair:
    """The source of a claim whose queues have no fair tasks."""

    def fair_lines(self, queue: str) -> Mapping[Priority, FairEntries]:
        """None."""
        del queue
        return {}


class LineFronts:
    """The lanes of one queue and priority."""

    def __init__(self, entries: Iterator[Entry], open_entry: Callable[[Entry], Front | None]) -> None:
        self._entries = entries
        self._open = open_entry
        self._next = next(entries, None)
        self._opened: list[tuple[Instant, TaskId, int, Front]] = []
        self._count = 0

    def best(self) -> Front | None:
        """The lane that has the best head."""
        while self._next is not None and (not self._opened or self._next[:2] <= self._opened[0][:2]):
            front = self._open(self._next)
            if front is not None and front.head is not None:
                self._count += 1
                heapq.heappush(self._opened, (front.head[0], front.head[1], self._count, front))
            self._next = next(self._entries, None)
        return self._opened[0][3] if self._opened else None

    def moved(self) -> None:
        """The best lane has another head now."""
        *_, count, front = self._opened[0]
        if front.head is None:
            heapq.heappop(self._opened)
        else:
            heapq.heapreplace(self._opened, (front.head[0], front.head[1], count, front))

    def drop(self) -> None:
        """Nothing more is taken of the best lane."""
        heapq.heappop(self._opened)


class _Queue:
    """The lanes of one queue of a claim, and what it would serve next."""

    def __init__(
        self, order: QueueOrder, lines: Mapping[Priority, LineFronts | FairLine[Front]], now: Instant, turn: int
    ) -> None:
        self._tables = order.tables
        self._turns = order.turns
        self._now = now
        self._lines = lines
        self._heads: dict[Priority, tuple[ServiceKey, Front]] = {}
        self._turn = turn % len(order.tables)
        self._fair = any(isinstance(line, FairLine) for line in lines.values())
        self.key: ServiceKey | None = None
        """What its next task is compared with other queues' by; None if nothing is left."""
        self.front: Front | None = None
        """The lane of that task."""
        self._chosen = Priority.CRITICAL
        self._by_age = False
        """Whether it is served by its age, where others take turns."""
        for priority in lines:
            self._look(priority)
        self._choose()

    @property
    def steady(self) -> bool:
        """Whether every turn has the same table."""
        return len(self._tables) == 1

    def turn(self, number: int) -> None:
        """Choose anew, by the table of this turn."""
        if not self.steady:
            self._turn = number % len(self._tables)
            for priority in self._lines:
                self._look(priority)
            self._choose()

    def settle(self) -> bool:
        """Find its next task where fair tasks wait, once it is its turn; whether it is what it seemed to be.

        What limits have blocked meanwhile would be passed over when it comes, but must not stand for its line.
        """
        if not self._fair:
            return True
        key = self.key
        for priority, line in self._lines.items():
            if isinstance(line, FairLine):
                self._look(priority)
        self._choose()
        chosen = self._lines[self._chosen]
        if self.key is not None and isinstance(chosen, FairLine):
            self.front = chosen.best() if self._by_age else chosen.next()
        return self.key == key

    def served(self) -> None:
        """Take note that its next task is being served."""
        line = self._lines[self._chosen]
        if self._turns.share is not None and self.front is not None and self.front.head is not None:
            # Who is served by turn is not promoted, or it would be those who are that are served.
            waited = 0 if isinstance(line, FairLine) and not self._by_age else self._now - self.front.head[0]
            self._turns = replace(self._turns, passed=passed_after(self._turns, [(self._chosen, waited)]))
        if isinstance(line, FairLine):
            line.served(by_age=self._by_age)

    def moved(self) -> None:
        """The lane of its next task has another head now."""
        self._lines[self._chosen].moved()
        self._look(self._chosen)
        self._choose()

    def drop(self) -> None:
        """Nothing more is taken of the lane of its next task."""
        self._lines[self._chosen].drop()
        self._look(self._chosen)
        self._choose()

    def _look(self, priority: Priority) -> None:
        front = self._lines[priority].best()
        if front is None or front.head is None:
            self._heads.pop(priority, None)
        else:
            ready_at, task_id, *_ = front.head
            key = service_key(self._tables[self._turn], priority, ready_at, task_id, self._now)
            self._heads[priority] = key, front

    def _choose(self) -> None:
        heads = self._heads
        self.key = self.front = None
        if not heads:
            return
        share = self._turns.share
        if len(heads) == 1 and not self._fair and (share is None or not share.everywhere):
            ((self._chosen, (self.key, self.front)),) = heads.items()
            return
        candidates = [(priority, key) for priority, (key, _) in heads.items()]
        at, self.key, self._by_age = pick_line(self._turns, self._turn, candidates)
        self._chosen = candidates[at][0]
        self.front = heads[self._chosen][1]


class LaneSearch:
    """The lanes that a claim goes through, best first."""

    def __init__(
        self,
        claim: Claim,
        index: LaneSource,
        is_shut: Callable[[str], bool],
        fair: FairSource | None = None,
        may_take: Callable[[Front], bool | None] = lambda _: True,
    ) -> None:
        """`is_shut` says of which queues nothing may be taken, and `may_take` of which fronts: see `FairLine`."""
        self._fair = fair or NoFair()
        self._may_take = may_take
        self._fair_lines: dict[tuple[str, Priority], FairLine[Front]] = {}
        self._orders = {order.queue: order for order in claim.queues}
        self._now = claim.at
        self._index = index
        self._is_shut = is_shut
        self._queues: dict[str, _Queue] = {}
        """Those that were entered and have something left."""
        self._entered: set[str] = set()
        self._turn = 0
        self._heap: list[tuple[ServiceKey, str]] = []
        """Their keys, if every turn has the same table; old ones are found by what they no longer say."""
        self._tables = _distinct([order.tables for order in claim.queues])
        self._steady = all(len(tables) == 1 for tables in self._tables)
        self._dormant: dict[Priority, Iterator[tuple[Instant, TaskId, str]]] = {}
        self._next: dict[Priority, tuple[Instant, TaskId, str]] = {}
        self._passed = 0
        if len(self._orders) <= index.few:
            self._enter(self._orders)
        else:
            self._dormant = dict(index.queues())
            for priority in tuple(self._dormant):
                self._advance(priority)

    def best(self, turn: int) -> Front | None:
        """The lane whose head is served next; None when nothing is left."""
        self._turn = turn
        if not self._steady:
            for entered in self._queues.values():
                entered.turn(turn)
        best = self._settled()
        while (next_queue := self._to_enter(best)) is not None:
            priority, queue = next_queue
            self._enter([queue])
            self._advance(priority)
            best = self._settled()
        return None if best is None else self._queues[best[1]].front

    def served(self, queue: str) -> None:
        """Take note that the next task of a queue is being served."""
        self._queues[queue].served()

    def moved(self, queue: str) -> None:
        """The best lane of a queue has another head now."""
        self._queues[queue].moved()
        self._keep(queue)

    def drop(self, queue: str) -> None:
        """Nothing more is taken of the best lane of a queue."""
        self._queues[queue].drop()
        self._keep(queue)

    def leave(self, queue: str) -> None:
        """Nothing more is taken of a queue."""
        del self._queues[queue]

    def turns(self) -> dict[tuple[str, Priority], LineTurns]:
        """How far the turns of fair tasks have come, by queue and priority."""
        return {name: line.turns for name, line in self._fair_lines.items()}

    def _settled(self) -> tuple[ServiceKey, str] | None:
        best = self._best()
        while best is not None and not self._queues[best[1]].settle():
            self._keep(best[1])
            best = self._best()
        return best

    def _best(self) -> tuple[ServiceKey, str] | None:
        if not self._steady:
            found = [(queue.key, name) for name, queue in self._queues.items() if queue.key is not None]
            return min(found, default=None)
        heap = self._heap
        while heap:
            key, name = heap[0]
            queue = self._queues.get(name)
            if queue is not None and queue.key == key:
                return heap[0]
            heapq.heappop(heap)
        return None

    def _keep(self, name: str) -> None:
        key = self._queues[name].key
        if key is None:
            del self._queues[name]
        elif self._steady:
            heapq.heappush(self._heap, (key, name))

    def _enter(self, queues: Iterable[str]) -> None:
        for name in queues:
            if name in self._entered:
                continue
            self._entered.add(name)
            if self._is_shut(name):
                continue
            plain = {priority: LineFronts(each, self._index.open) for priority, each in self._index.lines(name).items()}
            lines: dict[Priority, LineFronts | FairLine[Front]] = {**plain}
            for priority, entries in self._fair.fair_lines(name).items():
                others = plain.get(priority) or LineFronts(iter(()), self._index.open)
                both = LineFronts(entries.by_age, self._index.open), LineFronts(entries.by_turn, self._index.open)
                line = FairLine(others, both, entries.turns, self._may_take)
                lines[priority] = self._fair_lines[name, priority] = line
            self._queues[name] = _Queue(self._orders[name], lines, self._now, self._turn)
            self._keep(name)

    def _to_enter(self, best: tuple[ServiceKey, str] | None) -> tuple[Priority, str] | None:
        """The queue that may have a better task than the best that is known."""
        for priority, (ready_at, task_id, queue) in self._next.items():
            keys = [
                service_key(tables[self._turn % len(tables)], priority, ready_at, task_id, self._now)
                for tables in self._tables
            ]
            if best is None or min(keys) <= best[0]:
                return priority, queue
        return None

    def _advance(self, priority: Priority) -> None:
        """Go on to the next queue that was not entered; to all of them, if there are too many others between."""
        for entry in self._dormant.get(priority, ()):
            if entry[2] in self._orders and entry[2] not in self._entered:
                self._next[priority] = entry
                return
            self._passed += 1
            if self._passed > self._index.few + 2 * len(self._orders):
                self._next.clear()
                self._dormant.clear()
                self._enter(self._orders)
                return
        self._next.pop(priority, None)


def _distinct(tables: Iterable[tuple[Table, ...]]) -> list[tuple[Table, ...]]:
    found: list[tuple[Table, ...]] = []
    for each in tables:
        if each not in found:
            found.append(each)
    return found
