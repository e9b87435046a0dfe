"""How the queues stand, made from a store's tally."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.circuit import Circuit
from fairlead.core.health.unserved import SERVED, UnservedTasks
from fairlead.core.instant import Instant, Span
from fairlead.core.task import PRIORITIES, Priority, State
from fairlead.engine.fair_keys import FairKeys
from fairlead.engine.metrics.throughput import NO_COUNTS, OTHER_QUEUES, HourCounts, Throughput
from fairlead.engine.queue_ages import AgePercentiles, QueueAges
from fairlead.engine.worker_records import SlotKind, SlotUse, WorkerRecord, WorkerState
from fairlead.storage.values import Tally


class LineStats(Struct, frozen=True, kw_only=True):
    """How one priority of a queue stands."""

    depth: int = 0
    """Tasks that are ready and wait for a worker."""
    oldest_age: Span = 0
    """How long the one that has waited longest has waited."""
    ages: AgePercentiles | None = None
    """How long those have waited that wait; None if that was not counted, or none waits."""
    hour: HourCounts = NO_COUNTS


class QueueStats(Struct, frozen=True, kw_only=True):
    """How one queue stands."""

    lines: dict[Priority, LineStats]
    states: dict[State, int]
    types: dict[str, int]
    """Ready tasks by type."""
    running: dict[str, int] = {}
    """Executing tasks by type; a server that is asked for its statistics does not say."""
    dead_letters: dict[str, int] = {}
    """Dead letters by type; likewise."""
    unserved: UnservedTasks = SERVED
    """Ready tasks that no live worker could run."""
    fair: FairKeys | None = None
    """Who waits by fair keys; None if no fair task does."""
    paused: bool = False
    """Whether its tasks wait because someone paused it, or because its settings cannot be read."""
    unreadable: bool = False
    """Whether its settings cannot be read: they are damaged and were set aside, or are of a newer version."""


class WorkerStats(Struct, frozen=True, kw_only=True):
    """How many workers there are, and how busy those that live are."""

    active: int = 0
    """Those that take tasks."""
    paused: int = 0
    """Those that would be active, if nobody had paused them."""
    draining: int = 0
    dead: int = 0
    """Not heard of for one lease length, within the last hour."""
    total_capacity: int = 0
    used_capacity: int = 0
    slots: dict[SlotKind, SlotUse] = {}
    """By kind of handler, of those that have limits by kind."""

    @property
    def used_ratio(self) -> float:
        """How much is in use of all slots, or of the kind that is busiest if that is more; from 0 to 1."""
        counts = [
            (self.used_capacity, self.total_capacity),
            *((each.used, each.capacity) for each in self.slots.values()),
        ]
        return max(used / capacity if capacity else 0.0 for used, capacity in counts)


class Stats(Struct, frozen=True, kw_only=True):
    """How all queues stand."""

    queues: dict[str, QueueStats]
    states: dict[State, int]
    next_alarm: Instant | None
    workers: WorkerStats = WorkerStats()
    throughput: Throughput = Throughput()
    """What ended within the last minute: the sum of what each live process says it has counted itself, so it may be a
    heartbeat behind, and what a process counted is gone soon after it."""
    promoted_today: int = 0
    """How many tasks were claimed as more urgent than their own priority, because of their age, since midnight UTC."""
    journal_behind: int | None = None
    """How many changed tasks the journal has yet to learn of; None without a journal."""
    intact: bool | None = None
    """Whether the store has all that its journal knows of; None without a journal."""
    paused_types: tuple[str, ...] = ()
    """The task types that are paused, in whatever queue."""
    circuits: dict[str, Circuit] = {}
    """The circuits, by task type."""
    quarantined: dict[str, int] = {}
    """How many records, tasks among them, are set aside because they cannot be decoded, by kind."""
    at: Instant = 0
    """The moment of all this."""
    ages: dict[Priority, AgePercentiles] = {}
    """How long the tasks of all queues have waited that wait, by priority; empty if that was not counted."""
    other_queues: dict[Priority, HourCounts] = {}
    """What was counted within the last hour in queues of which there were too many to tell them apart."""


def stats_of(
    tally: Tally,
    now: Instant,
    workers: Sequence[WorkerRecord] = (),
    throughput: Throughput | None = None,
    *,
    paused: Collection[str] = (),
    paused_types: Collection[str] = (),
    circuits: Mapping[str, Circuit] | None = None,
    promoted_today: int = 0,
    unreadable: Collection[str] = (),
    quarantined: Mapping[str, int] | None = None,
    hour: Mapping[str, Mapping[Priority, HourCounts]] | None = None,
    unserved: Mapping[str, UnservedTasks] | None = None,
    fair: Mapping[str, FairKeys] | None = None,
) -> Stats:
    """The stats of a tally taken at this moment; a queue that is paused is there even without tasks."""
    queues = {name: _no_tasks(paused=True, unreadable=name in unreadable) for name in sorted(paused)}
    states = _NO_STATES.copy()
    for lane_tally in tally.lanes:
        lane = lane_tally.lane
        queue = queues.get(lane.queue)
        if queue is None:
            queue = queues[lane.queue] = _no_tasks()
        for state, count in lane_tally.counts.items():
            queue.states[state] += count
            states[state] += count
        ready = lane_tally.counts.get(State.QUEUED, 0)
        if ready:
            queue.types[lane.type] = queue.types.get(lane.type, 0) + ready
        if executing := lane_tally.counts.get(State.EXECUTING, 0):
            queue.running[lane.type] = queue.running.get(lane.type, 0) + executing
        if dead := lane_tally.counts.get(State.DEAD_LETTER, 0):
            queue.dead_letters[lane.type] = queue.dead_letters.get(lane.type, 0) + dead
        line = queue.lines[lane.priority]
        age = 0 if lane_tally.oldest_ready is None else max(0, now - lane_tally.oldest_ready)
        queue.lines[lane.priority] = LineStats(depth=line.depth + ready, oldest_age=max(line.oldest_age, age))
    for name, counts in (hour or {}).items():
        if name != OTHER_QUEUES:
            lines = queues.setdefault(name, _no_tasks()).lines
            lines.update({priority: replace(lines[priority], hour=each) for priority, each in counts.items()})
    for name, waiting in (unserved or {}).items():
        if name in queues:
            queues[name] = replace(queues[name], unserved=waiting)
    for name, keys in (fair or {}).items():
        if name in queues:
            queues[name] = replace(queues[name], fair=keys)
    return Stats(
        queues=queues,
        states=states,
        next_alarm=tally.next_alarm,
        workers=worker_stats(workers),
        throughput=throughput or Throughput(),
        promoted_today=promoted_today,
        journal_behind=tally.journal_behind,
        intact=tally.intact,
        paused_types=tuple(sorted(paused_types)),
        circuits=dict(circuits or {}),
        quarantined=dict(quarantined or {}),
        at=now,
        other_queues=dict((hour or {}).get(OTHER_QUEUES, {})),
    )


def aged(stats: Stats, ages: QueueAges) -> Stats:
    """The stats with how long the tasks have waited that wait, where there are any."""
    queues = stats.queues.copy()
    for (name, priority), each in ages.by_queue.items():
        queue = queues.get(name)
        if queue is not None and (line := queue.lines[priority]).depth:
            queues[name] = replace(queue, lines={**queue.lines, priority: replace(line, ages=each)})
    return replace(stats, queues=queues, ages=dict(ages.overall))


_NO_LINES: Final = dict.fromkeys(PRIORITIES, LineStats())
_NO_STATES: Final = dict.fromkeys(State, 0)


def _no_tasks(*, paused: bool = False, unreadable: bool = False) -> QueueStats:
    return QueueStats(
        lines=_NO_LINES.copy(),
        states=_NO_STATES.copy(),
        types={},
        running={},
        dead_letters={},
        paused=paused,
        unreadable=unreadable,
    )


def worker_stats(workers: Sequence[WorkerRecord]) -> WorkerStats:
    """How many workers there are, and how busy."""
    states = Counter(worker.word for worker in workers)
    alive = [worker for worker in workers if worker.state is not WorkerState.DEAD]
    return WorkerStats(
        active=states["active"],
        paused=states["paused"],
        draining=states["draining"],
        dead=states["dead"],
        total_capacity=sum(worker.capacity for worker in alive),
        used_capacity=sum(worker.running for worker in alive),
        slots=_slots(alive),
    )


def _slots(workers: Sequence[WorkerRecord]) -> dict[SlotKind, SlotUse]:
    slots: dict[SlotKind, SlotUse] = {}
    for each in (each for worker in workers for each in worker.slots):
        so_far = slots.get(each.kind, SlotUse(capacity=0, used=0))
        slots[each.kind] = SlotUse(capacity=so_far.capacity + each.capacity, used=so_far.used + each.running)
    return slots
