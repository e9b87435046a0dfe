"""How queues and workers stand."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import asdict

from fairlead.core.instant import SECOND, Instant
from fairlead.core.task import Priority, State
from fairlead.engine.stats import LineStats, QueueStats, Stats
from fairlead.wire.circuits import CircuitShown, circuits_shown
from fairlead.wire.moments import iso, maybe_iso


class PriorityStanding(Struct, kw_only=True):
    """How one priority stands."""

    depth: int
    """Tasks that are ready and wait for a worker."""
    oldest_age_seconds: float
    """How long the one that has waited longest has waited; 0 if none waits."""


class QueueStanding(Struct, kw_only=True):
    """How one queue stands."""

    priorities: dict[str, PriorityStanding]
    states: dict[str, int]
    """How many tasks are in each state."""
    types: dict[str, int]
    """How many tasks of each type are ready."""
    paused: bool = False
    """Whether its tasks wait because someone paused it."""


class WorkerCounts(Struct, kw_only=True):
    """How many workers there are and how much they can do."""

    active: int
    draining: int
    dead: int
    """Those that were not heard of for one lease length, within the last hour."""
    total_capacity: int
    """How many tasks those that live can run at once."""
    used_capacity: int
    """How many they run."""


class Throughput(Struct, kw_only=True):
    """How many tasks ended lately."""

    completed_last_minute: int
    failed_last_minute: int


class Standing(Struct, kw_only=True):
    """How all queues stand, or one of them if one was asked for."""

    queues: dict[str, PriorityStanding]
    """By priority, all queues together."""
    workers: WorkerCounts
    """All workers, whatever queue was asked for."""
    throughput: Throughput
    """Of all queues, whatever queue was asked for."""
    by_queue: dict[str, QueueStanding]
    """By the name of the queue."""
    states: dict[str, int]
    """How many tasks are in each state."""
    next_alarm: str | None
    """When a task next needs attention: it is due, or its lease or retention ends."""
    promoted_today: int
    """How many tasks were claimed as more urgent than they are, because they had waited, since midnight UTC."""
    journal_behind: int | None
    """How many changed tasks the journal has yet to learn of; null without a journal."""
    paused_types: list[str] = []
    """The task types that are paused, in whatever queue."""
    circuits: list[CircuitShown] = []
    """The circuits of task types, and how they stand."""


class Sample(Struct, frozen=True, kw_only=True):
    """How all queues stood at one moment."""

    at: str
    depths: dict[str, int]
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
    """How all queues stood lately, the oldest first; as far back as the server that is asked has run."""

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
        queues={priority.word: _sum([each.lines[priority] for each in chosen.values()]) for priority in Priority},
        workers=WorkerCounts(**asdict(stats.workers)),
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
    )


def _sum(lines: list[LineStats]) -> PriorityStanding:
    return PriorityStanding(
        depth=sum(line.depth for line in lines),
        oldest_age_seconds=max((line.oldest_age for line in lines), default=0) / SECOND,
    )


def _queue(queue: QueueStats) -> QueueStanding:
    return QueueStanding(
        priorities={priority.word: _sum([line]) for priority, line in queue.lines.items()},
        states=_words(queue.states),
        types=queue.types,
        paused=queue.paused,
    )


def _states_of(queue: QueueStats | None) -> dict[State, int]:
    return dict.fromkeys(State, 0) if queue is None else queue.states


def _words(states: dict[State, int]) -> dict[str, int]:
    return {state.value: count for state, count in states.items()}
