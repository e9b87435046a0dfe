"""The memory store: the contract, under one lock.

The lock makes it safe for threads. Its coroutines never suspend, but for `wait`: they can be driven without an event
loop.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import astuple

from fairlead.core.health.diagnosis import MEMORY, Examination, Level, durability
from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant, Span
from fairlead.core.task import COMPLETED, After, Lane, Priority, State, Status, Task
from fairlead.storage.lane_merge import Head, merge
from fairlead.storage.lane_search import FEW
from fairlead.storage.memory.concurrency_keys import Keyed
from fairlead.storage.memory.feed import Feed
from fairlead.storage.memory.ids import Ids
from fairlead.storage.memory.lanes import IndexSize, Lanes
from fairlead.storage.memory.limits import Limiter
from fairlead.storage.memory.records import Records
from fairlead.storage.memory.turns import FairTurns
from fairlead.storage.memory.wait import Doorbell
from fairlead.storage.quarantine import Damage, Location, Quarantine, Removal
from fairlead.storage.steps import claimed, counted, curtailed, ends, extended, host_time, judged, pulse, released
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
    LineKeys,
    Missing,
    Pulse,
    Receipt,
    Record,
    Stretch,
    Tally,
    Usage,
    Verdict,
)

_NOWHERE: Final[Mapping[TaskId, State]] = {}


async def _nothing_to_remove(_: Damage) -> Removal:
    return Removal.GONE


async def _nowhere(_: Damage) -> Location | None:
    return None


class MemoryStore:
    """Tasks in this process's memory. See `fairlead.storage.protocol` for the contract."""

    def __init__(self, clock: Callable[[], Instant] = host_time, *, few: int = FEW) -> None:
        """Its own clock is the host's, or another one for simulations.

        A claim looks at each lane and queue where there are no more of them than `few`.
        """
        self._time = clock
        self._lock = threading.Lock()
        self._tasks: dict[TaskId, Task] = {}
        self._ids = Ids()
        self._keys: dict[tuple[str, str], TaskId] = {}
        self._dependents: dict[TaskId, list[TaskId]] = {}
        """Those who wait for a task that has not ended."""
        self._lanes = Lanes(self._tasks, clock, few)
        self._keyed = Keyed(
            self._lanes.is_ready,
            lambda task_id: self._tasks[task_id].spec.concurrency_key or "",
            self._lanes.offer_keyed,
        )
        self._turns = FairTurns(self._lanes.turn_of)
        self._limiter = Limiter(self._lanes, self._keyed, self._turns)
        self._records = Records()
        self._feed = Feed()
        self._doorbell = Doorbell()
        self.quarantine = Quarantine(self, _nothing_to_remove, _nowhere)
        """Nothing ever comes into it: tasks in memory are values, with no bytes that could be damaged."""

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        return self._add_all(tasks, now, bounds, _NOWHERE)

    async def claim(self, claim: Claim) -> list[Task]:
        with self._lock:
            claim = claim.dated(self._time())
            lanes = self._lanes.few(claim)
            if lanes is None or claim.limited or any(line.lane.keyed or line.lane.fair for line in lanes):
                heads = self._limiter.choose(claim, lanes)
            else:
                heads = merge(claim, [(line.lane, line.ready.heads()) for line in lanes])
            taken = [self._tasks[task_id] for _, task_id in heads]
            tasks = [self._set(task, claimed(task.status, claim)) for task in taken]
            self._keyed.claimed()
            return tasks

    async def extend(
        self, beats: Sequence[Beat], *, lease: Span, grace: Span, now: Instant | None = None
    ) -> list[Pulse]:
        with self._lock:
            at = self._time() if now is None else now
            return [self._extend(beat, lease, grace, at) for beat in beats]

    async def curtail(self, *, lease: Span, limit: int, now: Instant | None = None) -> int:
        with self._lock:
            end = (self._time() if now is None else now) + lease
            late = [self._tasks[task_id] for _, task_id in self._lanes.leased_beyond(end, limit)]
            for task in late:
                self._set(task, curtailed(task.status, end))
            return len(late)

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        with self._lock:
            verdicts = [self._apply(change) for change in changes]
            self._doorbell.ring([task for change in changes if (task := self._tasks.get(change.id))])
        return verdicts

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        with self._lock:
            return [self._tasks.get(task_id) for task_id in ids]

    async def due(self, now: Instant | None, limit: int, after: tuple[Instant, TaskId] | None = None) -> list[Task]:
        with self._lock:
            at = self._time() if now is None else now
            return [self._tasks[task_id] for _, task_id in self._lanes.due(at, limit, after)]

    async def find(
        self, matching: Filter, *, limit: int, newest_first: bool = True, after: TaskId | None = None
    ) -> list[Task]:
        with self._lock:
            if matching.worker is not None or matching.states == {State.EXECUTING}:
                # Under a lease are few, beside all that there may be.
                walked = iter(self._lanes.executing(newest_first, after))
            else:
                walked = self._ids.walk(newest_first, after)
            tasks = (self._tasks.get(task_id) for task_id in walked)
            admitted = (task for task in tasks if task is not None and matching.admits(task))
            return list(itertools.islice(admitted, limit))

    async def tally(self) -> Tally:
        with self._lock:
            return self._lanes.tally()

    async def count(self, stretches: Sequence[Stretch], most: int | None = None) -> list[int]:
        by_lane: dict[tuple[Lane, bool], list[tuple[Head, Head]]] = {}
        for stretch in stretches:
            places = by_lane.setdefault((stretch.lane, stretch.by_turn), [])
            places.append((astuple(stretch.start), astuple(stretch.end)))
        with self._lock:
            counts = {
                (lane, by_turn): iter(self._lanes.count(lane, places, by_turn=by_turn))
                for (lane, by_turn), places in by_lane.items()
            }
        found = [next(counts[stretch.lane, stretch.by_turn]) for stretch in stretches]
        return found if most is None else [min(count, most) for count in found]

    async def usage(self, queue: str, task_type: str, key: str | None) -> Usage:
        with self._lock:
            return self._limiter.usage(queue, task_type, key)

    async def line_keys(self, queue: str, priority: Priority, *, named: Sequence[str] = (), most: int = 0) -> LineKeys:
        with self._lock:
            return self._turns.keys(queue, priority, named, most)

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        with self._lock:
            return self._records.put(kind, name, value, expected)

    async def drop(self, kind: str, name: str, *, expected: int | None = None) -> bool:
        with self._lock:
            return self._records.drop(kind, name, expected)

    async def scan(self, kind: str) -> list[Record]:
        with self._lock:
            return self._records.scan(kind)

    async def publish(self, values: Sequence[bytes], *, now: Instant, keep: int) -> None:
        with self._lock:
            self._feed.publish(values, now, keep)

    async def feed(self, after: str | None, limit: int) -> list[FeedEntry]:
        with self._lock:
            return self._feed.read(after, limit)

    async def feed_end(self) -> str:
        with self._lock:
            return self._feed.end()

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        with self._lock:
            waiter = self._doorbell.listen(queues)
        if waiter is None:
            return
        try:
            async with asyncio.timeout(timeout):
                await waiter.rung.wait()
        except TimeoutError:
            pass
        finally:
            with self._lock:
                self._doorbell.leave(waiter)

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
            return self._lanes.index_size()

    def compact(self) -> int:
        """Remove the stale entries of the indexes of waiting tasks; how many there were."""
        with self._lock:
            return self._lanes.compact()

    def _add_all(
        self,
        tasks: Sequence[Task],
        now: Instant | None,
        bounds: Mapping[str, int],
        elsewhere: Mapping[TaskId, State],
    ) -> list[Receipt]:
        """Add tasks; `elsewhere` is how those stand that they may wait for and that are not in this store."""
        with self._lock:
            receipts = [self._add(task, now, bounds, elsewhere) for task in tasks]
            self._doorbell.ring(tasks)
        return receipts

    async def holder(self, queue: str, key: str, *, now: Instant | None = None) -> TaskId | None:
        with self._lock:
            return self._holder((queue, key), now)

    def _holder(self, key: tuple[str, str], now: Instant | None) -> TaskId | None:
        known = self._keys.get(key)
        task = None if known is None else self._tasks.get(known)
        until = None if task is None else task.spec.key_until
        return known if until is not None and until > (self._time() if now is None else now) else None

    def _add(
        self, task: Task, now: Instant | None, bounds: Mapping[str, int], elsewhere: Mapping[TaskId, State]
    ) -> Receipt:
        spec = task.spec
        if spec.id in self._tasks:
            return Known()
        key = (spec.queue, spec.idempotency_key) if spec.idempotency_key is not None else None
        if key is not None and (holder := self._holder(key, now)) is not None:
            return KeyHeld(holder)
        named = None
        if spec.after is not None and task.status.waits:
            found = self._states(spec.after, elsewhere)
            if isinstance(found, Missing):
                return found
            named = found
            task = Task(spec, counted(task.status, named.values()))
        bound = bounds.get(spec.queue)
        if bound is not None and task.state.waiting and (depth := self._lanes.waiting(spec.queue)) >= bound:
            return Full(depth, bound)
        if key is not None:
            self._keys[key] = spec.id
        if spec.fair is not None:
            task = Task(spec, self._turns.given(spec, None, task.status))
        self._tasks[spec.id] = task
        self._ids.add(spec.id)
        self._lanes.enter(task, task.lane)
        if spec.concurrency_key is not None:
            self._keyed.move(None, task)
        if named:
            for parent, state in named.items():
                if not state.ended:
                    self._dependents.setdefault(parent, []).append(spec.id)
        return Added()

    def _states(self, after: After, elsewhere: Mapping[TaskId, State]) -> dict[TaskId, State] | Missing:
        """How those stand that a task is to wait for."""
        states: dict[TaskId, State] = {}
        for named in after.tasks:
            task = self._tasks.get(named)
            state = elsewhere.get(named) if task is None else task.state
            if state is None:
                return Missing(named)
            states[named] = state
        return states

    def _extend(self, beat: Beat, lease: Span, grace: Span, now: Instant) -> Pulse:
        task = self._tasks.get(beat.id)
        after = None if task is None else extended(task.status, beat, lease, grace, now)
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
            if self._dependents and ends(task.status, change.status):
                completed = change.status is not None and change.status.state is COMPLETED
                if any(dependent.status.pending == 0 for dependent in self._count_end(task.id, completed)):
                    verdict = Verdict.RELEASED
        return verdict

    def _count_end(self, task_id: TaskId, completed: bool) -> list[Task]:
        """Let those who wait for a task know that it has ended; as they stand then."""
        dependents = map(self._tasks.get, self._dependents.pop(task_id, ()))
        return [
            self._set(task, released(task.status, 1, 0 if completed else 1))
            for task in dependents
            if task is not None and task.status.waits
        ]

    def _set(self, task: Task, status: Status) -> Task:
        spec, before = task.spec, task.status
        if spec.fair is not None:
            status = self._turns.given(spec, before, status)
        changed, task_id = Task(spec, status), spec.id
        self._tasks[task_id] = changed
        if spec.fair is not None:
            self._turns.left(spec, before, status)
        if status.priority is before.priority:
            self._lanes.move(task_id, before, status, task.lane)
        else:
            self._leave(task_id, before, task.lane)
            self._lanes.enter(changed, changed.lane)
        if spec.concurrency_key is not None:
            self._keyed.move(task, changed)
        return changed

    def _remove(self, task: Task) -> None:
        spec = task.spec
        del self._tasks[spec.id]
        if spec.fair is not None:
            self._turns.left(spec, task.status, None)
        self._leave(spec.id, task.status, task.lane)
        if spec.concurrency_key is not None:
            self._keyed.move(task, None)
        if spec.idempotency_key is not None and self._keys.get((spec.queue, spec.idempotency_key)) == spec.id:
            del self._keys[spec.queue, spec.idempotency_key]
        self._ids.compact(self._tasks)

    def _leave(self, task_id: TaskId, status: Status, lane: Lane) -> None:
        if self._lanes.leave(task_id, status, lane):
            self._doorbell.forget(lane.queue)
