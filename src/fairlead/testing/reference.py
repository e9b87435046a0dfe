"""What a store must answer, computed from all its tasks: slow and obvious."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import astuple

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.task import Lane, State, Task
from fairlead.storage.values import Filter, Stretch, Tally


class Standing(Struct, frozen=True):
    """A tally without the order of its lanes, which is the store's own affair."""

    lanes: dict[Lane, tuple[dict[State, int], Instant | None]]
    next_alarm: Instant | None


def standing(tally: Tally) -> Standing:
    """How the store says that it stands."""
    lanes = {line.lane: (dict(line.counts), line.oldest_ready) for line in tally.lanes}
    assert len(lanes) == len(tally.lanes), "a lane is counted twice"
    return Standing(lanes, tally.next_alarm)


def expected_standing(tasks: Iterable[Task]) -> Standing:
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
    return Standing(lanes, min(alarms, default=None))


def expected_count(tasks: Iterable[Task], stretch: Stretch) -> int:
    """How many tasks wait in a stretch of a lane."""
    start, end = astuple(stretch.start), astuple(stretch.end)
    waiting = [task for task in tasks if task.state is State.QUEUED and task.lane == stretch.lane]
    return sum(start <= (task.status.ready_at, task.id) < end for task in waiting)


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
