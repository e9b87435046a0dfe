"""Which lanes a claim looks at, by what the lane table says of their heads, and what it corrects there."""

from __future__ import annotations

import hashlib
import heapq
import itertools
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final, TypeAlias

from msgspec import Struct

from fairlead.core.identity import TaskId
from fairlead.core.instant import LATEST, Instant
from fairlead.core.task import Lane, Priority
from fairlead.storage.claim_limits import LimitGate
from fairlead.storage.lane_search import Bound, Entry, Front
from fairlead.storage.sqlite.database import statement
from fairlead.storage.sqlite.lanes import FAIR, lane_of, required_by
from fairlead.storage.values import Claim

NOWHERE: Final[Bound] = (-1, TaskId(""))
"""A place before all others."""


class LaneRow(Struct, frozen=True):
    """A lane as the table has it."""

    bound: Bound
    number: int
    lane: Lane
    queued: int


_Kind: TypeAlias = tuple[str, int, str]
"""Who passes over lanes, their priority, and what they require."""

_MOST_NAMES: Final = 4
_MOST_SETS: Final = 16
"""How many sets of names lanes may be told apart by, until it is time to forget who passes over them."""

Open: TypeAlias = Callable[[int, Lane], Front]
"""Opens a lane, by its number."""


def few_lanes(connection: sqlite3.Connection, claim: Claim, few: int) -> list[LaneRow] | None:
    """The lanes of a claim's queues that may have ready tasks; None if there are too many to look at each."""
    queues = {order.queue for order in claim.queues}
    if len(queues) > few:
        found = connection.execute(statement("lanes.few_everywhere"), (few + 1,)).fetchall()
    else:
        found = []
        for queue in queues:
            found += connection.execute(statement("lanes.few"), (queue, few + 1 - len(found)))
    if len(found) > few:
        return None
    return [row for row in map(row_of, found) if row.lane.queue in queues and row.queued]


def lanes_of_types(connection: sqlite3.Connection, claim: Claim, few: int) -> list[LaneRow] | None:
    """The lanes that may have ready tasks, of a claim for few types in few queues; None if it is not such a one."""
    if claim.types is None or len(claim.types) > few or len(claim.queues) > few:
        return None
    types = json.dumps(sorted(claim.types))
    found = [
        row for order in claim.queues for row in connection.execute(statement("lanes.of_types"), (order.queue, types))
    ]
    return [row for row in map(row_of, found) if row.queued]


class _Lanes:
    """The lanes of one claim."""

    strays = False
    """Whether it has met fair tasks that a process of an earlier version has queued."""

    def __init__(self) -> None:
        self.first: Sequence[tuple[Priority, str]] = ()
        """Queues that are entered before all others, by priority: their lanes are found otherwise."""

    def _first(
        self, walks: dict[Priority, Iterator[tuple[Instant, TaskId, str]]]
    ) -> Mapping[Priority, Iterator[tuple[Instant, TaskId, str]]]:
        """The queues of all lanes, behind those that are entered first."""
        for priority in {priority for priority, _ in self.first}:
            first = [(*NOWHERE, queue) for of, queue in self.first if of == priority]
            walks[priority] = itertools.chain(first, walks.get(priority, ()))
        return walks


