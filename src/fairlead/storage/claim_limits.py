"""Claims under limits, for stores that choose in Python.

What is chosen is what the order of service would choose if tasks that a limit blocks were not there. A lane whose queue
or type is full is left alone for the rest of the claim. In a lane of keyed tasks only the first task of each key is to
be seen (see L5 of the contract), so passing over a full key costs one step however many tasks it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Final

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.queues.fairness import LineTurns
from fairlead.core.queues.limits import NO_LIMITS, Limit, Limits, Meter
from fairlead.core.task import Lane, Priority
from fairlead.storage.lane_merge import Head
from fairlead.storage.lane_search import FEW, Entry, FairSource, Front, LaneSearch, LaneSource
from fairlead.storage.values import Claim

QUEUE_NAME: Final = "q"
"""The name under which the rate of starts of a whole queue is kept."""

LOOKS_AT_ONCE: Final = 1_000
"""How many keys that may go on a claim looks at; the others wait for the next one."""


def type_name(task_type: str) -> str:
    """The name under which a queue's rate of starts of this type is kept."""
    return f"t{task_type}"


def key_name(key: str) -> str:
    """The name under which a queue's rate of starts of this key is kept."""
    return f"k{key}"


class PlainFront:
    """The front of a lane whose tasks have no keys."""

    key = ""

    def __init__(self, lane: Lane, heads: Iterator[Head]) -> None:
        self.lane = lane
        self._heads = heads
        self.head = next(heads, None)

    def take(self) -> None:
        self.head = next(self._heads, None)

    def close(self, until: Instant) -> None:
        raise AssertionError(f"lane {self.lane} has no keys")


class LimitGate:
    """What the limits of a claim's queues leave room for, as the claim goes on."""

    def __init__(
        self,
        claim: Claim,
        running: Callable[[str, str | None], int],
        due: Callable[[str, str], Instant | None],
        running_of_key: Callable[[str, str], int],
    ) -> None:
        """Under what runs of a queue, or of a type in it, when its names are due, and how many of a key run."""
        self._now = claim.at
        self._limits = limits_of(claim)
        self._running = running
        self._due = due
        self._running_of_key = running_of_key
        self._meters: dict[tuple[str, str], Meter] = {}

    def shut(self, lane: Lane) -> bool:
        """Whether its queue or its type lets no more start now."""
        return any(meter.opens_at(self._now) > self._now for meter in self._wide(lane))

    def shuts(self, queue: str) -> bool:
        """Whether a queue lets no more start now, whatever it is."""
        limit = self._limits[queue].queue
        return limit != _NONE and self._of_queue(queue, limit).opens_at(self._now) > self._now

    def key_opens_at(self, lane: Lane, key: str) -> Instant:
        """From when on one more task of a key may start."""
        return self._key(lane.queue, key).opens_at(self._now)

    def start(self, lane: Lane, key: str) -> None:
        """Count a task that is taken."""
        for meter in self._wide(lane):
            meter.start(self._now)
        if lane.keyed:
            self._key(lane.queue, key).start(self._now)

    def dues(self) -> dict[tuple[str, str], Instant]:
        """When the next starts are due, by queue and name, of what has a rate and was looked at."""
        return {thing: meter.due for thing, meter in self._meters.items() if meter.due is not None}

    def _wide(self, lane: Lane) -> Iterator[Meter]:
        limits = self._limits[lane.queue]
        if limits.queue != _NONE:
            yield self._of_queue(lane.queue, limits.queue)
        limit = limits.types.get(lane.type)
        if limit is not None:
            yield self._meter(lane.queue, type_name(lane.type), limit, lambda: self._running(lane.queue, lane.type))

    def _of_queue(self, queue: str, limit: Limit) -> Meter:
        return self._meter(queue, QUEUE_NAME, limit, lambda: self._running(queue, None))

    def _key(self, queue: str, key: str) -> Meter:
        limit = self._limits[queue].key
        return self._meter(queue, key_name(key), limit, lambda: self._running_of_key(queue, key))

    def _meter(self, queue: str, name: str, limit: Limit, running: Callable[[], int]) -> Meter:
        meter = self._meters.get((queue, name))
        if meter is None:
            due = None if limit.pace is None else self._due(queue, name)
            count = 0 if limit.running is None else running()
            meter = self._meters[queue, name] = Meter(limit, count, due)
        return meter


