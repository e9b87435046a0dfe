"""Counting what came of tasks in this process, over the last minute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from msgspec import Struct

from fairlead.core.identity import WorkerId
from fairlead.core.instant import MINUTE, SECOND, Instant, Span
from fairlead.core.task import COMPLETED, State, Task
from fairlead.engine.events.types import worker_of

_SLICE: Final[Span] = 5 * SECOND
_SLICES: Final = MINUTE // _SLICE
_MOST_QUEUES: Final = 100

Name = TypeVar("Name")


class Throughput(Struct, frozen=True, kw_only=True):
    """How many tasks came to their end within a minute."""

    completed: int = 0
    failed: int = 0
    """Those that ended as failed or as a dead letter; a retry is no end."""


class Spent(Struct, frozen=True, array_like=True):
    """How many tasks came to their end within a minute, and how long their last attempts took."""

    ended: int = 0
    time: Span = 0


class ThroughputMeter:
    """The ends of attempts that this process has settled, by worker; and what they took, by queue."""

    def __init__(self) -> None:
        self._slices: dict[tuple[WorkerId | None, int], list[int]] = {}
        """By worker and slice of time: how many completed, how many failed."""
        # Most tasks are counted where the last one was, so that place is kept at hand.
        self._worker: WorkerId | None = None
        self._start: Instant = 0
        self._slice = [0, 0]
        self._taken: dict[tuple[str, int], list[int]] = {}
        """By queue and slice of time: how many ended, and how long they took."""
        self._queue: str | None = None
        self._taking = [0, 0]

    def count(self, tasks: Sequence[Task], at: Instant) -> None:
        """Count tasks that stand like this after an attempt; one that will be tried again does not count."""
        for task in tasks:
            status, queue = task.status, task.spec.queue
            if status.state is COMPLETED:
                failed = 0
            elif status.state is State.FAILED or status.state is State.DEAD_LETTER:
                failed = 1
            else:
                continue
            worker = worker_of(task)
            if worker != self._worker or queue != self._queue or not 0 <= at - self._start < _SLICE:
                self._turn_to(worker, queue, at)
            self._slice[failed] += 1
            taking = self._taking
            taking[0] += 1
            taking[1] += max(0, at - (status.started_at or at))

    def total(self, now: Instant) -> Throughput:
        """What was counted for all workers together."""
        return _sum([counts for (_, number), counts in list(self._slices.items()) if _is_recent(number, now)])

    def of(self, worker: WorkerId, now: Instant) -> Throughput:
        """What was counted for one worker."""
        numbers = range(now // _SLICE - _SLICES + 1, now // _SLICE + 1)
        return _sum([counts for number in numbers if (counts := self._slices.get((worker, number))) is not None])

    def spent(self, now: Instant) -> dict[str, Spent]:
        """What was counted by queue; of very many queues, those with most."""
        sums: dict[str, list[int]] = {}
        for (queue, number), (ended, taken) in list(self._taken.items()):
            if _is_recent(number, now):
                total = sums.setdefault(queue, [0, 0])
                total[0] += ended
                total[1] += taken
        most = sorted(sums, key=lambda queue: -sums[queue][1])[:_MOST_QUEUES]
        return {queue: Spent(*sums[queue]) for queue in most}

    def _turn_to(self, worker: WorkerId | None, queue: str, at: Instant) -> None:
        number = at // _SLICE
        if (worker, number) not in self._slices:
            _forget(self._slices, at)
        if (queue, number) not in self._taken:
            _forget(self._taken, at)
        self._worker, self._queue, self._start = worker, queue, number * _SLICE
        self._slice = self._slices.setdefault((worker, number), [0, 0])
        self._taking = self._taken.setdefault((queue, number), [0, 0])


def _forget(slices: dict[tuple[Name, int], list[int]], now: Instant) -> None:
    for key in [key for key in list(slices) if not _is_recent(key[1], now)]:
        slices.pop(key, None)


def _is_recent(number: int, now: Instant) -> bool:
    return 0 <= now // _SLICE - number < _SLICES


def _sum(slices: list[list[int]]) -> Throughput:
    return Throughput(completed=sum(counts[0] for counts in slices), failed=sum(counts[1] for counts in slices))
