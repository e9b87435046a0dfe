"""The keyed tasks of a memory store: who is first of each key, which keys are to be looked at, how many run of each.

A key waits to be looked at while it is in `_looks`; else the first task of each of its lines is in its lane's front.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection
from typing import Final, TypeAlias

from fairlead.core.identity import TaskId
from fairlead.core.instant import SECOND, Instant
from fairlead.core.queues.limits import Limit
from fairlead.core.task import EXECUTING, QUEUED, Lane, Task
from fairlead.storage.claim_limits import LOOKS_AT_ONCE
from fairlead.storage.lane_merge import Head
from fairlead.storage.memory.alarm_heap import Heap

_Liveness: TypeAlias = Callable[[Lane, Head], bool]


_OVERDUE: Final[Instant] = 0


class Keyed:
    """The keyed tasks of one memory store. The owner holds the lock."""

    def __init__(
        self, is_live: _Liveness, key_of: Callable[[TaskId], str], came: Callable[[Lane, tuple[Instant, TaskId]], None]
    ) -> None:
        """`came` is told of what comes to the front of a lane."""
        self._is_live = is_live
        self._key_of = key_of
        self._came = came
        self._lines: dict[tuple[str, str], dict[Lane, Heap]] = {}
        """The queued tasks of each key, by lane."""
        self._keys: dict[Lane, int] = {}
        """How many keys have queued tasks in each lane."""
        self._fronts: dict[Lane, Heap] = {}
        """The first of each key, in each lane."""
        self._running: Counter[tuple[str, str]] = Counter()
        self._looks: dict[str, dict[str, Instant]] = {}
        """The keys of each queue that are to be looked at, and when."""
        self._under: dict[str, Limit] = {}
        """The limit of each queue's keys that they were last looked at under."""
        self._looked_at: dict[str, Instant] = {}
        """When that was."""
        self._taken: set[TaskId] = set()
        """What the claim that goes on has taken."""
        self._order: dict[str, list[tuple[Instant, str]]] = {}
        """The same by moment; entries of looks that were moved are stale."""

    def move(self, before: Task | None, after: Task | None) -> None:
        """Take note that a keyed task has come, has gone, or stands otherwise."""
        if before is not None and after is not None and before.state is after.state is EXECUTING:
            return
        if before is not None:
            self._leave(before, before.lane, before.spec.concurrency_key or "")
        if after is not None:
            self._enter(after, after.lane, after.spec.concurrency_key or "")

    def _enter(self, task: Task, lane: Lane, key: str) -> None:
        if task.state is EXECUTING:
            self._running[lane.queue, key] += 1
        elif task.state is QUEUED:
            lines = self._lines.setdefault((lane.queue, key), {})
            if lane not in lines:
                lines[lane] = self._heap(lane)
                self._keys[lane] = self._keys.get(lane, 0) + 1
            lines[lane].push((task.status.ready_at, task.id))
            self._wake(lane.queue, key)

    def _leave(self, task: Task, lane: Lane, key: str) -> None:
        if task.state is EXECUTING:
            self._running[lane.queue, key] -= 1
            if not self._running[lane.queue, key]:
                del self._running[lane.queue, key]
            if key in self._looks.get(lane.queue, ()):
                self._look(lane.queue, key, _OVERDUE)
        elif task.state is QUEUED:
            lines = self._lines[lane.queue, key]
            line = lines[lane]
            line.stale()
            if not line.live:
                del lines[lane]
                self._keys[lane] -= 1
                if not self._keys[lane]:
                    del self._keys[lane]
                    self._fronts.pop(lane, None)
            if not lines:
                del self._lines[lane.queue, key]
                self._forget(lane.queue, key)
            elif task.id not in self._taken:
                self._wake(lane.queue, key)

    def _wake(self, queue: str, key: str) -> None:
        """Have a key looked at whose first tasks may be others now, unless it is to be looked at already."""
        if key not in self._looks.get(queue, ()):
            self._look(queue, key, _OVERDUE)

    def _forget(self, queue: str, key: str) -> None:
        """A key of which no task is queued need not be looked at."""
        looks = self._looks.get(queue, {})
        looks.pop(key, None)
        if not looks:
            self._looks.pop(queue, None)
            self._order.pop(queue, None)
            self._under.pop(queue, None)

    def looking(self) -> Collection[str]:
        """The queues that have keys to be looked at."""
        return self._looks.keys()

    def running(self, queue: str, key: str) -> int:
        """How many tasks of a key run."""
        return self._running[queue, key]

    def look(self, queue: str, under: Limit, now: Instant) -> None:
        """Let the keys come to the front that may go on by now, or were put aside under another limit."""
        before, self._under[queue] = self._under.get(queue, under), under
        looks = self._looks.get(queue)
        if looks is None:
            return
        went_back = now < self._looked_at.get(queue, now) - SECOND
        self._looked_at[queue] = now
        if before != under or went_back:
            # Under another limit, and by a clock that has gone back, what was put off may go on at any moment.
            for key in looks:
                self._look(queue, key, _OVERDUE)
        order = self._order[queue]
        for _ in range(LOOKS_AT_ONCE):
            while order and looks.get(order[0][1]) != order[0][0]:
                heapq.heappop(order)
            if not order or order[0][0] > now:
                break
            _, key = heapq.heappop(order)
            del looks[key]
            for lane in self._lines.get((queue, key), ()):
                self._advance(lane, key)
        if not looks:
            del self._looks[queue], self._order[queue]

    def peek(self, lane: Lane) -> Head | None:
        """The best task at the front of a lane."""
        front = self._fronts.get(lane)
        return None if front is None else front.peek()

    def key_of(self, head: Head) -> str:
        """The concurrency key of a task."""
        return self._key_of(head[1])

    def take(self, lane: Lane, head: Head) -> None:
        """A task at the front is being claimed: the next of its key takes its place."""
        self._taken.add(head[1])
        self._advance(lane, self.key_of(head))

    def close(self, lane: Lane, head: Head, until: Instant) -> None:
        """The key of the best task at the front is full until then: it is no longer to be seen there."""
        self._fronts[lane].drop(head)
        self._look(lane.queue, self.key_of(head), until)

    def claimed(self) -> None:
        """What was taken is executing now."""
        self._taken.clear()

    def _heap(self, lane: Lane) -> Heap:
        return Heap(lambda head: head[1] not in self._taken and self._is_live(lane, head))

    def _advance(self, lane: Lane, key: str) -> None:
        """Let the first task of a key come to the front."""
        line = self._lines.get((lane.queue, key), {}).get(lane)
        head = None if line is None else line.peek()
        if head is not None:
            if lane not in self._fronts:
                self._fronts[lane] = self._heap(lane)
            self._fronts[lane].push(head)
            self._came(lane, (head[0], head[1]))

    def _look(self, queue: str, key: str, at: Instant) -> None:
        self._looks.setdefault(queue, {})[key] = at
        heapq.heappush(self._order.setdefault(queue, []), (at, key))


class KeyedFront:
    """The front of a lane of keyed tasks, for one claim."""

    def __init__(self, keyed: Keyed, lane: Lane) -> None:
        self.lane = lane
        self._keyed = keyed
        self.head = keyed.peek(lane)

    @property
    def key(self) -> str:
        return "" if self.head is None else self._keyed.key_of(self.head)

    def take(self) -> None:
        if self.head is not None:
            self._keyed.take(self.lane, self.head)
        self.head = self._keyed.peek(self.lane)

    def close(self, until: Instant) -> None:
        if self.head is not None:
            self._keyed.close(self.lane, self.head, until)
        self.head = self._keyed.peek(self.lane)
