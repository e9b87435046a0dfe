"""How the tasks of a memory store stand: what is ready in each lane, how many are in each state, which alarms are set.

Its indexes are heaps whose entries go stale when a task moves on, are dropped when they surface, and are compacted when
fewer than half are live: every operation costs O(log n).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.task import EXECUTING, QUEUED, WAITING, Lane, Priority, State, Status, Task
from fairlead.storage.lane_merge import Head
from fairlead.storage.lane_search import FEW, Bound
from fairlead.storage.memory.alarm_heap import Heap
from fairlead.storage.memory.lane_bounds import LaneBounds
from fairlead.storage.values import Claim, LaneTally, Tally

View: TypeAlias = tuple[frozenset[str] | None, frozenset[str]]
"""The types that a claim asks for, None for any, and those that it excludes."""
Kind: TypeAlias = tuple[frozenset[View], Priority, tuple[str, ...], bool]
"""Who passes over lanes, since they may not take tasks of such a type; their priority, what they require, and whether
they are of fair tasks."""

_MOST_VIEWS: Final = 4
_MOST_SETS: Final = 16
"""How many sets of views a queue's lanes may be told apart by, until it is time to forget who passes over them."""
_NOBODY: Final = frozenset[View]()


class ReadyLane:
    """One lane: its ready tasks, and how many of its tasks are in each state."""

    group: LaneGroup

    def __init__(
        self,
        lane: Lane,
        is_live: Callable[[Head], bool],
        has_turn: Callable[[Head], bool],
        compacted: Callable[[], None],
    ) -> None:
        self.lane = lane
        self.ready = Heap(is_live, compacted)
        self.turns = Heap(has_turn, compacted) if lane.fair else None
        """The same by turn, of fair tasks."""
        self.counts: Counter[State] = Counter()


class LaneGroup:
    """The lanes of one queue and kind, by lower bounds of their heads."""

    def __init__(self, queue: str, kind: Kind) -> None:
        self.queue = queue
        self.kind = kind
        self.size = 0
        """How many lanes there are, with ready tasks or without."""
        self.bounds = LaneBounds[ReadyLane]()
        self.turn_bounds = LaneBounds[ReadyLane]()
        """The same by turn, of lanes of fair tasks."""


class QueueLanes:
    """The lanes of one queue."""

    def __init__(self) -> None:
        self.lanes: dict[Lane, ReadyLane] = {}
        self.groups: dict[Kind, LaneGroup] = {}
        self.types: dict[str, dict[Lane, ReadyLane]] = {}
        """The lanes of each type."""
        self.waiting = 0
        self.executing = 0


class IndexSize(Struct, frozen=True):
    """How large the indexes of waiting tasks are, and how much of them is live."""

    entries: int
    live: int
    compacted_at: Instant | None = None
    """When one of them was last compacted."""


