"""Counting what one process does: plain numbers on the way of every task, put into words when someone asks.

A process has one of these, shared by its engines. It is told of tasks in the batches in which they come, so that a
batch costs one lock and a task little more than finding its place.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from fairlead.core.instant import SECOND, Instant, Span
from fairlead.core.task import COMPLETED, EXECUTING, Priority, Reason, State, Task
from fairlead.engine.events.observers import Happening, Occurrence, Watcher, happening_of
from fairlead.engine.metrics import names
from fairlead.engine.metrics.prometheus import Family, Histogram, Samples, seconds
from fairlead.storage.protocol import Store

MOST_NAMES: Final = 200
"""How many task types, or queues, have numbers of their own; the rest are counted together."""
OTHER: Final = "other"
"""The name of the rest."""

_DURATIONS: Final = seconds(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)
_WAITS: Final = seconds(0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1500, 3600, 7200)
_OPERATIONS: Final = seconds(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
_BATCHES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)

_Pair: TypeAlias = tuple[str, str]


class Metrics(Watcher):
    """What one process did, and how long it took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._types: set[str] = set()
        self._completed: dict[str, Histogram] = {}
        """How long attempts took that completed their task, by type: what nearly always happens."""
        self._durations: dict[_Pair, Histogram] = {}
        self._submitted: dict[tuple[str, Priority], int] = {}
        self._waits = [Histogram(_WAITS, SECOND) for _ in Priority]
        self._refused: Counter[str] = Counter()
        self._promoted: Counter[_Pair] = Counter()
        self._ended: Counter[_Pair] = Counter()
        self._retries: Counter[_Pair] = Counter()
        self._failed: Counter[_Pair] = Counter()
        self._dead_letters: Counter[_Pair] = Counter()
        self._operations: dict[str, Histogram] = {}
        self._batches: dict[str, Histogram] = {}
        self._foreign = 0
        self._missed_beats = 0
        self._used: Callable[[], float] | None = None

    # What is told by engines

    def moved(self, tasks: Sequence[Task], at: Instant) -> None:
        """Count tasks by the states that they have come to."""
        with self._lock:
            completed, waits = self._completed, self._waits
            for task in tasks:
                status = task.status
                if status.state is COMPLETED:
                    histogram = completed.get(task.spec.type) or self._new_type(task.spec.type)
                    took = max(0, (status.ended_at or at) - (status.started_at or at))
                    histogram.counts[bisect_left(_DURATIONS, took)] += 1
                    histogram.total += took
                elif status.state is EXECUTING:
                    if not status.cancel_asked:
                        histogram, waited = waits[status.priority], max(0, at - status.ready_at)
                        histogram.counts[bisect_left(_WAITS, waited)] += 1
                        histogram.total += waited
                elif status.reason is Reason.SUBMITTED or status.reason is Reason.DEPENDENT:
                    key = (self._known(task.spec.type), status.priority)
                    self._submitted[key] = self._submitted.get(key, 0) + 1
                else:
                    self._count(task, at)

    def promoted(self, task: Task, treated_as: Priority, at: Instant) -> None:
        """Count a promotion."""
        with self._lock:
            self._promoted[task.status.priority.word, treated_as.word] += 1

    def noted(self, occurrence: Occurrence) -> None:
        """Count the tasks that workers of other tenants met."""
        if occurrence.happening is Happening.FOREIGN:
            with self._lock:
                self._foreign += 1

    def around(self, store: Store) -> Store:
        """A store whose operations are timed."""
        from fairlead.engine.metrics.timed_store import measured

        return measured(store, self.operated)

    def operated(self, operation: str, took: Span, tasks: int | None) -> None:
        """Count an operation of the store: how long it took, and with how many tasks if it takes several."""
        with self._lock:
            if operation not in self._operations:
                self._operations[operation] = Histogram(_OPERATIONS, SECOND)
            self._operations[operation].observe(took)
            if tasks is not None:
                if operation not in self._batches:
                    self._batches[operation] = Histogram(_BATCHES)
                self._batches[operation].observe(tasks)

    # What is told by a server

    def refused(self, rule: str) -> None:
        """Count a task that was not taken."""
        with self._lock:
            self._refused[rule] += 1

    # What is told by a worker

    def beat_failed(self, count: int = 1) -> None:
        """Count heartbeats that did not arrive."""
        with self._lock:
            self._missed_beats += count

    def employ(self, used: Callable[[], float]) -> None:
        """Show how busy the worker of this process is, from 0 to 1, when asked."""
        self._used = used

    # What is asked

    def collect(self) -> Iterator[tuple[Family, Samples]]:
        """The metrics of this process."""
        with self._lock:
            completed = {(name, State.COMPLETED.value): each for name, each in self._completed.items() if each.count}
            yield names.QUEUE_WAIT, [((priority.word,), self._waits[priority]) for priority in Priority]
            yield (
                names.SUBMITTED,
                [((name, priority.word), count) for (name, priority), count in self._submitted.items()],
            )
            yield names.REFUSED, [((rule,), count) for rule, count in sorted(self._refused.items())]
            yield names.PROMOTED, list(self._promoted.items())
            yield names.DURATION, [*completed.items(), *self._durations.items()]
            ended = {pair: each.count for pair, each in completed.items()}
            yield names.COMPLETED, [*ended.items(), *self._ended.items()]
            yield names.RETRIES, list(self._retries.items())
            yield names.FAILED, list(self._failed.items())
            yield names.DEAD_LETTERS, list(self._dead_letters.items())
            yield names.FOREIGN, [((), self._foreign)]
            yield names.STORE_SECONDS, _by_one(self._operations)
            yield names.BATCH_SIZE, _by_one(self._batches)
            if self._used is not None:
                yield names.HEARTBEAT_FAILURES, [((), self._missed_beats)]

    def collect_worker(self) -> Iterator[tuple[Family, Samples]]:
        """The metrics of this process, and how busy its worker is."""
        if self._used is not None:
            yield names.CAPACITY_USED, [((), self._used())]
        yield from self.collect()

    def _count(self, task: Task, at: Instant) -> None:
        """Count what does not happen to every task."""
        happening, status = happening_of(task), task.status
        name, reason = self._known(task.spec.type), status.reason.value
        match happening:
            case Happening.RETRYING:
                self._retries[name, reason] += 1
            case Happening.FAILED | Happening.DEAD_LETTER | Happening.CANCELLED:
                self._ended[name, happening.value] += 1
            case Happening.HANDED_BACK:
                pass
            case _:
                return
        if happening is Happening.FAILED or happening is Happening.DEAD_LETTER:
            self._failed[name, reason] += 1
        if happening is Happening.DEAD_LETTER:
            self._dead_letters[name, reason] += 1
        started = status.history[-1].started_at if status.history else None
        if started is not None:
            key = (name, happening.value)
            if key not in self._durations:
                self._durations[key] = Histogram(_DURATIONS, SECOND)
            self._durations[key].observe(max(0, at - started))

    def _known(self, task_type: str) -> str:
        """The name that a task type is counted under."""
        if task_type not in self._types:
            if len(self._types) >= MOST_NAMES:
                return OTHER
            self._types.add(task_type)
        return task_type

    def _new_type(self, task_type: str) -> Histogram:
        return self._completed.setdefault(self._known(task_type), Histogram(_DURATIONS, SECOND))


def _by_one(histograms: Mapping[str, Histogram]) -> Samples:
    return [((name,), each) for name, each in histograms.items()]
