"""The lane table: which lanes there are and how many of their tasks are in each state."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Hashable, Iterable
from typing import Final, TypeVar

from fairlead.core.task import QUEUED, Lane, Priority, State
from fairlead.storage.sqlite.statements import statement

Thing = TypeVar("Thing", bound=Hashable)

COUNTED: Final = tuple(State)
"""The order of the count columns."""

_COLUMN: Final = {state: column for column, state in enumerate(COUNTED)}


class LaneChanges:
    """The lanes that one operation touches, and how their counts change."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._numbers: dict[Lane, int] = {}
        self._lanes: dict[int, Lane] = {}
        self._changes: dict[int, list[int]] = {}
        self._ready: dict[str, int] = {}

    def number(self, lane: Lane) -> int:
        """The number of a lane, which is made if need be."""
        number = self._numbers.get(lane)
        if number is None:
            columns = lane_columns(lane)
            row = self._connection.execute(statement("lanes.number"), columns).fetchone()
            if row is None:
                row = (self._connection.execute(statement("lanes.add"), columns).lastrowid,)
            number = self._numbers[lane] = int(row[0])
            self._lanes[number] = lane
        return number

    def lane(self, number: int) -> Lane:
        """The lane with this number."""
        lane = self._lanes.get(number)
        if lane is None:
            row = self._connection.execute(statement("lanes.named"), (number,)).fetchone()
            lane = self._lanes[number] = lane_of(*row)
        return lane

    def with_priority(self, number: int, priority: Priority) -> int:
        """The number of the lane that a task of this lane is in once it has this priority."""
        lane = self.lane(number)
        if lane.priority == priority:
            return number
        return self.number(Lane(lane.queue, lane.type, lane.requires, priority, lane.keyed))

    def enter(self, number: int, state: State, tasks: int) -> None:
        """Take note that tasks have come to be in a lane and a state."""
        self._count(number, state, tasks)
        if state is QUEUED:
            queue = self.lane(number).queue
            self._ready[queue] = self._ready.get(queue, 0) + tasks

    def leave(self, number: int, state: State, tasks: int) -> None:
        """Take note that tasks are no longer in a lane and a state."""
        self._count(number, state, -tasks)

    def _count(self, number: int, state: State, change: int) -> None:
        changes = self._changes.get(number)
        if changes is None:
            changes = self._changes[number] = [0] * len(COUNTED)
        changes[_COLUMN[state]] += change

    def write(self) -> dict[str, int]:
        """Write the counts, and forget lanes without tasks; how many tasks of each queue became ready."""
        moved = {number: changes for number, changes in self._changes.items() if any(changes)}
        self._connection.executemany(statement("lanes.count"), [(*changes, lane) for lane, changes in moved.items()])
        if left := [(lane,) for lane, changes in moved.items() if sum(changes) < 0]:
            self._connection.executemany(statement("lanes.forget"), left)
        return self._ready


def counts_of(things: Iterable[Thing]) -> dict[Thing, int]:
    """How often there is each of these."""
    # A `Counter` takes longer to make than most calls have tasks to count.
    counts: dict[Thing, int] = {}
    for thing in things:
        counts[thing] = counts.get(thing, 0) + 1
    return counts


def ready_lanes(connection: sqlite3.Connection, queues: Iterable[str]) -> list[tuple[int, Lane]]:
    """The lanes of these queues that have ready tasks."""
    rows = connection.execute(statement("lanes.ready"), (json.dumps(list(queues)),))
    return [(number, lane_of(*columns)) for number, *columns in rows]


def lane_columns(lane: Lane) -> tuple[str, str, str, int, bool]:
    """What a lane is found by."""
    return lane.queue, lane.type, ",".join(lane.requires), int(lane.priority), lane.keyed


def lane_of(queue: str, kind: str, requires: str, priority: int, keyed: int) -> Lane:
    """A lane from its columns."""
    return Lane(queue, kind, required_by(requires), Priority(priority), bool(keyed))


def required_by(column: str) -> tuple[str, ...]:
    """What a lane requires, from its column."""
    return tuple(column.split(",")) if column else ()
