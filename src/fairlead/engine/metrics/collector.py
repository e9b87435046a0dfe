"""Counting what one process does: plain numbers on the way of every task, put into words when someone asks.

A process has one of these, shared by its engines. It is told of tasks in the batches in which they come, so that a
batch costs one lock and a task little more than finding its place.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Sized
from typing import Any, Final, TypeAlias, cast

from fairlead.core.identity import WorkerId
from fairlead.core.instant import SECOND, Instant, Span
from fairlead.core.task import COMPLETED, EXECUTING, QUEUED, Priority, State, Task
from fairlead.core.transitions import has_crashed, state_before
from fairlead.engine.events.types import Happening, Occurrence, Watcher, happening_of
from fairlead.engine.metrics import names
from fairlead.engine.metrics.names import Family, Histogram, Samples, seconds
from fairlead.storage.protocol import Store

MOST_NAMES: Final = 200
"""How many task types, or queues, have numbers of their own; the rest are counted together."""
MOST_DURATIONS: Final = 1_000
"""How many histograms of durations there are, by type, priority and end; the rest is counted as of other types."""
OTHER: Final = "other"
"""The name of the rest."""

NEW: Final = "new"
"""The state that a task comes from that is submitted, as transitions are counted."""
REMOVED: Final = "removed"
"""The state that a task comes to that is removed."""
LOST: Final = "lost"
CRASHED: Final = "crashed"
"""How a worker fails: it is not heard of any more, or the process of an isolated handler ends within an attempt."""

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
        self._completed: list[dict[str, Histogram]] = [{} for _ in Priority]
        """How long attempts took that completed their task, by priority and type: what nearly always happens."""
        self._durations: dict[tuple[str, str, str], Histogram] = {}
        self._submitted: dict[tuple[str, Priority], int] = {}
        self._scheduled = 0
        """How many of those that were submitted were not ready yet."""
        self._waits = [Histogram(_WAITS, SECOND) for _ in Priority]
        self._refused: Counter[str] = Counter()
        self._promoted: Counter[_Pair] = Counter()
        self._ended: Counter[_Pair] = Counter()
        self._retries: Counter[tuple[str, str, str]] = Counter()
        self._failed: Counter[_Pair] = Counter()
        self._dead_letters: Counter[_Pair] = Counter()
        self._transitions: Counter[_Pair] = Counter()
        """By the states that were left and come to: those that are not counted as something else already."""
        self._worker_failures = dict.fromkeys((LOST, CRASHED), 0)
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
                    priority = status.priority
                    histogram = completed[priority].get(task.spec.type) or self._new_type(task.spec.type, priority)
                    took = max(0, (status.ended_at or at) - (status.started_at or at))
                    histogram.counts[bisect_left(_DURATIONS, took)] += 1
                    histogram.total += took
                elif status.state is EXECUTING:
                    if not status.cancel_asked:
                        histogram, waited = waits[status.priority], max(0, at - status.ready_at)
                        histogram.counts[bisect_left(_WAITS, waited)] += 1
                        histogram.total += waited
                elif not status.history:
                    key = (self._known(task.spec.type), status.priority)
                    self._submitted[key] = self._submitted.get(key, 0) + 1
                    if status.state is not QUEUED:
                        self._scheduled += 1
                else:
                    self._count(task, at)

    def promoted(self, task: Task, treated_as: Priority, at: Instant) -> None:
        """Count a promotion."""
        with self._lock:
            self._promoted[task.status.priority.word, treated_as.word] += 1

    def noted(self, occurrence: Occurrence) -> None:
        """Count the tasks that were removed, and those that workers of other tenants met."""
        match occurrence.happening:
            case Happening.REMOVED:
                with self._lock:
                    self._transitions[occurrence.task.state.value, REMOVED] += 1
            case Happening.FOREIGN:
                with self._lock:
                    self._foreign += 1
                    self._transitions[State.EXECUTING.value, State.QUEUED.value] += 1
            case _:
                pass

    def lost(self, worker: WorkerId) -> None:
        """Count a worker that is lost."""
        with self._lock:
            self._worker_failures[LOST] += 1

    def around(self, store: Store) -> Store:
        """A store whose operations are timed."""

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
            completed = {
                (name, priority.word, State.COMPLETED.value): each
                for priority in Priority
                for name, each in self._completed[priority].items()
                if each.count
            }
            yield names.QUEUE_WAIT, [((priority.word,), self._waits[priority]) for priority in Priority]
            yield (
                names.SUBMITTED,
                [((name, priority.word), count) for (name, priority), count in self._submitted.items()],
            )
            yield names.REFUSED, [((rule,), count) for rule, count in sorted(self._refused.items())]
            yield names.PROMOTED, list(self._promoted.items())
            yield names.DURATION, [*completed.items(), *self._durations.items()]
            ended: Counter[_Pair] = Counter()
            for (name, _, status), each in completed.items():
                ended[name, status] += each.count
            yield names.COMPLETED, [*ended.items(), *self._ended.items()]
            yield names.TRANSITIONS, list(self._moves(ended.total()).items())
            yield names.RETRIES, list(self._retries.items())
            yield names.FAILED, list(self._failed.items())
            yield names.DEAD_LETTERS, list(self._dead_letters.items())
            yield names.FOREIGN, [((), self._foreign)]
            yield names.WORKER_FAILURES, [((reason,), count) for reason, count in self._worker_failures.items()]
            yield names.STORE_SECONDS, _by_one(self._operations)
            yield names.BATCH_SIZE, _by_one(self._batches)
            if self._used is not None:
                yield names.HEARTBEAT_FAILURES, [((), self._missed_beats)]

    def collect_worker(self) -> Iterator[tuple[Family, Samples]]:
        """The metrics of this process, and how busy its worker is."""
        if self._used is not None:
            yield names.CAPACITY_USED, [((), self._used())]
        yield from self.collect()

    def _moves(self, completed: int) -> dict[_Pair, int]:
        """How often tasks went from one state to another: what is counted as such, and what follows from the rest."""
        submitted, claimed = sum(self._submitted.values()), sum(each.count for each in self._waits)
        moves = Counter(self._transitions)
        moves[NEW, State.QUEUED.value] += submitted - self._scheduled
        moves[NEW, State.SCHEDULED.value] += self._scheduled
        moves[State.QUEUED.value, State.EXECUTING.value] += claimed
        moves[State.EXECUTING.value, State.COMPLETED.value] += completed
        return {pair: count for pair, count in moves.items() if count}

    def _count(self, task: Task, at: Instant) -> None:
        """Count what does not happen to every task."""
        happening, status = happening_of(task), task.status
        name, priority, reason = self._known(task.spec.type), status.priority.word, status.reason.value
        before = state_before(task)
        if before is not None and before is not status.state:
            self._transitions[before.value, status.state.value] += 1
        if has_crashed(status):
            self._worker_failures[CRASHED] += 1
        match happening:
            case Happening.RETRYING:
                self._retries[name, priority, reason] += 1
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
            key = (name, priority, happening.value)
            if key not in self._durations:
                key = (self._room(name), priority, happening.value)
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

    def _new_type(self, task_type: str, priority: Priority) -> Histogram:
        """Where a task is counted that has completed: found at once the next time, unless it is with the rest."""
        completed, name = self._completed[priority], self._known(task_type)
        if name not in completed:
            name = self._room(name)
        return completed.setdefault(name, Histogram(_DURATIONS, SECOND))

    def _room(self, name: str) -> str:
        """The name of a type, if there is room for one more histogram of its durations."""
        return name if len(self._durations) + sum(map(len, self._completed)) < MOST_DURATIONS else OTHER


def _by_one(histograms: Mapping[str, Histogram]) -> Samples:
    return [((name,), each) for name, each in histograms.items()]


TIMED: Final = (
    "add",
    "claim",
    "extend",
    "apply",
    "get",
    "due",
    "find",
    "tally",
    "put",
    "drop",
    "scan",
    "publish",
    "feed",
)
"""The operations that are timed; to wait is none."""
_GIVEN: Final = frozenset({"add", "extend", "apply", "get"})
_FOUND: Final = frozenset({"claim", "due"})

Tell: TypeAlias = Callable[[str, Span, int | None], None]


class _Measured:
    """Stands for a store. Its operations are attributes, so that it has those that the store has, and no others."""

    def __init__(self, store: Store, tell: Tell) -> None:
        self._store = store
        for name in dir(type(store)):
            if not name.startswith("_") and callable(operation := getattr(store, name)):
                setattr(self, name, _timed(name, operation, tell) if name in TIMED else operation)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def measured(store: Store, tell: Tell) -> Store:
    """The store, telling how long each operation took and how many tasks it was about, if it is about several."""
    return cast(Store, _Measured(store, tell))


def _timed(name: str, operation: Callable[..., Awaitable[Any]], tell: Tell) -> Callable[..., Awaitable[Any]]:
    async def run(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter_ns()
        answer: Sized | None = None
        try:
            answer = await operation(*arguments, **options)
        finally:
            tasks = len(arguments[0]) if name in _GIVEN else None
            if name in _FOUND and answer is not None:
                tasks = len(answer)
            tell(name, (time.perf_counter_ns() - start) // 1_000, tasks)
        return answer

    return run
