"""Counts over HTTP: their shapes and their endpoints."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from fairlead.admin.circuits.api import CircuitShown, circuit_of, circuits_shown
from fairlead.core.health.unserved import Lack, Unserved, UnservedTasks
from fairlead.core.instant import SECOND, Instant, span
from fairlead.core.task import PRIORITIES, Priority, State
from fairlead.core.tenancy import Role
from fairlead.engine.fair_keys import FairKeys
from fairlead.engine.metrics.throughput import NO_COUNTS, HourCounts
from fairlead.engine.metrics.throughput import Throughput as Ended
from fairlead.engine.queue_ages import AgePercentiles
from fairlead.engine.stats import LineStats, QueueStats, Stats, WorkerStats
from fairlead.engine.worker_records import SlotKind, SlotUse
from fairlead.wire.endpoint import Empty, Endpoint
from fairlead.wire.tasks import Name
from fairlead.wire.text import iso, maybe_iso, maybe_parse_iso
from fairlead.wire.words import PRIORITY_WORDS, STATE_WORDS, ByPriority, ByState


class PriorityStanding(Struct, kw_only=True):
    """How one priority stands."""

    depth: int
    """Tasks that are ready and wait for a worker."""
    oldest_age_seconds: float
    """How long the one that has waited longest has waited; 0 if none waits."""
    age_p50_seconds: float | None = None
    """The median age of the waiting tasks, at most 1 % too high. Null if none waits, or if the ages were not counted:
    by a command that uses the store without a server, with over 2,000 lanes, or when counting took too long."""
    age_p95_seconds: float | None = None
    """The 95th percentile of their ages, likewise."""
    ended_last_hour: int = 0
    """How many tasks completed, failed or became dead letters within the last hour; attempts that are retried do not
    count. This and the following figures are sums over all processes, including those that have ended since; those of
    processes other than the answering one are as of their last heartbeat."""
    average_wait_seconds: float | None = None
    """How long these had been ready when the last attempt of each began, on average; null if there are none."""
    average_duration_seconds: float | None = None
    """How long that attempt took, on average; null if there are none."""
    promotions_last_hour: int = 0
    """How many tasks were claimed within the last hour as more urgent than this priority, because of their age."""
    recoveries_last_hour: int = 0
    """How many tasks were queued again within the last hour because the lease of their worker had ended."""


class UnservedShown(Struct, frozen=True, kw_only=True):
    """Ready tasks of one type and capability set that no live worker could run."""

    task_type: str | None
    """Null for all of the queue, whatever their type: no worker serves it."""
    required_capabilities: list[str]
    reason: str
    """Why, for programs: `no_workers`, `queue_unserved`, `type_unknown` or `capability_missing`."""
    missing_capabilities: list[str]
    """What the workers that come nearest lack."""
    tasks: int
    oldest_age_seconds: float
    """How long the one has waited that has waited longest."""
    text: str
    """Why, for people."""


class QueueStanding(Struct, kw_only=True):
    """How one queue stands."""

    priorities: ByPriority[PriorityStanding]
    states: ByState[int]
    """How many tasks are in each state."""
    types: dict[str, int]
    """How many tasks of each type are ready."""
    paused: bool = False
    """Whether its tasks wait because someone paused it, or because its settings cannot be read."""
    unreadable: bool = False
    """Whether its settings cannot be read: they were damaged and set aside, or are of a newer version."""
    unserved_tasks: int = 0
    """Ready tasks that no live worker could run: none serves the queue, has a handler for the type, or has all that is
    required. A worker that has just left still counts for one lease length, as it may be starting again."""
    unserved_kinds: int = 0
    """How many pairs of a task type and a capability set they are of."""
    unserved: list[UnservedShown] = []
    """Those of which most wait, 10 at most."""
    fair_keys: int = 0
    """How many fair keys share it now, such as tenants, at least."""
    waiting_by_key: dict[str, int] = {}
    """How many ready tasks of a fair key there are, of the 10 keys that have most."""
    waiting_of_other_keys: int = 0
    """How many of all other keys."""


class WorkerCounts(Struct, kw_only=True):
    """How many workers there are and how much they can do."""

    active: int
    """Those that take tasks."""
    draining: int
    dead: int
    """Those without a heartbeat for one lease length, within the last hour."""
    total_capacity: int
    """How many tasks the live workers can run at once."""
    used_capacity: int
    """How many they run."""
    paused: int = 0
    """Those that are neither draining nor dead, and take no tasks until somebody resumes them."""
    slots: dict[SlotKind, SlotUse] = {}
    """By kind of handler, of those that have limits by kind."""


class Throughput(Struct, kw_only=True):
    """How many tasks ended lately."""

    completed_last_minute: int
    failed_last_minute: int


class Standing(Struct, kw_only=True):
    """The figures of all queues, or of one if one was asked for."""

    queues: ByPriority[PriorityStanding]
    """By priority, all queues together."""
    workers: WorkerCounts
    """All workers, whatever queue was asked for."""
    throughput: Throughput
    """Of all queues, whatever queue was asked for."""
    by_queue: dict[str, QueueStanding]
    """By the name of the queue."""
    states: ByState[int]
    """How many tasks are in each state."""
    next_alarm: str | None
    """When a task next needs attention: it is due, or its lease or retention ends."""
    promoted_today: int
    """How many tasks were claimed as more urgent than their own priority, because of their age, since midnight UTC."""
    journal_behind: int | None
    """How many changed tasks the journal has yet to learn of; null without a journal."""
    paused_types: list[str] = []
    """The task types that are paused, in whatever queue."""
    circuits: list[CircuitShown] = []
    """The circuits of task types, and how they stand."""
    quarantined: dict[str, int] = {}
    """How many records, tasks among them, are set aside because they cannot be decoded, by kind."""


class SystemMetrics(Struct, kw_only=True):
    """What the event `system.metrics` tells every few seconds."""

    workers: WorkerCounts
    throughput: Throughput
    states: ByState[int]
    """How many tasks are in each state."""


class Sample(Struct, frozen=True, kw_only=True):
    """How all queues stood at one moment."""

    at: str
    depths: ByPriority[int]
    """Ready tasks, by priority."""
    oldest_age_seconds: float
    """How long the one that had waited longest had waited."""
    scheduled: int
    executing: int
    dead_letters: int
    completed_last_minute: int
    failed_last_minute: int
    used_capacity: int
    total_capacity: int


class History(Struct, frozen=True, kw_only=True):
    """Figures of all queues over the last hour, the oldest first; they begin when the answering server started."""

    interval_seconds: float
    samples: list[Sample]


def sample(stats: Stats, now: Instant) -> Sample:
    """How all queues stand at this moment, in short."""
    shown = standing(stats)
    return Sample(
        at=iso(now),
        depths={priority: line.depth for priority, line in shown.queues.items()},
        oldest_age_seconds=max(line.oldest_age_seconds for line in shown.queues.values()),
        scheduled=stats.states[State.SCHEDULED],
        executing=stats.states[State.EXECUTING],
        dead_letters=stats.states[State.DEAD_LETTER],
        completed_last_minute=stats.throughput.completed,
        failed_last_minute=stats.throughput.failed,
        used_capacity=stats.workers.used_capacity,
        total_capacity=stats.workers.total_capacity,
    )


def standing(stats: Stats, queue: str | None = None) -> Standing:
    """The stats of all queues, or of one."""
    chosen = stats.queues if queue is None else {name: each for name, each in stats.queues.items() if name == queue}
    states = stats.states if queue is None else _states_of(chosen.get(queue))
    return Standing(
        queues={
            PRIORITY_WORDS[priority]: _line(_sum(stats, priority, list(chosen.values()), everything=queue is None))
            for priority in PRIORITIES
        },
        workers=_workers(stats.workers),
        throughput=Throughput(
            completed_last_minute=stats.throughput.completed, failed_last_minute=stats.throughput.failed
        ),
        by_queue={name: _queue(each) for name, each in chosen.items()},
        states=_words(states),
        next_alarm=maybe_iso(stats.next_alarm),
        promoted_today=stats.promoted_today,
        journal_behind=stats.journal_behind,
        paused_types=list(stats.paused_types),
        circuits=circuits_shown(stats.circuits, stats.at),
        quarantined=stats.quarantined,
    )


def _sum(stats: Stats, priority: Priority, queues: list[QueueStats], *, everything: bool) -> LineStats:
    """How one priority stands in all queues, or in the one that was chosen."""
    lines = [queue.lines[priority] for queue in queues]
    if not everything:
        return lines[0] if lines else LineStats()
    depth = oldest_age = 0
    hour = stats.other_queues.get(priority, NO_COUNTS)
    for line in lines:
        depth += line.depth
        oldest_age = max(oldest_age, line.oldest_age)
        if line.hour is not NO_COUNTS:
            hour = hour.plus(line.hour)
    return LineStats(depth=depth, oldest_age=oldest_age, ages=stats.ages.get(priority) if depth else None, hour=hour)


def _line(line: LineStats) -> PriorityStanding:
    ages, hour = line.ages, line.hour
    return PriorityStanding(
        depth=line.depth,
        oldest_age_seconds=line.oldest_age / SECOND,
        age_p50_seconds=None if ages is None else ages.p50 / SECOND,
        age_p95_seconds=None if ages is None else ages.p95 / SECOND,
        ended_last_hour=hour.ended,
        average_wait_seconds=hour.waited / hour.ended / SECOND if hour.ended else None,
        average_duration_seconds=hour.took / hour.ended / SECOND if hour.ended else None,
        promotions_last_hour=hour.promoted,
        recoveries_last_hour=hour.recovered,
    )


def _workers(workers: WorkerStats) -> WorkerCounts:
    return WorkerCounts(
        active=workers.active,
        draining=workers.draining,
        dead=workers.dead,
        total_capacity=workers.total_capacity,
        used_capacity=workers.used_capacity,
        paused=workers.paused,
        slots=workers.slots,
    )


def _queue(queue: QueueStats) -> QueueStanding:
    return QueueStanding(
        priorities={PRIORITY_WORDS[priority]: _line(line) for priority, line in queue.lines.items()},
        states=_words(queue.states),
        types=queue.types,
        paused=queue.paused,
        unreadable=queue.unreadable,
        unserved_tasks=queue.unserved.tasks,
        unserved_kinds=queue.unserved.kinds,
        unserved=[_unserved_shown(kind) for kind in queue.unserved.first],
        fair_keys=0 if queue.fair is None else queue.fair.keys,
        waiting_by_key={} if queue.fair is None else queue.fair.waiting,
        waiting_of_other_keys=0 if queue.fair is None else queue.fair.others,
    )


def _unserved_shown(kind: Unserved) -> UnservedShown:
    return UnservedShown(
        task_type=kind.type,
        required_capabilities=list(kind.requires),
        reason=str(kind.lack.code),
        missing_capabilities=list(kind.lack.missing),
        tasks=kind.tasks,
        oldest_age_seconds=kind.oldest_age / SECOND,
        text=kind.reason,
    )


def _states_of(queue: QueueStats | None) -> dict[State, int]:
    return dict.fromkeys(State, 0) if queue is None else queue.states


def _words(states: dict[State, int]) -> dict[str, int]:
    return {STATE_WORDS[state]: count for state, count in states.items()}


class StatsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which queue."""

    queue: Name | None = None
    """Only this queue; a queue without tasks has zeros."""


