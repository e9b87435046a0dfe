"""The memory store: the reference for every other store, and a real one for work that may die with its process.

One lock guards everything, so it is safe for threads. Its coroutines never suspend, but for `wait`: they can be driven
without an event loop. Every operation costs O(log n): indexes are heaps whose entries go stale when a task moves on,
are dropped when they surface, and are compacted when fewer than half are live.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import astuple

from fairlead.core.diagnosis import MEMORY, Examination, Level, durability
from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant, Span
from fairlead.core.task import QUEUED, WAITING, Lane, State, Status, Task
from fairlead.storage.heap import Heap, wants_compacting
from fairlead.storage.merge import Head, merge
from fairlead.storage.positions import BEFORE_ALL, number_at, position_of
from fairlead.storage.steps import claimed, extended, judged, pulse
from fairlead.storage.values import (
    APPLIED,
    Added,
    Beat,
    Change,
    Claim,
    FeedEntry,
    Filter,
    Full,
    KeyHeld,
    Known,
    LaneTally,
    Pulse,
    Receipt,
    Record,
    Stretch,
    Tally,
    Verdict,
)

_RINGS_KEPT: Final = 64


class _Line:
    """One lane: its ready tasks, and how many of its tasks are in each state."""

    def __init__(self, is_live: Callable[[Head], bool]) -> None:
        self.ready = Heap(is_live)
        self.counts: Counter[State] = Counter()


class _Waiter(Struct, eq=False):
    queues: frozenset[str]
    loop: asyncio.AbstractEventLoop
    rung: asyncio.Event


class IndexSize(Struct, frozen=True):
    """How large the indexes of waiting tasks are, and how much of them is live."""

    entries: int
    live: int


class MemoryStore:
    """Tasks in this process's memory. See `fairlead.storage.protocol` for the contract."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: dict[TaskId, Task] = {}
        self._ids: list[TaskId] = []
        self._keys: dict[tuple[str, str], TaskId] = {}
        self._queues: dict[str, dict[Lane, _Line]] = {}
        self._waiting: Counter[str] = Counter()
        self._alarms = Heap(self._alarm_is_live)
        self._records: dict[tuple[str, str], Record] = {}
        self._feed: deque[tuple[int, bytes]] = deque()
        self._feed_end = 0
        self._waiters: deque[_Waiter] = deque()
        self._rings: Counter[str] = Counter()

    async def add(self, tasks: Sequence[Task], *, now: Instant, bounds: Mapping[str, int]) -> list[Receipt]:
        with self._lock:
            receipts = [self._add(task, now, bounds) for task in tasks]
            self._ring(tasks)
        return receipts

    async def claim(self, claim: Claim) -> list[Task]:
        with self._lock:
            lanes = [
                (lane, line.ready.heads())
                for queue in {order.queue for order in claim.queues}
                for lane, line in self._queues.get(queue, {}).items()
                if line.counts[State.QUEUED] and claim.admits(lane)
            ]
            taken = [self._tasks[task_id] for _, task_id in merge(claim, lanes)]
            return [self._set(task, claimed(task.status, claim)) for task in taken]

    async def extend(self, beats: Sequence[Beat], *, until: Instant, grace: Span) -> list[Pulse]:
        with self._lock:
            return [self._extend(beat, until, grace) for beat in beats]

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        with self._lock:
            verdicts = [self._apply(change) for change in changes]
            self._ring([task for change in changes if (task := self._tasks.get(change.id))])
        return verdicts

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        with self._lock:
            return [self._tasks.get(task_id) for task_id in ids]

    async def due(self, now: Instant, limit: int, after: tuple[Instant, TaskId] | None = None) -> list[Task]:
        with self._lock:
            return [self._tasks[task_id] for _, task_id in self._alarms.first(limit, now, after)]

    async def find(
        self, matching: Filter, *, limit: int, newest_first: bool = True, after: TaskId | None = None
    ) -> list[Task]:
        with self._lock:
            tasks = (self._tasks.get(task_id) for task_id in self._walk(newest_first, after))
            admitted = (task for task in tasks if task is not None and matching.admits(task))
            return list(itertools.islice(admitted, limit))

    async def tally(self) -> Tally:
        with self._lock:
            lanes = [
                LaneTally(lane, dict(+line.counts), head[0] if (head := line.ready.peek()) else None)
                for lines in self._queues.values()
                for lane, line in lines.items()
            ]
            alarm = self._alarms.peek()
            return Tally(lanes, alarm[0] if alarm else None)

    async def count(self, stretches: Sequence[Stretch]) -> list[int]:
        by_lane: dict[Lane, list[tuple[Head, Head]]] = {}
        for stretch in stretches:
            by_lane.setdefault(stretch.lane, []).append((astuple(stretch.start), astuple(stretch.end)))
        with self._lock:
            counts = {lane: iter(self._count(lane, places)) for lane, places in by_lane.items()}
        return [next(counts[stretch.lane]) for stretch in stretches]

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        with self._lock:
            stored = self._records.get((kind, name))
            version = stored.version if stored else 0
            if expected is not None and expected != version:
                return None
            self._records[kind, name] = Record(kind=kind, name=name, value=value, version=version + 1)
            return version + 1

    async def drop(self, kind: str, name: str, *, expected: int | None = None) -> bool:
        with self._lock:
            stored = self._records.get((kind, name))
            if stored is None or (expected is not None and expected != stored.version):
                return False
            del self._records[kind, name]
            return True

    async def scan(self, kind: str) -> list[Record]:
        with self._lock:
            return [record for (record_kind, _), record in sorted(self._records.items()) if record_kind == kind]

    async def publish(self, values: Sequence[bytes], *, now: Instant, keep: int) -> None:
        with self._lock:
            for value in values:
                self._feed_end = max(self._feed_end + 1, now)
                self._feed.append((self._feed_end, value))
            while len(self._feed) > keep:
                self._feed.popleft()

    async def feed(self, after: str | None, limit: int) -> list[FeedEntry]:
        with self._lock:
            number = number_at(after)
            if number > self._feed_end:
                number = BEFORE_ALL
            beyond = itertools.takewhile(lambda entry: entry[0] > number, reversed(self._feed))
            found = [FeedEntry(position_of(at), value) for at, value in beyond]
        return found[::-1][: max(limit, 0)]

    async def feed_end(self) -> str:
        with self._lock:
            return position_of(self._feed_end)

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        with self._lock:
            for queue in queues:
                if self._rings[queue]:
                    self._rings[queue] -= 1
                    return
            waiter = _Waiter(frozenset(queues), asyncio.get_running_loop(), asyncio.Event())
            self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout):
                await waiter.rung.wait()
        except TimeoutError:
            pass
        finally:
            with self._lock:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    async def examine(self) -> Examination:
        remedy = "use sqlite:///path/to/file.db for tasks that must outlive the process"
        return Examination(tier=MEMORY, findings=(durability(MEMORY, Level.YELLOW, remedy),))

    async def time(self) -> Instant | None:
        return None

    async def close(self) -> None:
        """Nothing to give back."""

    def index_size(self) -> IndexSize:
        """How large the indexes of waiting tasks are."""
        with self._lock:
            heaps = [line.ready for lines in self._queues.values() for line in lines.values()]
            return IndexSize(sum(map(len, heaps)), sum(heap.live for heap in heaps))

    def _count(self, lane: Lane, places: Sequence[tuple[Head, Head]]) -> list[int]:
        line = self._queues.get(lane.queue, {}).get(lane)
        return [0] * len(places) if line is None else line.ready.count(places)

    def _add(self, task: Task, now: Instant, bounds: Mapping[str, int]) -> Receipt:
        spec = task.spec
        if spec.id in self._tasks:
            return Known()
        key = (spec.queue, spec.idempotency_key) if spec.idempotency_key is not None else None
        if key is not None and (holder := self._tasks.get(self._keys.get(key, spec.id))):
            until = holder.spec.key_until
            if until is not None and until > now:
                return KeyHeld(holder.id)
        bound = bounds.get(spec.queue)
        if bound is not None and task.state.waiting and (depth := self._waiting[spec.queue]) >= bound:
            return Full(depth, bound)
        if key is not None:
            self._keys[key] = spec.id
        self._tasks[spec.id] = task
        self._index_id(spec.id)
        self._enter(task, task.lane)
        return Added()

    def _extend(self, beat: Beat, until: Instant, grace: Span) -> Pulse:
        task = self._tasks.get(beat.id)
        after = None if task is None else extended(task.status, beat, until, grace)
        if task is not None and after is not None:
            self._set(task, after)
        return pulse(after)

    def _apply(self, change: Change) -> Verdict:
        task = self._tasks.get(change.id)
        verdict = judged(change, None if task is None else task.status)
        if task is not None and verdict is APPLIED:
            if change.status is None:
                self._remove(task)
            else:
                self._set(task, change.status)
        return verdict

    def _set(self, task: Task, status: Status) -> Task:
        changed = Task(task.spec, status)
        self._tasks[task.id] = changed
        lane = task.lane
        self._leave(task.status, lane)
        self._enter(changed, lane if status.priority == task.status.priority else changed.lane)
        return changed

    def _remove(self, task: Task) -> None:
        spec = task.spec
        del self._tasks[spec.id]
        self._leave(task.status, task.lane)
        if spec.idempotency_key is not None and self._keys.get((spec.queue, spec.idempotency_key)) == spec.id:
            del self._keys[spec.queue, spec.idempotency_key]
        if wants_compacting(len(self._ids), len(self._tasks)):
            self._ids = [task_id for task_id in self._ids if task_id in self._tasks]

    def _enter(self, task: Task, lane: Lane) -> None:
        """Index a task as it now stands."""
        status = task.status
        lines = self._queues.setdefault(lane.queue, {})
        line = lines.get(lane)
        if line is None:
            line = lines[lane] = _Line(lambda head: self._ready_is_live(lane, head))
        line.counts[status.state] += 1
        if status.state is QUEUED:
            line.ready.push((status.ready_at, task.id))
        if status.state in WAITING:
            self._waiting[lane.queue] += 1
        if status.alarm is not None:
            self._alarms.push((status.alarm, task.id))

    def _leave(self, status: Status, lane: Lane) -> None:
        """Forget how a task of this lane stood. Its index entries are stale from now on."""
        lines = self._queues[lane.queue]
        line = lines[lane]
        line.counts[status.state] -= 1
        if status.state is QUEUED:
            line.ready.stale()
        if status.state in WAITING:
            self._waiting[lane.queue] -= 1
        if status.alarm is not None:
            self._alarms.stale()
        if not any(line.counts.values()):
            del lines[lane]
            if not lines:
                del self._queues[lane.queue]
                del self._waiting[lane.queue]
                del self._rings[lane.queue]

    def _ready_is_live(self, lane: Lane, head: Head) -> bool:
        task = self._tasks.get(head[1])
        return (
            task is not None
            and task.status.state is QUEUED
            and task.status.ready_at == head[0]
            and task.status.priority == lane.priority
        )

    def _alarm_is_live(self, head: Head) -> bool:
        task = self._tasks.get(head[1])
        return task is not None and task.status.alarm == head[0]

    def _index_id(self, task_id: TaskId) -> None:
        if self._ids and self._ids[-1] > task_id:
            at = bisect.bisect_left(self._ids, task_id)
            if self._ids[at] != task_id:
                self._ids.insert(at, task_id)
        elif not self._ids or self._ids[-1] != task_id:
            self._ids.append(task_id)

    def _walk(self, newest_first: bool, after: TaskId | None) -> Iterator[TaskId]:
        ids = self._ids
        if newest_first:
            end = len(ids) if after is None else bisect.bisect_left(ids, after)
            return (ids[position] for position in range(end - 1, -1, -1))
        start = 0 if after is None else bisect.bisect_right(ids, after)
        return (ids[position] for position in range(start, len(ids)))

    def _ring(self, tasks: Sequence[Task]) -> None:
        """Wake as many waiters as there are new ready tasks, or leave a ring for those about to wait."""
        for task in tasks:
            if task.status.state is not QUEUED:
                continue
            queue = task.spec.queue
            while waiter := next((waiter for waiter in self._waiters if queue in waiter.queues), None):
                self._waiters.remove(waiter)
                if not waiter.loop.is_closed():
                    waiter.loop.call_soon_threadsafe(waiter.rung.set)
                    break
            else:
                self._rings[queue] = min(self._rings[queue] + 1, _RINGS_KEPT)
