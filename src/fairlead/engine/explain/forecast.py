"""Where a waiting task stands: pure reckoning from how its queue and the workers stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice, pairwise
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import astuple, replace

from fairlead.core.explain.explanation import Cause, CauseCode, Forecast, LinePlace
from fairlead.core.instant import LATEST, SECOND
from fairlead.core.queues.order import Weighted, rank_after, service_key, share_of, top_rank
from fairlead.core.queues.promotion import (
    BEFORE_ALL,
    FIRST_ID,
    LanePart,
    Place,
    drawn_share,
    next_promotion,
    parts_ahead,
    parts_before,
    place_among_older,
    steady_turns,
    turns_from,
    unpassable_from,
)
from fairlead.core.task import Lane, Priority, State
from fairlead.engine.explain.eligibility import able
from fairlead.engine.explain.sight import Ahead, Sight
from fairlead.engine.explain.starts import forecast_of
from fairlead.storage.values import Stretch


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


def since_oldest(sight: Sight) -> list[Stretch]:
    """Those of each lane that have come since its oldest did, but for what came together with it."""
    return [
        Stretch(tally.lane, Place((tally.oldest_ready or 0) + SECOND, FIRST_ID), Place(LATEST, FIRST_ID))
        for tally in sight.lanes
    ]


def place_of(sight: Sight, places: Sequence[LanePlaces], counts: Sequence[int]) -> tuple[LinePlace, Forecast]:
    """Where a queued task stands, and when it will start, if nothing blocks it.

    The counts are those of all stretches of the places, one after the other.
    """
    rest = iter(counts)
    told = [(each.lane, *each.told(islice(rest, len(each.stretches())))) for each in places]
    line = _drawn(sight, sight.policy, told) if isinstance(sight.policy, Weighted) else _line(sight, told)
    return placed(sight, line, exact=_is_exact(sight, told))


def placed(sight: Sight, line: Ahead, *, exact: bool) -> tuple[LinePlace, Forecast]:
    """The same, once it is known who is ahead."""
    task, turns = sight.task, sight.turns
    place = LinePlace(
        ahead=line.all,
        exact=exact,
        ahead_by_priority=line.by_priority,
        unreached=_unreached(sight, line),
        next_promotion=None if turns is None else next_promotion(turns.tables[0], task, sight.now),
        unpassable_from=None if turns is None else unpassable_from(turns, task),
        turns_from=None if turns is None else turns_from(turns, task),
    )
    return place, forecast_of(sight, line)


Told: TypeAlias = Sequence[tuple[Lane, list[tuple[LanePart, int]], int]]


def _line(sight: Sight, told: Told) -> Ahead:
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
    keyed = sum(count for lane, parts, _ in told if lane.keyed and lane.queue == queue for _, count in parts)
    counts = [(sight.parts.get(lane, 1.0), count) for lane, parts, _ in told for _, count in parts]
    total = sum(count for _, count in counts)
    theirs = sum(share * count for share, count in counts) / total if total else 1.0
    return Ahead(own, own_type, elsewhere, older, by_priority, min(keyed, own), taken, theirs)


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


def _drawn(sight: Sight, policy: Weighted, told: Told) -> Ahead:
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
    return Ahead(sum(by_priority.values()), own_ahead, 0, 0, by_priority)


def _is_exact(sight: Sight, told: Told) -> bool:
    """Whether the place is counted. Keys, drawn turns and turns at every priority make it about right.

    So do workers of several kinds, turns that other processes have taken, and other queues that are served otherwise
    than by one comparison.
    """
    turns, queue = sight.turns, sight.task.spec.queue
    if turns is None or (turns.share is not None and turns.share.everywhere) or not _is_uniform(sight):
        return False
    if any(tally.lane.keyed for tally in sight.lanes):
        return False
    turning = any(count for _, parts, _ in told for part, count in parts if part.by_turns)
    if turning and sight.passed is None:
        return False
    # Kinds of handlers claim apart, but use up the same turns and the same limit.
    apart = any(len(worker.slots) > 1 for worker in able(sight.workers, sight.task.lane))
    if apart and (turning or sight.limits.queue.left is not None):
        return False
    if all(tally.lane.queue == queue for tally in sight.lanes):
        return True
    return not turning and not sight.limited_elsewhere and not _is_shared_elsewhere(sight, told)


def _is_uniform(sight: Sight) -> bool:
    """Whether all workers that could take it could take the same tasks."""
    workers = able(sight.workers, sight.task.lane)
    return len({(frozenset(each.queues), each.types, each.capabilities) for each in workers}) <= 1


def _is_shared_elsewhere(sight: Sight, told: Told) -> bool:
    """Whether tasks of another queue of the same workers take turns, or may be drawn."""
    queue = sight.task.spec.queue
    for tally in sight.lanes:
        policy = sight.policies.get(tally.lane.queue, sight.policy)
        share = share_of(policy)
        if isinstance(policy, Weighted) or (share is not None and share.everywhere):
            return True
    for lane, parts, _ in told:
        others = steady_turns(sight.policies.get(lane.queue, sight.policy))
        if lane.queue == queue or others is None or others.share is None:
            continue
        top = top_rank(others.tables[0])
        if lane.priority is not top and any(count and part.treated == top for part, count in parts):
            return True
    return False


def _unreached(sight: Sight, line: Ahead) -> str | None:
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
