"""The lane table: which lanes there are and how many of their tasks are in each state."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.task import QUEUED, Lane, Priority, State
from fairlead.storage.lane_search import Bound
from fairlead.storage.sqlite.database import statement

Thing = TypeVar("Thing", bound=Hashable)

FAIR: Final = "fair turns"
"""What a lane of fair tasks requires last: no capability is called so, and whoever knows of no turns takes nothing."""

COUNTED: Final = tuple(State)
"""The order of the count columns."""

_COLUMN: Final = {state: column for column, state in enumerate(COUNTED)}


_QUEUED: Final = _COLUMN[QUEUED]


class LaneChanges:
    """The lanes that one operation touches, and how their counts change."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._numbers: dict[Lane, int] = {}
        self._lanes: dict[int, Lane] = {}
        self._changes: dict[int, list[int]] = {}
        self._ready: dict[str, int] = {}
        self._bounds: dict[int, Bound | None] = {}
        """The bounds of heads, as far as they were read."""
        self._come: dict[int, Bound] = {}
        """The first of what has come into a lane."""
        self._heads: dict[int, Bound | None] = {}
        """The heads of lanes, where they are known to be exact."""

    def number(self, lane: Lane) -> int:
        """The number of a lane, which is made if need be."""
        number = self._numbers.get(lane)
        if number is None:
            columns = lane_columns(lane)
            row = self._connection.execute(statement("lanes.number"), columns).fetchone()
            if row is None:
                row = self._connection.execute(statement("lanes.add"), columns).lastrowid, None, ""
            number = self._numbers[lane] = int(row[0])
            self._bounds[number] = None if row[1] is None else (row[1], row[2])
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
        return self.number(replace(lane, priority=priority))

    def enter(self, number: int, state: State, tasks: int) -> None:
        """Take note that tasks have come to be in a lane and a state."""
        self._count(number, state, tasks)
        if state is QUEUED:
            queue = self.lane(number).queue
            self._ready[queue] = self._ready.get(queue, 0) + tasks

    def may_lead(self, place: Bound) -> bool:
        """Whether a place may be before the head of any lane that was asked for."""
        return any(bound is None or place < bound for bound in self._bounds.values())

    def come(self, number: int, place: Bound) -> None:
        """Take note of where in a lane the first of the tasks is that have come into it."""
        known = self._come.get(number)
        if known is None or place < known:
            self._come[number] = place

    def set_head(self, number: int, head: Bound | None) -> None:
        """Take note of what the head of a lane is."""
        self._heads[number] = head

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
        heads, unsure = self._moved_heads(moved)
        execute = self._connection.executemany
        counts = [(*changes, lane) for lane, changes in moved.items() if lane not in heads]
        if counts and not any(row[_QUEUED] for row in counts):
            # What is settled leaves the number of ready tasks as it is, and then no trigger need look.
            execute(statement("lanes.count_rest"), [(*row[:_QUEUED], *row[_QUEUED + 1 :]) for row in counts])
        else:
            execute(statement("lanes.count"), counts)
        if heads:
            rows = [(*moved[lane], *(head or (None, "")), lane) for lane, head in heads.items()]
            execute(statement("lanes.count_with_head"), rows)
        if unsure:
            execute(statement("lanes.head_lower"), unsure)
        move_totals(self._connection, [(c[0] + c[1], c[2], lane) for lane, c in moved.items()])
        if left := [(lane,) for lane, changes in moved.items() if sum(changes) < 0]:
            self._connection.executemany(statement("lanes.forget"), left)
        return self._ready

    def _moved_heads(
        self, moved: Mapping[int, object]
    ) -> tuple[dict[int, Bound | None], list[tuple[int, Instant, TaskId]]]:
        """The new heads of lanes whose counts move, and what may be the head of others."""
        heads = {lane: head for lane, head in self._heads.items() if lane in moved}
        unsure: list[tuple[int, Instant, TaskId]] = []
        for lane, place in self._come.items():
            if lane not in moved or lane not in self._bounds:
                unsure.append((lane, *place))
            elif (bound := self._bounds[lane]) is None or place < bound:
                heads[lane] = place
        return heads, unsure


def move_totals(connection: sqlite3.Connection, moved: Sequence[tuple[int, int, int]]) -> None:
    """Move what is kept of whole queues: how many more tasks wait and are executing in lanes."""
    (kept,) = connection.execute(statement("limits.totals")).fetchone()
    if kept:
        connection.executemany(statement("limits.total_move"), moved)


def counts_of(things: Iterable[Thing]) -> dict[Thing, int]:
    """How often there is each of these."""
    # A `Counter` takes longer to make than most calls have tasks to count.
    counts: dict[Thing, int] = {}
    for thing in things:
        counts[thing] = counts.get(thing, 0) + 1
    return counts


def lane_columns(lane: Lane) -> tuple[str, str, str, int, bool]:
    """What a lane is found by."""
    requires = (*lane.requires, FAIR) if lane.fair else lane.requires
    return lane.queue, lane.type, joined(requires), int(lane.priority), lane.keyed


joined: Final = ",".join
"""What a lane requires, as its column has it."""


@functools.lru_cache(maxsize=1024)
def lane_of(queue: str, kind: str, requires: str, priority: int, keyed: int) -> Lane:
    """A lane from its columns."""
    required = required_by(requires)
    fair = required[-1:] == (FAIR,)
    return Lane(queue, kind, required[:-1] if fair else required, Priority(priority), bool(keyed), fair)


def required_by(column: str) -> tuple[str, ...]:
    """What a lane requires, from its column."""
    return tuple(column.split(",")) if column else ()
