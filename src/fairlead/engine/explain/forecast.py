"""When a waiting task will start: pure reckoning from how its queue and the workers stand."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate, islice, pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import astuple

from fairlead.core.explain.explanation import Cause, CauseCode, Forecast, LinePlace
from fairlead.core.instant import MINUTE, SECOND, Instant, brief
from fairlead.core.queues.order import Policy, Weighted
from fairlead.core.queues.promotion import (
    BEFORE_ALL,
    Place,
    drawn_share,
    next_promotion,
    on_top_from,
    overtaken_until,
    place_among_older,
    places_ahead,
    steady_table,
    unpassable_from,
)
from fairlead.core.task import Lane, Priority, State, Task
from fairlead.engine.explain.eligibility import able, can_run, names_of
from fairlead.engine.worker_records import WorkerRecord
from fairlead.storage.values import LaneTally, Stretch

NAMED: Final = 20
"""How many of the workers that could take it are named."""


_NO_RATE: Final = "no task ended within the last minute at the workers that could take it, so their rate is not known"


class Sight(Struct, frozen=True, kw_only=True):
    """All that a forecast is made from."""

    task: Task
    now: Instant
    policy: Policy
    lanes: Sequence[LaneTally]
    """The lanes of its queue that have ready tasks."""
    workers: Sequence[WorkerRecord]
    paused_types: Collection[str] = frozenset()


class LanePlaces(Struct, frozen=True):
    """How far a lane is ahead of a task."""

    lane: Lane
    parts: Sequence[tuple[Priority, Place]]
    """Its parts that are ahead now, one after the other: what each is treated as, and where it ends."""
    older: Place | None = None
    """How far it can be ahead once the task has come to the top."""

    def stretches(self) -> list[Stretch]:
        """What to count, each task once."""
        return [Stretch(self.lane, start, end) for start, end in pairwise((BEFORE_ALL, *self._ends()))]

    def told(self, counts: Iterator[int]) -> tuple[list[tuple[Priority, int]], int]:
        """How many are in each part, and how many are older, once the stretches are counted."""
        until = dict(zip(self._ends(), accumulate(counts), strict=False))
        ends = [(self.parts[0][0], 0)] if self.parts else []
        ends += [(treated, until[end]) for treated, end in self.parts]
        parts = [(treated, count - before) for (_, before), (treated, count) in pairwise(ends)]
        return parts, 0 if self.older is None else until[self.older]

    def _ends(self) -> list[Place]:
        ends = {end for _, end in self.parts} | ({self.older} if self.older is not None else set())
        return sorted(ends, key=astuple)


def lane_places(sight: Sight) -> list[LanePlaces]:
    """How far each lane is ahead of the task."""
    task, table = sight.task, steady_table(sight.policy)
    lanes = [tally.lane for tally in sight.lanes]
    if table is None:
        own = [(task.status.priority, Place(task.status.ready_at, task.id))]
        return [LanePlaces(lane, own) for lane in lanes if lane.priority is task.status.priority]
    return [
        LanePlaces(
            lane, places_ahead(table, task, lane.priority, sight.now), place_among_older(table, task, lane.priority)
        )
        for lane in lanes
    ]


class _Line(Struct, frozen=True):
    """Who is ahead of a task, lane by lane."""

    ahead: Mapping[Lane, int]
    older: Mapping[Lane, int]
    by_priority: Mapping[Priority, int]


def place_of(sight: Sight, places: Sequence[LanePlaces], counts: Sequence[int]) -> tuple[LinePlace, Forecast]:
    """Where a queued task stands, and when it will start, if nothing blocks it.

    The counts are those of all stretches of the places, one after the other.
    """
    line = _line(sight, places, counts)
    task, table = sight.task, steady_table(sight.policy)
    place = LinePlace(
        ahead=sum(line.by_priority.values()),
        exact=table is not None,
        ahead_by_priority=line.by_priority,
        next_promotion=None if table is None else next_promotion(table, task, sight.now),
        unpassable_from=None if table is None else unpassable_from(table, task),
    )
    return place, _forecast(sight, line)


def _line(sight: Sight, places: Sequence[LanePlaces], counts: Sequence[int]) -> _Line:
    ahead: dict[Lane, int] = {}
    older: dict[Lane, int] = {}
    by_priority = dict.fromkeys(Priority, 0)
    rest = iter(counts)
    for each in places:
        parts, older[each.lane] = each.told(islice(rest, len(each.stretches())))
        ahead[each.lane] = sum(count for _, count in parts)
        for treated, count in parts:
            by_priority[treated] += count
    if isinstance(sight.policy, Weighted):
        return _drawn(sight, sight.policy, ahead)
    return _Line(ahead, older, by_priority)


def _drawn(sight: Sight, policy: Weighted, own_lanes: Mapping[Lane, int]) -> _Line:
    """The same where every turn is drawn, if luck is even: each other priority is served its share meanwhile."""
    own, own_ahead = sight.task.status.priority, sum(own_lanes.values())
    depths = {tally.lane: tally.counts.get(State.QUEUED, 0) for tally in sight.lanes}
    ahead = dict(own_lanes)
    by_priority = dict.fromkeys(Priority, 0) | {own: own_ahead}
    for other in Priority:
        lanes = {lane: depth for lane, depth in depths.items() if lane.priority is other}
        if other is own or not lanes:
            continue
        total = sum(lanes.values())
        by_priority[other] = drawn_share(policy, own, own_ahead, other, total)
        ahead |= {lane: round(by_priority[other] * depth / total) for lane, depth in lanes.items()}
    return _Line(ahead, {}, by_priority)


def _forecast(sight: Sight, line: _Line) -> Forecast:
    now = sight.now
    workers = able(sight.workers, sight.task.lane)
    free, rate = free_slots(workers), sum(map(_rate, workers))

    def competing(counts: Mapping[Lane, int]) -> int:
        """Those that the same workers would take first."""
        lanes = (lane for lane in counts if lane.type not in sight.paused_types)
        return sum(counts[lane] for lane in lanes if any(can_run(worker, lane) for worker in workers))

    ahead = competing(line.ahead)
    latest, no_latest = _latest(sight, competing(line.older), rate)
    estimated = now if ahead < free else None
    if estimated is None and rate:
        estimated = now + round((ahead + 1 - free) / rate * SECOND)
    if estimated is not None and latest is not None:
        estimated = min(estimated, latest)
    return Forecast(
        workers=len(workers),
        worker_ids=tuple(names_of(workers)[:NAMED]),
        free_slots=free,
        rate=rate or None,
        estimated_start=estimated,
        latest_start=latest,
        assumptions=tuple(_assumptions(sight, workers, rate, estimated, latest)),
        no_estimate=None if estimated is not None else _NO_RATE,
        no_latest=no_latest,
    )


def _latest(sight: Sight, older: int, rate: float) -> tuple[Instant | None, str | None]:
    """The start that no submit can put off any more, or why there is none."""
    task, table = sight.task, steady_table(sight.policy)
    if table is None:
        return None, "each turn picks a priority at random, so the wait has no upper limit"
    on_top = on_top_from(table, task)
    if on_top is None:
        return None, "in strict order, more urgent tasks always go first, so the wait has no upper limit"
    until = overtaken_until(table, task)
    if until > sight.now:
        return None, f"for another {brief(until - sight.now)} tasks with a longer head start can still get ahead of it"
    if not rate:
        return None, _NO_RATE
    return max(sight.now, on_top) + round((older + 1) / rate * SECOND), None


def _assumptions(
    sight: Sight,
    workers: Sequence[WorkerRecord],
    rate: float,
    estimated: Instant | None,
    latest: Instant | None,
) -> Iterator[str]:
    if estimated is None and latest is None:
        return
    if rate:
        yield f"its workers keep the rate of the last minute: {rate:.3g}/s"
    if estimated is not None:
        yield "for the estimate: nothing more urgent is submitted"
    others = sorted({queue for worker in workers for queue in worker.queues} - {sight.task.spec.queue})
    if others:
        yield f"its workers are not busy with their other queues: {', '.join(others[:5])}"
    yield "the workers are as they last reported, at most one heartbeat ago"


def free_slots(workers: Sequence[WorkerRecord]) -> int:
    """How many more tasks workers could run."""
    return sum(max(0, worker.capacity - worker.running) for worker in workers)


def _rate(worker: WorkerRecord) -> float:
    """How many tasks per second a worker has ended within the minute before it was last heard of, or since it came."""
    span = min(MINUTE, max(SECOND, worker.seen_at - worker.since))
    return (worker.completed + worker.failed) / (span / SECOND)


def line_causes(place: LinePlace, forecast: Forecast) -> Iterator[Cause]:
    """Why a queued task that nothing blocks has yet to start."""
    if place.ahead:
        parts = {priority.word: count for priority, count in place.ahead_by_priority.items() if count}
        listed = ", ".join(f"{count:,} {word}" for word, count in parts.items())
        about = "" if place.exact else "about "
        tasks = "task is" if place.ahead == 1 else "tasks are"
        yield Cause(
            CauseCode.TASKS_AHEAD,
            f"{about}{place.ahead:,} {tasks} ahead of it, as they are treated: {listed}",
            {"ahead": place.ahead, "exact": place.exact, "by_priority": parts},
        )
    if forecast.workers and not forecast.free_slots:
        one = forecast.workers == 1
        yield Cause(
            CauseCode.WORKERS_BUSY,
            f"{'the worker' if one else f'all {forecast.workers} workers'} that could take it "
            f"{'is' if one else 'are'} busy",
            {"workers": forecast.workers, "free_slots": 0},
        )
    elif forecast.workers and not place.ahead:
        yield Cause(
            CauseCode.NEXT_IN_LINE,
            "nothing is ahead of it, and a worker that could take it has a free slot: it starts at the next claim",
            {"workers": forecast.workers, "free_slots": forecast.free_slots},
        )