SHOW_STATS: Final = Endpoint[StatsQuery, None](
    method="GET",
    path="/api/v1/queue/stats",
    summary="Show the statistics of the queues",
    role=Role.READ,
    query=StatsQuery,
    answers={200: Standing},
)
SHOW_HISTORY: Final = Endpoint[Empty, None](
    method="GET",
    path="/api/v1/queue/history",
    summary="Show the recent statistics",
    role=Role.READ,
    answers={200: History},
)


def stats_of(standing: Standing) -> Stats:
    """How the queues stand, as a server shows it."""
    overall = {priority: _line_of(standing.queues.get(priority.word)) for priority in Priority}
    return Stats(
        queues={name: _queue_of(each) for name, each in standing.by_queue.items()},
        states=_counts(standing.states),
        next_alarm=maybe_parse_iso(standing.next_alarm),
        workers=WorkerStats(
            active=standing.workers.active,
            paused=standing.workers.paused,
            draining=standing.workers.draining,
            dead=standing.workers.dead,
            total_capacity=standing.workers.total_capacity,
            used_capacity=standing.workers.used_capacity,
            slots=standing.workers.slots,
        ),
        throughput=Ended(
            completed=standing.throughput.completed_last_minute, failed=standing.throughput.failed_last_minute
        ),
        promoted_today=standing.promoted_today,
        journal_behind=standing.journal_behind,
        paused_types=tuple(standing.paused_types),
        circuits={shown.task_type: circuit_of(shown) for shown in standing.circuits},
        quarantined=standing.quarantined,
        ages={priority: line.ages for priority, line in overall.items() if line.ages is not None},
    )