class Lanes:
    """The lanes of one memory store that have tasks. The owner holds the lock, and the tasks as they stand."""

    def __init__(self, tasks: Mapping[TaskId, Task], clock: Callable[[], Instant], few: int = FEW) -> None:
        """`few` is up to how many lanes and queues a claim looks at each."""
        self._tasks = tasks
        self._time = clock
        self.most_at_once = few
        self._compacted_at: Instant | None = None
        self.queues: dict[str, QueueLanes] = {}
        self.groups: dict[Kind, LaneBounds[LaneGroup]] = {}
        """The groups of all queues, by lower bounds of their heads."""
        self._alarms = Heap(self._alarm_is_live)
        self._executing: set[TaskId] = set()
        """In no order: every claim enters some, and only a look for leases that end too late asks when theirs do."""

    def enter(self, task: Task, lane: Lane) -> None:
        """Index a task as it now stands."""
        queue = self.queues.get(lane.queue)
        if queue is None:
            queue = self.queues[lane.queue] = QueueLanes()
        line = queue.lanes.get(lane)
        if line is None:
            line = self._new_lane(queue, lane)
        self._index(queue, line, task.spec.id, task.status)

    def move(self, task_id: TaskId, before: Status, after: Status, lane: Lane) -> None:
        """Index a task as it now stands that was in this lane, and still is."""
        queue = self.queues[lane.queue]
        line = queue.lanes[lane]
        self._unindex(queue, line, task_id, before)
        self._index(queue, line, task_id, after)

    def _index(self, queue: QueueLanes, line: ReadyLane, task_id: TaskId, status: Status) -> None:
        state = status.state
        line.counts[state] += 1
        if state is QUEUED:
            place = status.ready_at, task_id
            line.ready.push(place)
            if line.turns is not None:
                line.turns.push((status.turn, task_id))
                line.group.turn_bounds.lower(line, (status.turn, task_id))
            if not line.lane.keyed and line.group.bounds.lower(line, place):
                self.offer_group(line.group, place)
        elif state is EXECUTING:
            queue.executing += 1
            self._executing.add(task_id)
        if state in WAITING:
            queue.waiting += 1
        if status.alarm is not None:
            self._alarms.push((status.alarm, task_id))

    def offer(self, line: ReadyLane, place: Bound) -> None:
        """Take note that a claim may find this in a lane."""
        if line.group.bounds.lower(line, place):
            self.offer_group(line.group, place)

    def offer_group(self, group: LaneGroup, place: Bound) -> None:
        """Take note that a claim may find this in a group of lanes."""
        groups = self.groups.get(group.kind)
        if groups is None:
            groups = self.groups[group.kind] = LaneBounds()
        groups.lower(group, place)

    def offer_keyed(self, lane: Lane, place: Bound) -> None:
        """Take note that a task has come to the front of a lane of keyed tasks."""
        self.offer(self.queues[lane.queue].lanes[lane], place)

    def pass_over(self, line: ReadyLane, view: View, bound: Bound | None = None) -> None:
        """Take note that claims of these types need not look at a lane; who has been left out looks once more."""
        queue = self.queues[line.lane.queue]
        views, priority, requires, fair = line.group.kind
        known, turn = line.group.bounds.leave(line), line.group.turn_bounds.leave(line)
        bound = known if bound is None else bound
        views = views | {view} if len(views) < _MOST_VIEWS else frozenset({view})
        self._leave_group(queue, line)
        self._join_group(queue, line, (views, priority, requires, fair))
        if bound is not None:
            self.offer(line, bound)
        if turn is not None:
            line.group.turn_bounds.lower(line, turn)
        if len(queue.groups) > _MOST_SETS and len({kind[0] for kind in queue.groups}) > _MOST_SETS:
            for each in queue.lanes.values():
                known, by_turn = each.group.bounds.leave(each), each.group.turn_bounds.leave(each)
                self._leave_group(queue, each)
                self._join_group(queue, each, (_NOBODY, each.lane.priority, each.lane.requires, each.lane.fair))
                if known is not None:
                    self.offer(each, known)
                if by_turn is not None:
                    each.group.turn_bounds.lower(each, by_turn)

    def _new_lane(self, queue: QueueLanes, lane: Lane) -> ReadyLane:
        line = ReadyLane(
            lane, lambda head: self.is_ready(lane, head), lambda head: self._has_turn(lane, head), self._note_compacted
        )
        queue.lanes[lane] = line
        queue.types.setdefault(lane.type, {})[lane] = line
        self._join_group(queue, line, (_NOBODY, lane.priority, lane.requires, lane.fair))
        return line

    def _join_group(self, queue: QueueLanes, line: ReadyLane, kind: Kind) -> None:
        group = queue.groups.get(kind)
        if group is None:
            group = queue.groups[kind] = LaneGroup(line.lane.queue, kind)
        group.size += 1
        line.group = group

    def _leave_group(self, queue: QueueLanes, line: ReadyLane) -> None:
        group = line.group
        group.bounds.leave(line)
        group.turn_bounds.leave(line)
        group.size -= 1
        if group.size:
            return
        del queue.groups[group.kind]
        groups = self.groups.get(group.kind)
        if groups is not None:
            groups.leave(group)
            if not groups:
                del self.groups[group.kind]

    def leave(self, task_id: TaskId, status: Status, lane: Lane) -> bool:
        """Forget how a task of this lane stood; whether it was the last of its queue.

        Its index entries are stale from now on.
        """
        queue = self.queues[lane.queue]
        line = queue.lanes[lane]
        self._unindex(queue, line, task_id, status)
        return not any(line.counts.values()) and self._forget(queue, line)

    def _unindex(self, queue: QueueLanes, line: ReadyLane, task_id: TaskId, status: Status) -> None:
        state = status.state
        line.counts[state] -= 1
        if state is QUEUED:
            line.ready.stale()
            if line.turns is not None:
                line.turns.stale()
        elif state is EXECUTING:
            queue.executing -= 1
            self._executing.discard(task_id)
        if state in WAITING:
            queue.waiting -= 1
        if status.alarm is not None:
            self._alarms.stale()

    def _forget(self, queue: QueueLanes, line: ReadyLane) -> bool:
        """Forget a lane without tasks; whether it was the last of its queue."""
        lane = line.lane
        del queue.lanes[lane]
        del queue.types[lane.type][lane]
        if not queue.types[lane.type]:
            del queue.types[lane.type]
        self._leave_group(queue, line)
        if not queue.lanes:
            del self.queues[lane.queue]
            return True
        return False

    def few(self, claim: Claim) -> list[ReadyLane] | None:
        """The lanes of a claim's queues and types that have ready tasks; None if there are too many to look at each."""
        if len(claim.queues) == 1:
            only = self.queues.get(claim.queues[0].queue)
            if only is None or len(only.lanes) <= self.most_at_once:
                lines = () if only is None else only.lanes.values()
                return [line for line in lines if line.counts[QUEUED] and claim.admits(line.lane)]
        found: list[ReadyLane] = []
        looked_at = 0
        types = claim.types if claim.types is not None and len(claim.types) <= self.most_at_once else None
        for queue in {order.queue: None for order in claim.queues}:
            lanes = self.queues.get(queue)
            if lanes is None:
                continue
            if types is None or len(lanes.lanes) <= self.most_at_once:
                looked_at += len(lanes.lanes)
                asked = iter(lanes.lanes.values())
            else:
                looked_at += 1  # Its lanes of few types are few enough.
                asked = (line for each in types for line in lanes.types.get(each, {}).values())
            if looked_at > self.most_at_once:
                return None
            found += [line for line in asked if line.counts[QUEUED] and claim.admits(line.lane)]
        return found

    def waiting(self, queue: str) -> int:
        """How many tasks wait in a queue."""
        lanes = self.queues.get(queue)
        return 0 if lanes is None else lanes.waiting

    def running(self, queue: str, task_type: str | None = None) -> int:
        """How many tasks run of a queue, or of a type in it."""
        lanes = self.queues.get(queue)
        if lanes is None:
            return 0
        if task_type is None:
            return lanes.executing
        return sum(line.counts[EXECUTING] for line in lanes.types.get(task_type, {}).values())

    def is_ready(self, lane: Lane, head: Head) -> bool:
        """Whether a task is queued in this lane since this moment."""
        task = self._tasks.get(head[1])
        return (
            task is not None
            and task.status.state is QUEUED
            and task.status.ready_at == head[0]
            and task.status.priority == lane.priority
        )

    def _has_turn(self, lane: Lane, head: Head) -> bool:
        """Whether a task is queued in this lane at this turn."""
        task = self._tasks.get(head[1])
        return (
            task is not None
            and task.status.state is QUEUED
            and task.status.turn == head[0]
            and task.status.priority == lane.priority
        )

    def turn_of(self, task_id: TaskId, priority: Priority) -> int | None:
        """The turn of a task that is queued at a priority."""
        task = self._tasks.get(task_id)
        waits = task is not None and task.status.state is QUEUED and task.status.priority == priority
        return task.status.turn if task is not None and waits else None

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
            for queue in self.queues.values()
            for lane, line in queue.lanes.items()
        ]
        alarm = self._alarms.peek()
        return Tally(lanes, alarm[0] if alarm else None)

    def count(self, lane: Lane, places: Sequence[tuple[Head, Head]], *, by_turn: bool = False) -> list[int]:
        """How many ready tasks of a lane are from one place on and before another, for each such pair."""
        queue = self.queues.get(lane.queue)
        line = None if queue is None else queue.lanes.get(lane)
        order = None if line is None else line.turns if by_turn else line.ready
        return [0] * len(places) if order is None else order.count(places)

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
        lanes = [line for queue in self.queues.values() for line in queue.lanes.values()]
        return [heap for line in lanes for heap in (line.ready, line.turns) if heap is not None]

    def _note_compacted(self) -> None:
        self._compacted_at = self._time()

    def _alarm_is_live(self, head: Head) -> bool:
        task = self._tasks.get(head[1])
        return task is not None and task.status.alarm == head[0]
