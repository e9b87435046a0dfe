"""Where a waiting task stands and when it will start: pure reckoning from how its queue and the workers stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice, pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import astuple, replace

from fairlead.core.explain.explanation import Cause, CauseCode, Forecast, LinePlace
from fairlead.core.instant import MINUTE, SECOND, Instant, Span, brief
from fairlead.core.queues.order import Policy, QueueTurns, Weighted, rank_after, service_key
from fairlead.core.queues.promotion import (
    BEFORE_ALL,
    LanePart,
    Place,
    drawn_share,
    next_promotion,
    on_top_from,
    overtaken_until,
    parts_ahead,
    parts_before,
    place_among_older,
    starts_at_the_top,
    steady_turns,
    turns_from,
    unpassable_from,
)
from fairlead.core.task import Lane, Priority, State, Task
from fairlead.engine.explain.eligibility import able, names_of
from fairlead.engine.explain.limits_left import LimitsLeft
from fairlead.engine.metrics.throughput import Spent
from fairlead.engine.worker_records import WorkerRecord
from fairlead.storage.values import LaneTally, Stretch

NAMED: Final = 20
"""How many of the workers that could take it are named."""

_NO_PACE: Final = (
    "no task ended within the last hour in the queues of the workers that could take it, so how long tasks take is not "
    "known"
)


class Sight(Struct, frozen=True, kw_only=True):
    """All that a place and a forecast are made from."""

    task: Task
    now: Instant
    policy: Policy
    """Of its queue."""
    lanes: Sequence[LaneTally]
    """The lanes with ready tasks that the workers which could take it may take from now, in all their queues."""
    workers: Sequence[WorkerRecord]
    policies: Mapping[str, Policy] = {}
    """Of the other queues of these workers."""
    passed: int = 0
    """How often others were served since a promoted task was, as far as is known."""
    limits: LimitsLeft = LimitsLeft()
    spent: Spent = Spent()
    """What the tasks took that ended lately in the queues of these workers."""

    @property
    def turns(self) -> QueueTurns | None:
        """How its queue is served; None where each turn draws a table of its own."""
        return steady_turns(self.policy, self.passed)

    @property
    def mean(self) -> Span | None:
        """How long a task takes, as far as is known."""
        return self.spent.time // self.spent.ended if self.spent.ended else None


class LanePlaces(Struct, frozen=True):
    """How far a lane is ahead of a task."""

    lane: Lane
    parts: Sequence[LanePart]
    """Its parts that are ahead now, one after the other."""
    older: Place | None = None
    """How far it can be ahead once the task has come to the top."""

    def stretches(self) -> list[Stretch]:
        """What to count, each task once."""
        return [Stretch(self.lane, start, end) for start, end in pairwise((BEFORE_ALL, *self._ends()))]

    def told(self, counts: Iterator[int]) -> tuple[list[tuple[LanePart, int]], int]:
        """How many are in each part, and how many are older, once the stretches are counted."""
        until = dict(zip(self._ends(), accumulate(counts), strict=False))
        befores = (0, *(until[part.end] for part in self.parts))
        parts = [(part, until[part.end] - before) for part, before in zip(self.parts, befores, strict=False)]
        return parts, 0 if self.older is None else until[self.older]

    def _ends(self) -> list[Place]:
        ends = {part.end for part in self.parts} | ({self.older} if self.older is not None else set())
        return sorted(ends, key=astuple)


def lane_places(sight: Sight) -> list[LanePlaces]:
    """How far each lane is ahead of the task."""
    task, turns, queue = sight.task, sight.turns, sight.task.spec.queue
    lanes = [tally.lane for tally in sight.lanes]
    if turns is None:
        own = [LanePart(task.status.priority, Place(task.status.ready_at, task.id))]
        return [
            LanePlaces(lane, own) for lane in lanes if lane.queue == queue and lane.priority is task.status.priority
        ]
    key = service_key(turns.tables[0], task.status.priority, task.status.ready_at, task.id, sight.now)
    places: list[LanePlaces] = []
    for lane in lanes:
        if lane.queue == queue:
            parts = parts_ahead(turns, task, lane.priority, sight.now)
            places.append(LanePlaces(lane, parts, place_among_older(turns, task, lane.priority)))
        elif (others := steady_turns(sight.policies.get(lane.queue, sight.policy))) is not None:
            places.append(LanePlaces(lane, parts_before(key, others.tables[0], lane.priority, sight.now)))
    return places


class _Ahead(Struct, frozen=True):
    """Who is served before a task, if nothing ends."""

    own: int
    """Of its queue."""
    own_type: int
    """Of its type in its queue."""
    elsewhere: int
    """Of the other queues of the workers that could take it."""
    older: int
    """Of its queue, once it has come to the top."""
    by_priority: Mapping[Priority, int]

    @property
    def all(self) -> int:
        return self.own + self.elsewhere


def place_of(sight: Sight, places: Sequence[LanePlaces], counts: Sequence[int]) -> tuple[LinePlace, Forecast]:
    """Where a queued task stands, and when it will start, if nothing blocks it.

    The counts are those of all stretches of the places, one after the other.
    """
    rest = iter(counts)
    told = [(each.lane, *each.told(islice(rest, len(each.stretches())))) for each in places]
    line = _drawn(sight, sight.policy, told) if isinstance(sight.policy, Weighted) else _line(sight, told)
    task, turns = sight.task, sight.turns
    place = LinePlace(
        ahead=line.all,
        exact=_is_exact(sight, turns, line),
        ahead_by_priority=line.by_priority,
        unreached=_unreached(sight, line),
        next_promotion=None if turns is None else next_promotion(turns.tables[0], task, sight.now),
        unpassable_from=None if turns is None else unpassable_from(turns, task),
        turns_from=None if turns is None else turns_from(turns, task),
    )
    return place, _forecast(sight, line)


Told = Sequence[tuple[Lane, list[tuple[LanePart, int]], int]]


def _line(sight: Sight, told: Told) -> _Ahead:
    queue, limits = sight.task.spec.queue, sight.limits
    straight: Counter[str] = Counter()
    by_turns: Counter[str] = Counter()
    by_priority = dict.fromkeys(Priority, 0)
    elsewhere = older = 0
    for lane, parts, lane_older in told:
        older += lane_older
        for part, count in parts:
            if lane.queue != queue:
                elsewhere += count
                by_priority[part.treated] += count
            elif part.by_turns:
                by_turns[lane.type] += count
            else:
                straight[lane.type] += count
                by_priority[part.treated] += count
    # Of a type with a limit only so many start before the others have a turn.
    served = {kind: limits.of_type(kind).within(count) for kind, count in straight.items()}
    turning = {
        kind: limits.of_type(kind).within(served.get(kind, 0) + count) - served.get(kind, 0)
        for kind, count in by_turns.items()
    }
    taken = min(sum(turning.values()), _turns_before(sight, sum(served.values())))
    own = sum(served.values()) + taken
    by_priority[_at_turns(told, sight)] += taken
    by_priority = _trimmed(by_priority, own + elsewhere)
    own_type = straight[sight.task.spec.type] + (taken if by_turns[sight.task.spec.type] else 0)
    return _Ahead(own, own_type, elsewhere, older, by_priority)


def _turns_before(sight: Sight, ahead: int) -> int:
    """How many of those that it takes turns with are served before it, if enough wait."""
    turns, status = sight.turns, sight.task.status
    if turns is None or turns.share is None:
        return 0
    line = turns.tables[0][status.priority]
    if rank_after(line, sight.now - status.ready_at) < line.rank:
        return turns.share.others_before(ahead, turns.passed)
    return turns.share.promoted_before(ahead, turns.passed)


def _at_turns(told: Told, sight: Sight) -> Priority:
    """What those are treated as that it takes turns with."""
    treated = [part.treated for _, parts, _ in told for part, _ in parts if part.by_turns]
    return min(treated, default=sight.task.status.priority)


def _trimmed(by_priority: dict[Priority, int], total: int) -> dict[Priority, int]:
    """The same with so many in all: what a limit holds back is left out, the least urgent first."""
    excess = sum(by_priority.values()) - total
    for priority in reversed(Priority):
        less = min(excess, by_priority[priority])
        by_priority[priority] -= less
        excess -= less
    return by_priority


def _drawn(sight: Sight, policy: Weighted, told: Told) -> _Ahead:
    """The same where every turn is drawn, if luck is even: each other priority is served its share meanwhile."""
    own = sight.task.status.priority
    own_ahead = sum(count for _, parts, _ in told for _, count in parts)
    by_priority = dict.fromkeys(Priority, 0) | {own: own_ahead}
    for other in Priority:
        depth = sum(
            tally.counts.get(State.QUEUED, 0)
            for tally in sight.lanes
            if tally.lane.priority is other and tally.lane.queue == sight.task.spec.queue
        )
        if other is not own and depth:
            by_priority[other] = drawn_share(policy, own, own_ahead, other, depth)
    return _Ahead(sum(by_priority.values()), own_ahead, 0, 0, by_priority)


def _is_exact(sight: Sight, turns: QueueTurns | None, line: _Ahead) -> bool:
    """Whether the place is counted; keys, other queues and turns at every priority make it about right."""
    if turns is None or line.elsewhere or any(tally.lane.keyed for tally in sight.lanes):
        return False
    return turns.share is None or not turns.share.everywhere


def _unreached(sight: Sight, line: _Ahead) -> str | None:
    """Why no claim reaches it, whatever slots are free, unless something ends; None if one does."""
    spec, limits = sight.task.spec, sight.limits
    reached = (
        (limits.key, 0, f"the concurrency key {spec.concurrency_key}"),
        (limits.of_type(spec.type), line.own_type, f"the task type {spec.type}"),
        (limits.queue, line.own, f"the queue {spec.queue}"),
    )
    for allowance, ahead, name in reached:
        if allowance.left is not None and ahead >= allowance.left:
            more = f"{allowance.left:,} more may start now" if allowance.left else "no more may start now"
            return f"{more} of {name}, by its limit"
    return None


def _forecast(sight: Sight, line: _Ahead) -> Forecast:
    workers = able(sight.workers, sight.task.lane)
    free, rate = free_slots(workers), sum(map(_rate, workers))
    pace = _pace(sight, workers, rate)
    latest, no_latest = _latest(sight, line.older, len(workers), pace)
    estimated = _estimated(sight, line, free, pace)
    if estimated is not None and latest is not None:
        estimated = min(estimated, latest)
    return Forecast(
        workers=len(workers),
        worker_ids=tuple(names_of(workers)[:NAMED]),
        free_slots=free,
        rate=rate or None,
        estimated_start=estimated,
        latest_start=latest,
        assumptions=tuple(_assumptions(sight, workers, pace, estimated, latest)),
        no_estimate=None if estimated is not None else _NO_PACE,
        no_latest=no_latest,
    )


def _pace(sight: Sight, workers: Sequence[WorkerRecord], rate: float) -> float:
    """How many tasks per second these workers end when all of their slots are busy; 0 if that is not known."""
    slots = sum(worker.capacity for worker in workers)
    return slots * SECOND / sight.mean if sight.mean else rate


def _estimated(sight: Sight, line: _Ahead, free: int, pace: float) -> Instant | None:
    """When it starts if nothing more urgent is submitted; None if that depends on a pace that is not known."""
    limits, mean = sight.limits, sight.mean
    waits = [
        limits.queue.start_of(line.own, mean),
        limits.of_type(sight.task.spec.type).start_of(line.own_type, mean),
        limits.key.start_of(0, mean),
    ]
    if line.all >= free:
        if not pace:
            return None
        waits.append(round((line.all - free + 1) / pace * SECOND))
    return sight.now + max(waits)


def _latest(sight: Sight, older: int, claimers: int, pace: float) -> tuple[Instant | None, str | None]:
    """The start that no submit can put off any more, or why there is none."""
    task, turns = sight.task, sight.turns
    if turns is None:
        return None, "each turn picks a priority at random, so the wait has no upper limit"
    on_top = on_top_from(turns.tables[0], task)
    if on_top is None:
        return None, "in strict order, more urgent tasks always go first, so the wait has no upper limit"
    until = overtaken_until(turns.tables[0], task)
    if until > sight.now:
        return None, f"for another {brief(until - sight.now)} tasks with a longer head start can still get ahead of it"
    if sight.limits != LimitsLeft():
        return None, "a limit of its queue, type or concurrency key decides how soon it starts"
    if not pace:
        return None, _NO_PACE
    starts = starts_at_the_top(turns, task, older, claimers)
    return max(sight.now, on_top) + round(starts / pace * SECOND), None


def _assumptions(
    sight: Sight,
    workers: Sequence[WorkerRecord],
    pace: float,
    estimated: Instant | None,
    latest: Instant | None,
) -> Iterator[str]:
    if estimated is None and latest is None:
        return
    if sight.mean is not None:
        slots = sum(worker.capacity for worker in workers)
        yield f"a task takes {brief(sight.mean)}, the mean of those that ended lately, on {slots:,} slots"
    elif pace:
        yield f"its workers keep the rate of the last minute: {pace:.3g}/s"
    if estimated is not None:
        yield "for the estimate: nothing more urgent is submitted"
    others = sorted({queue for worker in workers for queue in worker.queues} - {sight.task.spec.queue})
    if others:
        yield f"for the latest start: its workers are not busy with their other queues: {', '.join(others[:5])}"
    heard = max((sight.now - worker.seen_at for worker in workers), default=0)
    yield f"the workers are as they last reported, up to {brief(max(heard, SECOND))} ago"


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
    elif forecast.workers and not place.ahead and place.unreached is None:
        yield Cause(
            CauseCode.NEXT_IN_LINE,
            "nothing is ahead of it, and a worker that could take it has a free slot: it starts at the next claim",
            {"workers": forecast.workers, "free_slots": forecast.free_slots},
        )


def without_place(place: LinePlace, why: str) -> LinePlace:
    """The place of a task that something keeps from being claimed: it has none, and why."""
    return replace(place, unreached=why)