def _queue_of(standing: QueueStanding) -> QueueStats:
    return QueueStats(
        lines={priority: _line_of(standing.priorities.get(priority.word)) for priority in Priority},
        states=_counts(standing.states),
        types=standing.types,
        paused=standing.paused,
        unreadable=standing.unreadable,
        unserved=UnservedTasks(
            tasks=standing.unserved_tasks,
            kinds=standing.unserved_kinds,
            first=tuple(_unserved_of(shown) for shown in standing.unserved),
        ),
        fair=FairKeys(keys=standing.fair_keys, waiting=standing.waiting_by_key, others=standing.waiting_of_other_keys)
        if standing.fair_keys
        else None,
    )


def _unserved_of(shown: UnservedShown) -> Unserved:
    return Unserved(
        type=shown.task_type,
        requires=tuple(shown.required_capabilities),
        lack=Lack(shown.reason, tuple(shown.missing_capabilities)),
        tasks=shown.tasks,
        oldest_age=span(shown.oldest_age_seconds),
    )


def _line_of(standing: PriorityStanding | None) -> LineStats:
    if standing is None:
        return LineStats()
    p50, p95, ended = standing.age_p50_seconds, standing.age_p95_seconds, standing.ended_last_hour
    return LineStats(
        depth=standing.depth,
        oldest_age=span(standing.oldest_age_seconds),
        ages=None if p50 is None or p95 is None else AgePercentiles(p50=span(p50), p95=span(p95)),
        hour=HourCounts(
            ended=ended,
            waited=span((standing.average_wait_seconds or 0) * ended),
            took=span((standing.average_duration_seconds or 0) * ended),
            promoted=standing.promotions_last_hour,
            recovered=standing.recoveries_last_hour,
        ),
    )


def _counts(counts: dict[str, int]) -> dict[State, int]:
    return {state: counts.get(state.value, 0) for state in State}
