"""Which lanes a claim looks at in a memory store, where there are too many to look at each."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from operator import itemgetter

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.task import Priority
from fairlead.storage.claim_limits import LimitGate, PlainFront
from fairlead.storage.fair_line import FairEntries
from fairlead.storage.lane_merge import Head
from fairlead.storage.lane_search import Bound, Entry, Front
from fairlead.storage.memory.concurrency_keys import Keyed, KeyedFront
from fairlead.storage.memory.lanes import Kind, LaneGroup, Lanes, ReadyLane
from fairlead.storage.memory.turns import FairTurns
from fairlead.storage.values import Claim


class ClaimLanes:
    """The lanes of one claim, by lower bounds of their heads.

    What it looks at is taken out of the bounds, and put back with what is known of it by then. A lane of a type that it
    may not take is put where claims of the same types do not meet it again. The owner holds the lock.
    """

    def __init__(self, lanes: Lanes, keyed: Keyed, claim: Claim, gate: LimitGate) -> None:
        self.few = lanes.most_at_once
        self._lanes = lanes
        self._keyed = keyed
        self._claim = claim
        self._gate = gate
        self._out: dict[ReadyLane, Bound] = {}
        """The lanes that were looked at, and their bounds as far as they were not opened."""
        self._opened: dict[ReadyLane, None] = {}
        self._groups: list[LaneGroup] = []
        self._view = claim.types, claim.excluded_types
        self._passed: list[ReadyLane] = []

    def lines(self, queue: str) -> Mapping[Priority, Iterator[Entry]]:
        lanes = self._lanes.queues.get(queue)
        if lanes is None:
            return {}
        walks: dict[Priority, list[Iterator[Entry]]] = {}
        for group in lanes.groups.values():
            if self._meets(group.kind):
                walks.setdefault(group.kind[1], []).append(self._walk(group))
        return {
            priority: each[0] if len(each) == 1 else heapq.merge(*each, key=itemgetter(0, 1))
            for priority, each in walks.items()
        }

    def queues(self) -> Mapping[Priority, Iterator[tuple[Instant, TaskId, str]]]:
        walks: dict[Priority, list[Iterator[tuple[Instant, TaskId, str]]]] = {}
        for kind in self._lanes.groups:
            if self._meets(kind) or (kind[3] and self._claim.capabilities.issuperset(kind[2])):
                walks.setdefault(kind[1], []).append(self._walk_groups(kind))
        return {priority: heapq.merge(*each) for priority, each in walks.items()}

    def open(self, entry: Entry) -> Front | None:
        if isinstance(entry[2], _LateFront):
            return entry[2]
        line: ReadyLane = entry[2]
        if self._gate.shut(line.lane):
            return None
        del self._out[line]
        self._opened[line] = None
        return front_of(line, self._keyed)

    def put_back(self) -> None:
        """Once the claim has chosen: what was looked at is in the index again, by its head if that is known."""
        for line in self._passed:
            self._lanes.pass_over(line, self._view, self._out.pop(line))
        for line, bound in self._out.items():
            self._lanes.offer(line, bound)
        for line in self._opened:
            self._offer_head(line)
        for group in self._groups:
            first = group.bounds.first()
            if first is not None:
                self._lanes.offer_group(group, first)

    def _offer_head(self, line: ReadyLane) -> None:
        head = self._keyed.peek(line.lane) if line.lane.keyed else line.ready.peek()
        if head is not None:
            self._lanes.offer(line, (head[0], head[1]))

    def _meets(self, kind: Kind) -> bool:
        views, _, requires, fair = kind
        return not fair and self._view not in views and self._claim.capabilities.issuperset(requires)

    def _walk(self, group: LaneGroup) -> Iterator[Entry]:
        while (found := group.bounds.pop()) is not None:
            bound, line = found
            if line in self._opened:
                continue  # Another of its keys has come to its front.
            self._out[line] = bound
            if self._claim.admits(line.lane):
                yield (*bound, line)
            else:
                self._passed.append(line)

    def _walk_groups(self, kind: Kind) -> Iterator[tuple[Instant, TaskId, str]]:
        while (found := self._lanes.groups[kind].pop()) is not None:
            bound, group = found
            self._groups.append(group)
            yield (*bound, group.queue)


def front_of(line: ReadyLane, keyed: Keyed) -> Front:
    """The front of a lane."""
    return KeyedFront(keyed, line.lane) if line.lane.keyed else PlainFront(line.lane, line.ready.heads())


class FairLanes:
    """The lanes of fair tasks that a claim may take from, each in both orders, by lower bounds of their heads.

    As with other lanes, what it looks at is taken out of the bounds and put back with what is known of it by then.
    """

    def __init__(self, lanes: Lanes, turns: FairTurns, claim: Claim) -> None:
        self._lanes = lanes
        self._turns = turns
        self._claim = claim
        self._view = claim.types, claim.excluded_types
        self._out: dict[tuple[ReadyLane, bool], Bound] = {}
        """The lanes that were looked at by age, or by turn, and their bounds as far as they were not opened."""
        self._opened: set[tuple[ReadyLane, bool]] = set()
        self._passed: set[ReadyLane] = set()

    def fair_lines(self, queue: str) -> Mapping[Priority, FairEntries]:
        lanes = self._lanes.queues.get(queue)
        groups: dict[Priority, list[LaneGroup]] = {}
        for group in () if lanes is None else lanes.groups.values():
            views, priority, requires, fair = group.kind
            if fair and self._view not in views and self._claim.capabilities.issuperset(requires):
                groups.setdefault(priority, []).append(group)
        return {
            priority: FairEntries(
                heapq.merge(*(self._walk(group, by_turn=False) for group in each), key=itemgetter(0, 1)),
                heapq.merge(*(self._walk(group, by_turn=True) for group in each), key=itemgetter(0, 1)),
                self._turns.of(queue, priority),
            )
            for priority, each in groups.items()
        }

    def _walk(self, group: LaneGroup, *, by_turn: bool) -> Iterator[Entry]:
        bounds = group.turn_bounds if by_turn else group.bounds
        while (found := bounds.pop()) is not None:
            bound, line = found
            self._out[line, by_turn] = bound
            if self._claim.admits(line.lane):
                yield (*bound, _LateFront(self, line, by_turn))
            else:
                self._passed.add(line)

    def open(self, line: ReadyLane, *, by_turn: bool) -> PlainFront:
        """The front of a lane in one of its orders."""
        self._out.pop((line, by_turn), None)
        self._opened.add((line, by_turn))
        order = line.turns if by_turn else line.ready
        return PlainFront(line.lane, iter(()) if order is None else order.heads())

    def put_back(self) -> None:
        """Once the claim has chosen: what was looked at is in the index again, by its head if that is known."""
        for (line, by_turn), bound in self._out.items():
            self._offer(line, bound, by_turn=by_turn)
        for line, by_turn in self._opened:
            order = line.turns if by_turn else line.ready
            head = None if order is None else order.peek()
            if head is not None:
                self._offer(line, (head[0], head[1]), by_turn=by_turn)
        for line in self._passed:
            self._lanes.pass_over(line, self._view)

    def _offer(self, line: ReadyLane, bound: Bound, *, by_turn: bool) -> None:
        if by_turn:
            line.group.turn_bounds.lower(line, bound)
        else:
            self._lanes.offer(line, bound)


class _LateFront:
    """The front of a lane of fair tasks, which is opened when it may be the best."""

    key = ""

    def __init__(self, lanes: FairLanes, line: ReadyLane, by_turn: bool) -> None:
        self.lane = line.lane
        self._of = lanes, line, by_turn
        self._front: PlainFront | None = None

    @property
    def head(self) -> Head | None:
        if self._front is None:
            lanes, line, by_turn = self._of
            self._front = lanes.open(line, by_turn=by_turn)
        return self._front.head

    def take(self) -> None:
        if self._front is not None:
            self._front.take()

    def close(self, until: Instant) -> None:
        raise AssertionError(f"lane {self.lane} has no keys")
