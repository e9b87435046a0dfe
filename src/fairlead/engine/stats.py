"""How the queues stand, made from a store's tally."""

from __future__ import annotations

from msgspec import Struct

from fairlead.core.instant import Instant, Span
from fairlead.core.task import Priority, State
from fairlead.storage.values import Tally


class LineStats(Struct, frozen=True, kw_only=True):
    """How one priority of a queue stands."""

    depth: int = 0
    """Tasks that are ready and wait for a worker."""
    oldest_age: Span = 0
    """How long the one that has waited longest has waited."""


class QueueStats(Struct, frozen=True, kw_only=True):
    """How one queue stands."""

    lines: dict[Priority, LineStats]
    states: dict[State, int]
    types: dict[str, int]
    """Ready tasks by type."""


class Stats(Struct, frozen=True, kw_only=True):
    """How all queues stand."""

    queues: dict[str, QueueStats]
    states: dict[State, int]
    next_alarm: Instant | None
    journal_behind: int | None = None
    """How many changed tasks the journal has yet to learn of; None without a journal."""


def stats_of(tally: Tally, now: Instant) -> Stats:
    """The stats of a tally taken at this moment."""
    queues: dict[str, QueueStats] = {}
    states = dict.fromkeys(State, 0)
    for lane_tally in tally.lanes:
        lane = lane_tally.lane
        queue = queues.get(lane.queue)
        if queue is None:
            queue = queues[lane.queue] = QueueStats(
                lines={priority: LineStats() for priority in Priority}, states=dict.fromkeys(State, 0), types={}
            )
        for state, count in lane_tally.counts.items():
            queue.states[state] += count
            states[state] += count
        ready = lane_tally.counts.get(State.QUEUED, 0)
        if ready:
            queue.types[lane.type] = queue.types.get(lane.type, 0) + ready
        line = queue.lines[lane.priority]
        age = 0 if lane_tally.oldest_ready is None else max(0, now - lane_tally.oldest_ready)
        queue.lines[lane.priority] = LineStats(depth=line.depth + ready, oldest_age=max(line.oldest_age, age))
    return Stats(queues=queues, states=states, next_alarm=tally.next_alarm, journal_behind=tally.journal_behind)
