"""The lane table: which lanes there are and how many of their tasks are in each state."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable
from typing import Final

from fairlead.core.task import Lane, Priority, State
from fairlead.storage.sqlite.statements import statement

COUNTED: Final = tuple(State)
"""The order of the count columns."""


class LaneBook:
    """The lanes that one operation touches, and how their counts change."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._numbers: dict[Lane, int] = {}
        self._lanes: dict[int, Lane] = {}
        self._changes: Counter[tuple[int, State]] = Counter()

    def number(self, lane: Lane) -> int:
        """The number of a lane, which is made if need be."""
        number = self._numbers.get(lane)
        if number is None:
            columns = (lane.queue, lane.type, ",".join(lane.requires), int(lane.priority))
            row = self._connection.execute(statement("lane_number"), columns).fetchone()
            if row is None:
                row = (self._connection.execute(statement("lane_add"), columns).lastrowid,)
            number = self._numbers[lane] = int(row[0])
        return number

    def lane(self, number: int) -> Lane:
        """The lane with this number."""
        lane = self._lanes.get(number)
        if lane is None:
            row = self._connection.execute(statement("lane_named"), (number,)).fetchone()
            lane = self._lanes[number] = lane_of(*row)
        return lane

    def with_priority(self, number: int, priority: Priority) -> int:
        """The number of the lane that a task of this lane is in once it has this priority."""
        lane = self.lane(number)
        if lane.priority == priority:
            return number
        return self.number(Lane(lane.queue, lane.type, lane.requires, priority))

    def enter(self, number: int, state: State) -> None:
        self._changes[number, state] += 1

    def leave(self, number: int, state: State) -> None:
        self._changes[number, state] -= 1

    def write(self) -> None:
        """Write the counts, and forget lanes without tasks."""
        moved = {number for (number, _), change in self._changes.items() if change}
        counts = [(*(self._changes[number, state] for state in COUNTED), number) for number in moved]
        self._connection.executemany(statement("lane_count"), counts)
        self._connection.executemany(statement("lane_forget"), [(number,) for number in moved])


def ready_lanes(connection: sqlite3.Connection, queues: Iterable[str]) -> list[tuple[int, Lane]]:
    """The lanes of these queues that have ready tasks."""
    rows = connection.execute(statement("lanes_ready"), (json.dumps(list(queues)),))
    return [(number, lane_of(*columns)) for number, *columns in rows]


def lane_of(queue: str, kind: str, requires: str, priority: int) -> Lane:
    """A lane from its columns."""
    return Lane(queue, kind, tuple(requires.split(",")) if requires else (), Priority(priority))