class FewLanes(_Lanes):
    """The lanes of one claim, where they are few."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        rows: Sequence[LaneRow],
        claim: Claim,
        gate: LimitGate,
        open_lane: Open,
        few: int,
    ) -> None:
        super().__init__()
        self.few = few
        self._connection = connection
        self._keyed: list[tuple[int, Front]] = []
        self._rows = rows
        self._claim = claim
        self._gate = gate
        self._open = open_lane

    @property
    def keyed(self) -> bool:
        """Whether any of them is of tasks with concurrency keys."""
        return any(row.lane.keyed for row in self._rows)

    def lines(self, queue: str) -> Mapping[Priority, Iterator[Entry]]:
        lines: dict[Priority, list[Entry]] = {}
        for row in self._rows:
            if row.lane.queue == queue and self._claim.admits(row.lane):
                lines.setdefault(row.lane.priority, []).append((*row.bound, row))
        return {priority: iter(sorted(line, key=itemgetter(0, 1))) for priority, line in lines.items()}

    def queues(self) -> Mapping[Priority, Iterator[tuple[Instant, TaskId, str]]]:
        entries = sorted((*row.bound, row.lane.queue) for row in self._rows)
        return self._first({priority: iter(entries) for priority in {row.lane.priority for row in self._rows}})

    def open(self, entry: Entry) -> Front | None:
        if isinstance(entry[2], PlainLane):
            return entry[2]  # Of fair tasks.
        row: LaneRow = entry[2]
        if self._gate.shut(row.lane):
            return None
        front = self._open(row.number, row.lane)
        if row.lane.keyed:
            self._keyed.append((row.number, front))
        return front

    def correct(self) -> dict[int, Bound | None]:
        """Say in the table which lanes have no key that may go on: claims need not look for one."""
        idle = [(None, "", number) for number, front in self._keyed if front.head is None]
        if idle:
            self._connection.executemany(statement("lanes.head_set"), idle)
        return {}


class ManyLanes(_Lanes):
    """The lanes of one claim, by the index of their heads.

    What it meets that is not as the index says is corrected when the claim has chosen.
    """

    def __init__(
        self, connection: sqlite3.Connection, claim: Claim, gate: LimitGate, open_lane: Open, few: int
    ) -> None:
        super().__init__()
        self.few = few
        self._connection = connection
        self._claim = claim
        self._gate = gate
        self._open = open_lane
        self._name = _name_of(claim)
        self._sets: set[str] = set()
        self._shut: list[tuple[str, int]] = []
        self._empty: list[int] = []
        self._opened: dict[int, tuple[LaneRow, Front]] = {}

    def lines(self, queue: str) -> Mapping[Priority, Iterator[Entry]]:
        if len(self._claim.queues) > self.few and (few := self._few_lines(queue)) is not None:
            return few
        walks: dict[Priority, list[Iterator[Entry]]] = {}
        for kind in self._kinds("lanes.kind_next", queue):
            walks.setdefault(Priority(kind[1]), []).append(self._walk(queue, kind))
        return {
            priority: each[0] if len(each) == 1 else heapq.merge(*each, key=itemgetter(0, 1))
            for priority, each in walks.items()
        }

    def queues(self) -> Mapping[Priority, Iterator[tuple[Instant, TaskId, str]]]:
        walks: dict[Priority, list[Iterator[tuple[Instant, TaskId, str]]]] = {}
        for kind in self._kinds("lanes.kind_next_everywhere"):
            walks.setdefault(Priority(kind[1]), []).append(self._walk_queues(kind))
        return self._first({priority: heapq.merge(*each) for priority, each in walks.items()})

    def open(self, entry: Entry) -> Front | None:
        if isinstance(entry[2], PlainLane):
            return entry[2]  # Of fair tasks.
        row: LaneRow = entry[2]
        if self._gate.shut(row.lane):
            return None
        front = self._open(row.number, row.lane)
        self._opened[row.number] = row, front
        return front

    def correct(self) -> dict[int, Bound | None]:
        """Say in the table what was found to be otherwise; the heads of those lanes of which something was taken."""
        execute = self._connection.executemany
        if self._shut:
            execute(statement("lanes.shut_set"), self._shut)
        if len(self._sets) > _MOST_SETS:
            self._connection.execute(statement("lanes.shut_reset"))
        heads: dict[int, Bound | None] = {}
        corrected: list[tuple[Instant | None, str, int]] = [(None, "", number) for number in self._empty]
        for number, (row, front) in self._opened.items():
            head = None if front.head is None else (front.head[0], front.head[1])
            if not row.lane.keyed and isinstance(front, _Counting) and front.taken:
                heads[number] = head
            elif head != row.bound:
                corrected.append((*(head or (None, "")), number))
        if corrected:
            execute(statement("lanes.head_set"), corrected)
        return heads

    def _few_lines(self, queue: str) -> Mapping[Priority, Iterator[Entry]] | None:
        """The lanes of a queue that has few, by one statement; None if it has many."""
        found = self._connection.execute(statement("lanes.few"), (queue, self.few + 1)).fetchall()
        if len(found) > self.few:
            return None
        lines: dict[Priority, list[Entry]] = {}
        for row in map(row_of, found):
            self.strays = self.strays or row.lane.fair
            if not row.queued:
                self._empty.append(row.number)
            elif not row.lane.fair and self._claim.admits(row.lane):
                lines.setdefault(row.lane.priority, []).append((*row.bound, row))
        return {priority: iter(sorted(line, key=itemgetter(0, 1))) for priority, line in lines.items()}

    def _kinds(self, name: str, *queue: str) -> Iterator[_Kind]:
        """The kinds of lanes that the worker may take from."""
        kind: _Kind = ("", -1, "")
        while (found := self._connection.execute(statement(name), (*queue, *kind, LATEST)).fetchone()) is not None:
            kind = found
            shut, _, requires = kind
            self.strays = self.strays or requires.endswith(FAIR)
            self._sets.add(shut)
            if self._name not in shut.split(",") and self._claim.capabilities.issuperset(required_by(requires)):
                yield kind

    def _walk(self, queue: str, kind: _Kind) -> Iterator[Entry]:
        claim = self._claim
        for row in self._rows(queue, kind):
            if row.number in self._opened:
                continue  # Another of its keys has come to its front.
            if not row.queued:
                self._empty.append(row.number)
            elif claim.admits(row.lane):
                yield (*row.bound, row)
            else:
                self._shut.append((_with_name(kind[0], self._name), row.number))

    def _rows(self, queue: str, kind: _Kind) -> Iterator[LaneRow]:
        at: tuple[Instant, TaskId, int] = (*NOWHERE, -1)
        size = min(self._claim.limit, self.few) + 2
        while True:
            rows = self._connection.execute(statement("lanes.walk"), (queue, *kind, *at, size)).fetchall()
            yield from map(row_of, rows)
            if len(rows) < size:
                return
            at = rows[-1][:3]
            size *= 2

    def _walk_queues(self, kind: _Kind) -> Iterator[tuple[Instant, TaskId, str]]:
        at: tuple[Instant, TaskId, str] = (*NOWHERE, "")
        size = min(self._claim.limit, self.few) + 2
        while True:
            rows = self._connection.execute(statement("lanes.walk_queues"), (*kind, *at, size)).fetchall()
            yield from rows
            if len(rows) < size:
                return
            at = rows[-1]
            size *= 2


class _Counting:
    """A front that knows whether anything was taken of it."""

    taken = False


class PlainLane(_Counting):
    """The front of a lane whose tasks have no keys: their places, read as far as the claim asks."""

    key = ""

    order = "claim.places"
    """The statement that reads them."""

    def __init__(self, connection: sqlite3.Connection, number: int, lane: Lane) -> None:
        self.lane = lane
        self.last: Bound = NOWHERE
        """The last place that was taken."""
        self._connection = connection
        self._number = number
        self._size = 2
        self._places: list[tuple[Instant, TaskId, int, int]] = []
        self._whole = False
        self._read(NOWHERE)

    @property
    def head(self) -> tuple[Instant, TaskId, int, int] | None:
        return self._places[-1] if self._places else None

    def take(self) -> None:
        self.taken = True
        ready_at, task_id, *_ = self._places.pop()
        self.last = ready_at, task_id
        if not self._places and not self._whole:
            self._read(self.last)

    def close(self, until: Instant) -> None:
        raise AssertionError(f"lane {self.lane} has no keys")

    def _read(self, after: Bound) -> None:
        rows = self._connection.execute(statement(self.order), (self._number, *after, self._size)).fetchall()
        self._whole = len(rows) < self._size
        self._places = rows[::-1]
        self._size *= 2


class TurnLane(PlainLane):
    """The front of a lane of fair tasks, by turn."""

    order = "turns.places"


def row_of(found: tuple[Instant, TaskId, int, str, str, str, int, int, int]) -> LaneRow:
    ready_at, task_id, number, queue, kind, requires, priority, keyed, queued = found
    return LaneRow((ready_at, task_id), number, lane_of(queue, kind, requires, priority, keyed), queued)


def _name_of(claim: Claim) -> str:
    """A short name of the task types that a claim may take; none if that is any."""
    if claim.types is None and not claim.excluded_types:
        return "any"
    types = None if claim.types is None else sorted(claim.types)
    return hashlib.blake2b(json.dumps([types, sorted(claim.excluded_types)]).encode(), digest_size=8).hexdigest()


def _with_name(shut: str, name: str) -> str:
    """Who passes over a lane, with one more. Who has been left out passes over it once more."""
    names = shut.split(",") if shut else []
    return ",".join(sorted([*names, name])) if len(names) < _MOST_NAMES else name
