"""What a store must answer, computed from all its tasks: slow and obvious."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import astuple, replace

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.queues.fairness import LineTurns, comes_to_be_queued, entry_turn, return_turn
from fairlead.core.queues.limits import NO_LIMITS, Limit, after_start, opens_at
from fairlead.core.queues.order import passed_after, serve
from fairlead.core.task import Lane, Priority, State, Status, Task
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
    if stretch.by_turn:
        return sum(start <= (task.status.turn, task.id) < end for task in waiting)
    return sum(start <= (task.status.ready_at, task.id) < end for task in waiting)


def expected_claim(
    tasks: Sequence[Task],
    claim: Claim,
    dues: dict[tuple[str, str], Instant],
    lines: dict[tuple[str, Priority], LineTurns] | None = None,
) -> list[Task]:
    """The tasks a claim must take of all these.

    `dues` says when starts are due, by queue and name, and `lines` how far turns have come; both are moved on.
    """
    lines = {} if lines is None else lines
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
        (best,) = serve(free, turned, claim.at, 1, lines)
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


class ExpectedTurns:
    """Which turns a store may give, by what was queued and served so far: slow and obvious.

    It is told of the tasks as the store has them, one after the other in the order of the calls.
    """

    def __init__(self) -> None:
        self.lines: dict[tuple[str, Priority], LineTurns] = {}
        """How far turns have come. Claims move it on, by `expected_claim`."""
        self._waiting: dict[tuple[str, Priority], dict[TaskId, Task]] = {}
        self._greatest: dict[tuple[str, Priority, str], int] = {}
        """The greatest turn that a key was given while it had waiting tasks."""

    def came(self, before: Task | None, asked: Status | None, after: Task | None) -> None:
        """A task stood like this, was asked to stand like that, and stands so now; None if it is not there."""
        known = before or after
        assert known is not None
        if not known.spec.takes_turns:
            assert after is None or asked is None or after.status.turn == asked.turn
            return
        entered = asked is not None and comes_to_be_queued(None if before is None else before.status, asked)
        if before is not None and before.state is State.QUEUED and (entered or after is None or not _waits(after)):
            self._left(before)
        if after is None:
            return
        if entered and asked is not None:
            self._entered(after, asked.turn)
        else:
            kept = before if before is not None and _waits(before) and _waits(after) else None
            assert after.status.turn == (asked or after.status if kept is None else kept.status).turn

    def _entered(self, task: Task, own: int) -> None:
        fair, line = task.spec.fair, (task.spec.queue, task.status.priority)
        assert fair is not None
        reached = self.lines.setdefault(line, LineTurns()).reached
        waiting = self._waiting.setdefault(line, {})
        alike = [other.status.turn for other in waiting.values() if other.spec.fair_key == fair.key]
        greatest = self._greatest.get((*line, fair.key), 0) if alike else 0
        if own:
            assert task.status.turn == return_turn(own, reached, fair.step)
        else:
            least, most = (entry_turn(reached, last, fair.step) for last in (max(alike, default=0), greatest))
            assert least <= task.status.turn <= most, f"turn {task.status.turn} is not from {least} to {most}"
        self._greatest[*line, fair.key] = max(greatest, task.status.turn)
        waiting[task.id] = task

    def _left(self, task: Task) -> None:
        line = task.spec.queue, task.status.priority
        del self._waiting[line][task.id]
        if not self._waiting[line]:
            del self._waiting[line], self.lines[line]


def _waits(task: Task) -> bool:
    return task.state is State.QUEUED
