"""What a place in line and a forecast are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from fairlead.core.instant import SECOND, Instant, Span
from fairlead.core.queues.order import Policy, QueueTurns
from fairlead.core.queues.promotion import steady_turns
from fairlead.core.task import Lane, Priority, Task
from fairlead.engine.explain.limits_left import LimitsLeft
from fairlead.engine.metrics.throughput import Spent
from fairlead.engine.worker_records import WorkerRecord
from fairlead.storage.values import LaneTally

_TRUSTED: Final = 5.0
"""For as many seconds what ended of late counts, beside what has come since."""


class Arrivals(Struct, frozen=True):
    """How many tasks come per second."""

    rates: Mapping[Lane, float] = {}
    """By lane: as many as ended lately."""

    def seen(self, own: Lane, lanes: Sequence[LaneTally], came: Sequence[int], now: Instant) -> Arrivals:
        """The same, once it is known how many of each lane have come since its oldest did.

        None of these has been served yet, so they tell whether tasks still come: after a burst none do. Of lanes in
        which none waits, as many less come as of the task's own.
        """
        rates: dict[Lane, float] = {}
        for tally, count in zip(lanes, came, strict=True):
            if not tally.lane.keyed and tally.oldest_ready is not None:
                waited = max(0, now - tally.oldest_ready) / SECOND
                before = self.rates.get(tally.lane, 0.0)
                rates[tally.lane] = (count + before * _TRUSTED) / (waited + _TRUSTED)
        before = self.rates.get(own, 0.0)
        part = min(1.0, rates[own] / before) if before and own in rates else 1.0
        return Arrivals({lane: rate * part for lane, rate in self.rates.items()} | rates)


class Sight(Struct, frozen=True, kw_only=True):
    """All that a place and a forecast are made from."""

    task: Task
    now: Instant
    policy: Policy
    """Of its queue."""
    lanes: Sequence[LaneTally]
    """The lanes with ready tasks that the workers which could take it may take from now, in all their queues."""
    workers: Sequence[WorkerRecord]
    policies: Mapping[str, Policy] = {}
    """Of the other queues of these workers."""
    limited_elsewhere: bool = False
    """Whether any of these has limits."""
    passed: int | None = 0
    """How often others were served since a promoted task was; None if other processes claim, so that nobody knows."""
    limits: LimitsLeft = LimitsLeft()
    spent: Spent = Spent()
    """What the tasks took that ended lately in its queue."""
    spent_by_all: Spent = Spent()
    """The same in all queues of the workers that could take it."""
    running: int | None = None
    """How many of their tasks execute, by the store; None if other workers run such tasks too."""
    running_keyed: int = 0
    """How many of its queue's execute that have concurrency keys."""
    arrivals: Arrivals = Arrivals()
    parts: Mapping[Lane, float] = {}
    """How much of a lane these workers are expected to take, as a part; of lanes that are not here, all."""

    @property
    def turns(self) -> QueueTurns | None:
        """How its queue is served; None where each turn draws a table of its own."""
        return steady_turns(self.policy, self.passed or 0)

    @property
    def mean(self) -> Span | None:
        """How long a task of its queue takes, as far as is known."""
        return _mean(self.spent) or self.mean_of_all

    @property
    def mean_of_all(self) -> Span | None:
        """How long a task takes on the slots that it waits for, as far as is known."""
        return _mean(self.spent_by_all) or _mean(self.spent)


def _mean(spent: Spent) -> Span | None:
    return (spent.time // spent.ended or None) if spent.ended else None


class Ahead(Struct, frozen=True):
    """Who is served before a task, if nothing ends."""

    own: int
    """Of its queue."""
    own_type: int
    """Of its type in its queue."""
    elsewhere: int
    """Of the other queues of the workers that could take it."""
    older: int
    """Of its queue, once it has come to the top."""
    by_priority: Mapping[Priority, int]
    keyed: int = 0
    """Those of its queue that have concurrency keys, however many can start."""
    by_turns: int = 0
    """Those that it takes turns with."""
    part: float = 1.0
    """How many of all these the workers that could take it are expected to take, as a part: others take some too."""

    @property
    def all(self) -> int:
        return self.own + self.elsewhere
