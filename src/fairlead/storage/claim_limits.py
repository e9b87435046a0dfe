"""Claims under limits, for stores that choose in Python.

What is chosen is what the order of service would choose if tasks that a limit blocks were not there. A lane whose queue
or type is full is left alone for the rest of the claim. In a lane of keyed tasks only the first task of each key is to
be seen (see L5 of the contract), so passing over a full key costs one step however many tasks it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

from fairlead.core.instant import Instant
from fairlead.core.queues.limits import NO_LIMITS, Limit, Limits, Meter
from fairlead.core.task import Lane
from fairlead.storage.lane_merge import Head, Standing, Turns
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
        running: Mapping[tuple[str, str], int],
        due: Callable[[str, str], Instant | None],
        running_of_key: Callable[[str, str], int],
    ) -> None:
        """Under what runs of each queue and type, when a queue's names are due, and how many of a queue's key run."""
        self._now = claim.at
        self._limits = limits_of(claim)
        self._running = running
        self._due = due
        self._running_of_key = running_of_key
        self._meters: dict[tuple[str, str], Meter] = {}

    def shut(self, lane: Lane) -> bool:
        """Whether its queue or its type lets no more start now."""
        return any(meter.opens_at(self._now) > self._now for meter in self._wide(lane))

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
            yield self._meter(lane.queue, QUEUE_NAME, limits.queue, lambda: self._sum(lane.queue, None))
        limit = limits.types.get(lane.type)
        if limit is not None:
            yield self._meter(lane.queue, type_name(lane.type), limit, lambda: self._sum(lane.queue, lane.type))

    def _key(self, queue: str, key: str) -> Meter:
        limit = self._limits[queue].key
        return self._meter(queue, key_name(key), limit, lambda: self._running_of_key(queue, key))

    def _sum(self, queue: str, task_type: str | None) -> int:
        return sum(
            count
            for (of_queue, of_type), count in self._running.items()
            if of_queue == queue and task_type in (None, of_type)
        )

    def _meter(self, queue: str, name: str, limit: Limit, running: Callable[[], int]) -> Meter:
        meter = self._meters.get((queue, name))
        if meter is None:
            due = None if limit.pace is None else self._due(queue, name)
            meter = self._meters[queue, name] = Meter(limit, running(), due)
        return meter


_NONE: Final = Limit()


def limits_of(claim: Claim) -> dict[str, Limits]:
    """The limits of a claim's queues."""
    return {order.queue: order.limits or NO_LIMITS for order in claim.queues}


def merge_limited(claim: Claim, fronts: Iterable[Front], gate: LimitGate) -> list[Head]:
    """The heads a claim takes, best first. Each front is told what became of its head."""
    turns = Turns(claim)
    left = [front for front in fronts if front.head is not None]
    taken: list[Head] = []
    while left and len(taken) < claim.limit:
        best = turns.best(left, len(taken), _standing)
        head = best.head
        if head is None or gate.shut(best.lane):
            left.remove(best)
            continue
        if best.lane.keyed and (until := gate.key_opens_at(best.lane, best.key)) > claim.at:
            best.close(until)
        else:
            gate.start(best.lane, best.key)
            turns.served(_standing(best))
            taken.append(head)
            best.take()
        if best.head is None:
            left.remove(best)
    return taken


def _standing(front: Front) -> Standing:
    lane, (ready_at, task_id, *_) = front.lane, front.head or ()
    return lane.queue, lane.priority, ready_at, task_id
