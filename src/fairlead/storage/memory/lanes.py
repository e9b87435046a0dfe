"""How the tasks of a memory store stand: what is ready in each lane, how many are in each state, which alarms are set.

Its indexes are heaps whose entries go stale when a task moves on, are dropped when they surface, and are compacted when
fewer than half are live: every operation costs O(log n).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.task import EXECUTING, QUEUED, WAITING, Lane, State, Status, Task
from fairlead.storage.lane_merge import Head
from fairlead.storage.memory.alarm_heap import Heap
from fairlead.storage.values import Claim, LaneTally, Tally


class ReadyLane:
    """One lane: its ready tasks, and how many of its tasks are in each state."""

    def __init__(self, is_live: Callable[[Head], bool], compacted: Callable[[], None]) -> None:
        self.ready = Heap(is_live, compacted)
        self.counts: Counter[State] = Counter()


class IndexSize(Struct, frozen=True):
    """How large the indexes of waiting tasks are, and how much of them is live."""

    entries: int
    live: int
    compacted_at: Instant | None = None
    """When one of them was last compacted."""


class Lanes:
    """The lanes of one memory store that have tasks. The owner holds the lock, and the tasks as they stand."""

    def __init__(self, tasks: Mapping[TaskId, Task], clock: Callable[[], Instant]) -> None:
        self._tasks = tasks
        self._time = clock
        self._compacted_at: Instant | None = None
        self.queues: dict[str, dict[Lane, ReadyLane]] = {}
        self.waiting: Counter[str] = Counter()
        """How many tasks wait in each queue."""
        self._alarms = Heap(self._alarm_is_live)
        self._executing: set[TaskId] = set()
        """In no order: every claim enters some, and only a look for leases that end too late asks when theirs do."""

    def enter(self, task: Task, lane: Lane) -> None:
        """Index a task as it now stands."""
        status, task_id = task.status, task.spec.id
        lines = self.queues.setdefault(lane.queue, {})
        line = lines.get(lane)
        if line is None:
            line = lines[lane] = ReadyLane(lambda head: self.is_ready(lane, head), self._note_compacted)
        line.counts[status.state] += 1
        if status.state is QUEUED:
            line.ready.push((status.ready_at, task_id))
        if status.state in WAITING:
            self.waiting[lane.queue] += 1
        if status.alarm is not None:
            self._alarms.push((status.alarm, task_id))
        if status.state is EXECUTING:
            self._executing.add(task_id)

    def leave(self, task_id: TaskId, status: Status, lane: Lane) -> bool:
        """Forget how a task of this lane stood; whether it was the last of its queue.

        Its index entries are stale from now on.
        """
        lines = self.queues[lane.queue]
        line = lines[lane]
        line.counts[status.state] -= 1
        if status.state is QUEUED:
            line.ready.stale()
        if status.state in WAITING:
            self.waiting[lane.queue] -= 1
        if status.alarm is not None:
            self._alarms.stale()
        if status.state is EXECUTING:
            self._executing.discard(task_id)
        if any(line.counts.values()):
            return False
        del lines[lane]
        if lines:
            return False
        del self.queues[lane.queue]
        del self.waiting[lane.queue]
        return True

    def ready(self, claim: Claim) -> list[tuple[Lane, Iterator[Head]]]:
        """The lanes that a claim may take from, each with its ready tasks in order; those passed by leave it."""
        return [
            (lane, line.ready.heads())
            for queue in {order.queue for order in claim.queues}
            for lane, line in self.queues.get(queue, {}).items()
            if line.counts[QUEUED] and claim.admits(lane)
        ]

    def is_ready(self, lane: Lane, head: Head) -> bool:
        """Whether a task is queued in this lane since this moment."""
        task = self._tasks.get(head[1])
        return (
            task is not None
            and task.status.state is QUEUED
            and task.status.ready_at == head[0]
            and task.status.priority == lane.priority
        )

    def running(self, queue: str) -> dict[Lane, int]:
        """How many tasks run of each lane of a queue."""
        return {lane: line.counts[State.EXECUTING] for lane, line in self.queues.get(queue, {}).items()}

    def due(self, now: Instant, limit: int, after: Head | None) -> list[Head]:
        """The alarms that have rung, in order."""
        return self._alarms.first(limit, now, after)

    def leased_beyond(self, end: Instant, limit: int) -> list[Head]:
        """The executing tasks whose alarm is after this, latest first; looks at all that execute."""
        heads = [(self._tasks[task_id].status.alarm or end, task_id) for task_id in self._executing]
        return heapq.nlargest(limit, [head for head in heads if head[0] > end])

    def executing(self, newest_first: bool, after: TaskId | None) -> list[TaskId]:
        """The executing tasks by id, beyond one; looks at all of them."""
        ids = sorted(self._executing, reverse=newest_first)
        if after is None:
            return ids
        return [task_id for task_id in ids if (task_id < after if newest_first else task_id > after)]

    def tally(self) -> Tally:
        """How many tasks are in each lane and state, and since when the first of each waits."""
        lanes = [
            LaneTally(
                lane,
                {state: count for state, count in line.counts.items() if count > 0},
                head[0] if (head := line.ready.peek()) else None,
            )
            for lines in self.queues.values()
            for lane, line in lines.items()
        ]
        alarm = self._alarms.peek()
        return Tally(lanes, alarm[0] if alarm else None)

    def count(self, lane: Lane, places: Sequence[tuple[Head, Head]]) -> list[int]:
        """How many ready tasks of a lane are from one place on and before another, for each such pair."""
        line = self.queues.get(lane.queue, {}).get(lane)
        return [0] * len(places) if line is None else line.ready.count(places)

    def index_size(self) -> IndexSize:
        """How large the indexes of waiting tasks are."""
        heaps = self._indexes()
        return IndexSize(sum(map(len, heaps)), sum(heap.live for heap in heaps), self._compacted_at)

    def compact(self) -> int:
        """Compact the indexes of waiting tasks, however few of their entries are stale; how many those were."""
        heaps = self._indexes()
        before = sum(map(len, heaps))
        for heap in heaps:
            heap.compact()
        self._note_compacted()
        return before - sum(map(len, heaps))

    def _indexes(self) -> list[Heap]:
        return [line.ready for lines in self.queues.values() for line in lines.values()]

    def _note_compacted(self) -> None:
        self._compacted_at = self._time()

    def _alarm_is_live(self, head: Head) -> bool:
        task = self._tasks.get(head[1])
        return task is not None and task.status.alarm == head[0]
