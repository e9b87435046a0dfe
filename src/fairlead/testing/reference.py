"""What a store must answer, computed from all its tasks: slow and obvious."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import astuple, replace

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.queues.limits import NO_LIMITS, Limit, after_start, opens_at
from fairlead.core.queues.order import passed_after, serve
from fairlead.core.task import Lane, State, Task
from fairlead.storage.values import Claim, Filter, Stretch, Tally


class ReferenceStatus(Struct, frozen=True):
    """A tally without the order of its lanes, which is the store's own affair."""

    lanes: dict[Lane, tuple[dict[State, int], Instant | None]]
    next_alarm: Instant | None


def standing(tally: Tally) -> ReferenceStatus:
    """How the store says that it stands."""
    lanes = {line.lane: (dict(line.counts), line.oldest_ready) for line in tally.lanes}
    assert len(lanes) == len(tally.lanes), "a lane is counted twice"
    return ReferenceStatus(lanes, tally.next_alarm)


def expected_standing(tasks: Iterable[Task]) -> ReferenceStatus:
    """How a store with these tasks stands."""
    counts: dict[Lane, Counter[State]] = {}
    oldest: dict[Lane, Instant] = {}
    alarms: list[Instant] = []
    for task in tasks:
        counts.setdefault(task.lane, Counter())[task.state] += 1
        if task.state is State.QUEUED:
            oldest[task.lane] = min(oldest.get(task.lane, task.status.ready_at), task.status.ready_at)
        if task.status.alarm is not None:
            alarms.append(task.status.alarm)
    lanes = {lane: (dict(count), oldest.get(lane)) for lane, count in counts.items()}
    return ReferenceStatus(lanes, min(alarms, default=None))


def expected_count(tasks: Iterable[Task], stretch: Stretch) -> int:
    """How many tasks wait in a stretch of a lane."""
    start, end = astuple(stretch.start), astuple(stretch.end)
    waiting = [task for task in tasks if task.state is State.QUEUED and task.lane == stretch.lane]
    return sum(start <= (task.status.ready_at, task.id) < end for task in waiting)


def expected_claim(tasks: Sequence[Task], claim: Claim, dues: dict[tuple[str, str], Instant]) -> list[Task]:
    """The tasks a claim must take of all these; `dues` says when starts are due, by queue and name, and is moved on."""
    queues = {order.queue: order.turns for order in claim.queues}
    limits = {order.queue: order.limits or NO_LIMITS for order in claim.queues}
    executing = [task for task in tasks if task.state is State.EXECUTING]
    waiting = [
        task for task in tasks if task.state is State.QUEUED and task.spec.queue in queues and claim.admits(task.lane)
    ]

    def limited_by(task: Task) -> list[tuple[str, Limit, list[Task]]]:
        """The limits that hold for a task: a name for each, and what runs under it."""
        spec = task.spec
        own = limits[spec.queue]
        beside = [other for other in executing if other.spec.queue == spec.queue]
        alike = [other for other in beside if other.spec.type == spec.type]
        found = [("", own.queue, beside), (f"type {spec.type}", own.types.get(spec.type, Limit()), alike)]
        if spec.concurrency_key is not None:
            same = [other for other in beside if other.spec.concurrency_key == spec.concurrency_key]
            found.append((f"key {spec.concurrency_key}", own.key, same))
        return found

    def blocked(task: Task) -> bool:
        for name, limit, running in limited_by(task):
            due = dues.get((task.spec.queue, name))
            if limit.running is not None and len(running) >= limit.running:
                return True
            if limit.pace is not None and opens_at(limit.pace, due, claim.at) > claim.at:
                return True
        return False

    taken: list[Task] = []
    while len(taken) < claim.limit and (free := [task for task in waiting if not blocked(task)]):
        turned = {
            queue: replace(turns, tables=[turns.tables[len(taken) % len(turns.tables)]])
            for queue, turns in queues.items()
        }
        (best,) = serve(free, turned, claim.at, 1)
        queue, wait = best.spec.queue, claim.at - best.status.ready_at
        queues[queue] = replace(queues[queue], passed=passed_after(queues[queue], [(best.status.priority, wait)]))
        for name, limit, _ in limited_by(best):
            if limit.pace is not None:
                dues[best.spec.queue, name] = after_start(limit.pace, dues.get((best.spec.queue, name)), claim.at)
        waiting.remove(best)
        executing.append(best)
        taken.append(best)
    return taken


def expected_due(
    tasks: Iterable[Task], now: Instant, limit: int, after: tuple[Instant, TaskId] | None = None
) -> list[Task]:
    """The tasks whose alarm has come."""
    rung = {(task.status.alarm, task.id): task for task in tasks if task.status.alarm is not None}
    places = sorted(place for place in rung if place[0] <= now and (after is None or place > after))
    return [rung[place] for place in places[:limit]]


def expected_find(
    tasks: Iterable[Task], matching: Filter, limit: int, newest_first: bool, after: TaskId | None = None
) -> list[Task]:
    """One page of a listing."""
    ordered = sorted(tasks, key=lambda task: task.id, reverse=newest_first)
    beyond = [task for task in ordered if after is None or (task.id < after if newest_first else task.id > after)]
    return [task for task in beyond if matching.admits(task)][:limit]