_NONE: Final = Limit()


def limits_of(claim: Claim) -> dict[str, Limits]:
    """The limits of a claim's queues."""
    return {order.queue: order.limits or NO_LIMITS for order in claim.queues}


def running_in(counts: Mapping[tuple[str, str], int]) -> Callable[[str, str | None], int]:
    """How many tasks run of a queue, or of a type in it, by the numbers of each queue and type."""

    def running(queue: str, task_type: str | None) -> int:
        if task_type is not None:
            return counts.get((queue, task_type), 0)
        return sum(count for (of_queue, _), count in counts.items() if of_queue == queue)

    return running


def choose(claim: Claim, index: LaneSource, gate: LimitGate, fair: FairSource | None = None) -> list[Head]:
    """The heads a claim takes, best first. Each front is told what became of its head."""
    return choose_fair(claim, index, gate, fair)[0]


def choose_fair(
    claim: Claim, index: LaneSource, gate: LimitGate, fair: FairSource | None
) -> tuple[list[Head], dict[tuple[str, Priority], LineTurns]]:
    """The same, and how far the turns of fair tasks have come by that, by queue and priority."""

    def may_take(front: Front) -> bool | None:
        if gate.shut(front.lane):
            return None
        if front.lane.keyed and (until := gate.key_opens_at(front.lane, front.key)) > claim.at:
            front.close(until)
            return False
        return True

    search = LaneSearch(claim, index, gate.shuts, fair, may_take)
    taken: list[Head] = []
    while len(taken) < claim.limit and (front := search.best(len(taken))) is not None:
        lane, head = front.lane, front.head
        if gate.shuts(lane.queue):
            search.leave(lane.queue)
        elif head is None or gate.shut(lane):
            search.drop(lane.queue)
        elif lane.keyed and (until := gate.key_opens_at(lane, front.key)) > claim.at:
            front.close(until)
            search.moved(lane.queue)
        else:
            search.served(lane.queue)
            gate.start(lane, front.key)
            taken.append(head)
            front.take()
            search.moved(lane.queue)
    return taken, search.turns()


def merge_limited(claim: Claim, fronts: Iterable[Front], gate: LimitGate) -> list[Head]:
    """The heads a claim takes of lanes that are all open, best first."""
    return choose(claim, OpenLanes(fronts), gate)


class OpenLanes:
    """Lanes whose heads are known."""

    few = FEW

    def __init__(self, fronts: Iterable[Front]) -> None:
        self._lines: dict[str, dict[Priority, list[Entry]]] = {}
        for front in fronts:
            if front.head is not None:
                line = self._lines.setdefault(front.lane.queue, {}).setdefault(front.lane.priority, [])
                line.append((front.head[0], front.head[1], front))

    def lines(self, queue: str) -> Mapping[Priority, Iterator[Entry]]:
        lines = self._lines.get(queue, {})
        return {priority: iter(sorted(line, key=itemgetter(0, 1))) for priority, line in lines.items()}

    def queues(self) -> Mapping[Priority, Iterator[tuple[Instant, TaskId, str]]]:
        best: dict[Priority, list[tuple[Instant, TaskId, str]]] = {}
        for queue, lines in self._lines.items():
            for priority, line in lines.items():
                best.setdefault(priority, []).append((*min(line, key=itemgetter(0, 1))[:2], queue))
        return {priority: iter(sorted(entries)) for priority, entries in best.items()}

    def open(self, entry: Entry) -> Front | None:
        # Whether it is shut is asked when it is its turn: what ends a claim may be told by the lane that comes then.
        front: Front = entry[2]
        return front
