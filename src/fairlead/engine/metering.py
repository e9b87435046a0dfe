"""Counting what came of tasks in this process, over the last minute."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from fairlead.core.identity import WorkerId
from fairlead.core.instant import MINUTE, SECOND, Instant, Span
from fairlead.core.task import State, Task
from fairlead.engine.feed import worker_of

_SLICE: Final[Span] = 5 * SECOND
_SLICES: Final = MINUTE // _SLICE


class Throughput(Struct, frozen=True, kw_only=True):
    """How many tasks came to their end within a minute."""

    completed: int = 0
    failed: int = 0
    """Those that ended as failed or as a dead letter; a retry is no end."""


class Meter:
    """The ends of attempts that this process has settled, by worker."""

    def __init__(self) -> None:
        self._slices: dict[tuple[WorkerId | None, int], list[int]] = {}
        """By worker and slice of time: how many completed, how many failed."""
        # Most tasks are counted where the last one was, so that place is kept at hand.
        self._worker: WorkerId | None = None
        self._start: Instant = 0
        self._slice = [0, 0]

    def count(self, task: Task, at: Instant) -> None:
        """Count a task that stands like this after an attempt; one that will be tried again does not count."""
        state = task.status.state
        if state is State.COMPLETED:
            failed = 0
        elif state is State.FAILED or state is State.DEAD_LETTER:
            failed = 1
        else:
            return
        worker = worker_of(task)
        if worker != self._worker or not 0 <= at - self._start < _SLICE:
            self._turn_to(worker, at)
        self._slice[failed] += 1

    def total(self, now: Instant) -> Throughput:
        """What was counted for all workers together."""
        return _sum([counts for (_, number), counts in list(self._slices.items()) if _is_recent(number, now)])

    def of(self, worker: WorkerId, now: Instant) -> Throughput:
        """What was counted for one worker."""
        numbers = range(now // _SLICE - _SLICES + 1, now // _SLICE + 1)
        return _sum([counts for number in numbers if (counts := self._slices.get((worker, number))) is not None])

    def _turn_to(self, worker: WorkerId | None, at: Instant) -> None:
        number = at // _SLICE
        if (worker, number) not in self._slices:
            for key in [key for key in list(self._slices) if not _is_recent(key[1], at)]:
                self._slices.pop(key, None)
        self._worker, self._start = worker, number * _SLICE
        self._slice = self._slices.setdefault((worker, number), [0, 0])


def _is_recent(number: int, now: Instant) -> bool:
    return 0 <= now // _SLICE - number < _SLICES


def _sum(slices: list[list[int]]) -> Throughput:
    return Throughput(completed=sum(counts[0] for counts in slices), failed=sum(counts[1] for counts in slices))
