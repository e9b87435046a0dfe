"""Turns of fair tasks: given to those that come to be queued, kept in step with who waits, and read by claims.

A process of an earlier version knows nothing of them. What it queues has no turn, and what it takes out of a line
leaves its turn behind: that shows, and the next claim mends it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.queues.fairness import LineTurns, queue_turn
from fairlead.core.task import QUEUED, Fair, Lane, Priority, Status, Task
from fairlead.storage.fair_line import FairEntries
from fairlead.storage.lane_search import Entry
from fairlead.storage.quarantine import UNDECODABLE, Damage, Damaged
from fairlead.storage.sqlite.arrivals import pack
from fairlead.storage.sqlite.database import statement, write_rows
from fairlead.storage.sqlite.lane_heads import NOWHERE, LaneRow, PlainLane, TurnLane, row_of
from fairlead.storage.sqlite.read import damage_of, unpack_spec, unpack_status
from fairlead.storage.values import Claim, LineKeys

_MOST_KEYS: Final = 1_000
"""Up to how many keys of a line are looked at for those that have most tasks."""


class _Line(Struct):
    """How far the turns of a line have come, and how many fair tasks wait in it."""

    turns: LineTurns
    waiting: int


class _Key(Struct):
    """What a key of a line was given last, and how many of its tasks wait."""

    last: int = 0
    waiting: int = 0


class FairTurns:
    """The turns that one operation gives, and the tasks that it takes out of their lines."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lines: dict[tuple[str, int], _Line] = {}
        self._read: dict[tuple[str, int], _Line] = {}
        """The same as they are stored."""
        self._keys: dict[tuple[str, int], dict[str, _Key]] = {}
        self._given: dict[tuple[int, int, TaskId], tuple[int, Instant, str]] = {}
        """The number, moment and key of those that were given turns, by lane, turn and id."""
        self._gone: dict[tuple[int, int, TaskId], None] = {}

    def enter(self, number: int, lane: Lane, fair: Fair, status: Status, task_id: TaskId, task: int) -> Status:
        """How a task stands with its turn that comes to be queued in this lane."""
        line, key = self._line(lane.queue, lane.priority), self._key(lane, fair.key)
        turn = queue_turn(status.turn, line.turns.reached, key.last, fair.step)
        key.last = max(key.last, turn)
        key.waiting += 1
        line.waiting += 1
        self._given[number, turn, task_id] = task, status.ready_at, fair.key
        return replace(status, turn=turn)

    def leave(self, number: int, lane: Lane, turn: int, task_id: TaskId) -> None:
        """Take note that a task with this turn waits no more in this lane; 0 if nobody knows its turn."""
        if not turn:
            row = self._connection.execute(statement("turns.find"), (number, task_id)).fetchone()
            turn = 0 if row is None else row[0]
        found = self._take(number, turn, task_id)
        if found is not None:  # Else a process of an earlier version has queued it: it is mended with the rest.
            self.count_out(lane, found[1])

    def count_out(self, lane: Lane, fair_key: str) -> None:
        """Take note that one task less of a key waits in this lane."""
        line, key = self._line(lane.queue, lane.priority), self._key(lane, fair_key)
        key.waiting -= 1
        line.waiting -= 1
        if not key.waiting:
            key.last = 0
        if not line.waiting:
            line.turns = LineTurns()

    def stay(self, number: int, turn: int, task_id: TaskId, ready_at: Instant) -> None:
        """Take note that a task keeps its turn, and is ready since another moment."""
        found = self._take(number, turn, task_id)
        if found is not None:
            self._given[number, turn, task_id] = found[0], ready_at, found[1]

    def reach(self, lines: Mapping[tuple[str, Priority], LineTurns]) -> None:
        """Take note of how far a claim has come, once what it took has left."""
        for (queue, priority), turns in lines.items():
            line = self._line(queue, priority)
            if line.waiting:
                line.turns = turns

    def write(self) -> None:
        """Store what was noted."""
        if not self._lines and not self._given:
            return
        execute = self._connection.executemany
        execute(statement("turns.remove"), self._gone)
        write_rows(self._connection, "turns.add", [(*place, *given) for place, given in self._given.items()])
        for name, line in self._lines.items():
            keys = self._keys.get(name, {})
            if not keys and line == self._read[name]:
                continue
            if not line.waiting:
                execute(statement("turns.line_forget"), [name])
                execute(statement("turns.keys_forget"), [name])
                continue
            execute(statement("turns.line_set"), [(*name, line.turns.reached, line.turns.others, line.waiting)])
            kept = [(*name, key, known.last, known.waiting) for key, known in keys.items() if known.waiting]
            execute(statement("turns.key_set"), kept)
            execute(statement("turns.key_forget"), [(*name, key) for key, known in keys.items() if not known.waiting])

    def _take(self, number: int, turn: int, task_id: TaskId) -> tuple[int, str] | None:
        """The number and the key of who had a turn, which nobody has now."""
        place = number, turn, task_id
        given = self._given.pop(place, None)
        if given is not None:
            return given[0], given[2]
        row = self._connection.execute(statement("turns.of"), place).fetchone()
        if row is None or place in self._gone:
            return None
        self._gone[place] = None
        return row[0], row[1]

    def _line(self, queue: str, priority: Priority) -> _Line:
        name = queue, int(priority)
        line = self._lines.get(name)
        if line is None:
            row = self._connection.execute(statement("turns.line"), name).fetchone() or (0, 0, 0)
            line = self._lines[name] = _Line(LineTurns(row[0], row[1]), row[2])
            self._read[name] = _Line(line.turns, line.waiting)
        return line

    def _key(self, lane: Lane, key: str) -> _Key:
        name = lane.queue, int(lane.priority)
        keys = self._keys.setdefault(name, {})
        known = keys.get(key)
        if known is None:
            row = self._connection.execute(statement("turns.key"), (*name, key)).fetchone()
            known = keys[key] = _Key() if row is None else _Key(*row)
        return known


class FairLanes:
    """The lanes of fair tasks that a claim may take from, each in both orders."""

    def __init__(self, connection: sqlite3.Connection, claim: Claim, few: int) -> None:
        self._connection = connection
        self._claim = claim
        asked = {order.queue for order in claim.queues}
        self.queues: list[tuple[Priority, str]] = []
        """The priorities and queues in which fair tasks wait, of a claim of many queues."""
        if len(asked) > few:
            found = connection.execute(statement("turns.queues"))
            self.queues = [(Priority(priority), queue) for priority, queue in found if queue in asked]
            self.any = bool(self.queues)
        else:
            lines = (connection.execute(statement("turns.lines"), (queue,)).fetchone() for queue in asked)
            self.any = any(line is not None for line in lines)
        """Whether fair tasks wait in any queue of the claim."""
        self._fronts: dict[str, dict[Priority, tuple[LineTurns, list[tuple[PlainLane, PlainLane]]]]] = {}
        self.opened: dict[int, tuple[PlainLane, PlainLane]] = {}
        """The lanes that were looked at, by age and by turn."""

    def fair_lines(self, queue: str) -> Mapping[Priority, FairEntries]:
        if queue not in self._fronts:
            self._fronts[queue] = self._open(queue)
        return {
            priority: FairEntries(_entries(each[0] for each in fronts), _entries(each[1] for each in fronts), turns)
            for priority, (turns, fronts) in self._fronts[queue].items()
        }

    def _open(self, queue: str) -> dict[Priority, tuple[LineTurns, list[tuple[PlainLane, PlainLane]]]]:
        lines = self._lines(queue)
        if not lines:
            return {}
        rows = _lanes_of(self._connection, queue)
        waiting = {priority: line.waiting for priority, line in lines.items()}
        if _waiting_in(rows) != waiting:
            mend(self._connection, queue)
            rows, lines = _lanes_of(self._connection, queue), self._lines(queue)
        opened: dict[Priority, tuple[LineTurns, list[tuple[PlainLane, PlainLane]]]] = {}
        for row in rows:
            if row.queued and self._claim.admits(row.lane):
                by_age, by_turn = (order(self._connection, row.number, row.lane) for order in (PlainLane, TurnLane))
                self.opened[row.number] = by_age, by_turn
                priority = row.lane.priority
                opened.setdefault(priority, (lines[priority].turns, []))[1].append((by_age, by_turn))
        return opened

    def take(self, tasks: Iterable[tuple[int, Task]]) -> None:
        """Take tasks of these lanes out of both orders, as they stand once they are claimed."""
        execute = self._connection.executemany
        out_of_age: list[tuple[int, Instant, TaskId]] = []
        out_of_turn: list[tuple[int, int, TaskId]] = []
        for number, task in tasks:
            by_age, by_turn = self.opened[number]
            # What is not behind the last that was read of an order goes with all of that.
            if (task.status.ready_at, task.id) > by_age.last:
                out_of_age.append((number, task.status.ready_at, task.id))
            if (task.status.turn, task.id) > by_turn.last:
                out_of_turn.append((number, task.status.turn, task.id))
        execute(statement("change.ready_remove"), out_of_age)
        execute(statement("turns.remove"), out_of_turn)
        read = self.opened.items()
        execute(statement("claim.ready_take"), [(at, *age.last) for at, (age, _) in read if age.last != NOWHERE])
        execute(statement("turns.take"), [(at, *turn.last) for at, (_, turn) in read if turn.last != NOWHERE])

    def _lines(self, queue: str) -> dict[Priority, _Line]:
        rows = self._connection.execute(statement("turns.lines"), (queue,))
        return {Priority(row[0]): _Line(LineTurns(row[1], row[2]), row[3]) for row in rows}


def _entries(fronts: Iterable[PlainLane]) -> Iterator[Entry]:
    """The lanes that have a head, in the order of those."""
    entries = [(front.head[0], front.head[1], front) for front in fronts if front.head is not None]
    return iter(sorted(entries, key=itemgetter(0, 1)))


def line_keys(
    connection: sqlite3.Connection, queue: str, priority: Priority, named: Sequence[str], most: int
) -> LineKeys:
    """How far the turns of a line have come, and who waits in it."""
    name = queue, int(priority)
    row = connection.execute(statement("turns.line"), name).fetchone()
    if row is None:
        return LineKeys()
    (keys,) = connection.execute(statement("turns.keys_count"), name).fetchone()
    waiting = dict(connection.execute(statement("turns.keys_named"), (*name, json.dumps(list(named)))))
    others = "turns.keys_most" if keys <= _MOST_KEYS else "turns.keys_some"
    left = most
    for key, tasks in connection.execute(statement(others), (*name, most + len(waiting) if most > 0 else 0)):
        if key not in waiting and left > 0:
            waiting[key] = tasks
            left -= 1
    return LineKeys(LineTurns(row[0], row[1]), keys, waiting)


def mend(connection: sqlite3.Connection, queue: str) -> None:
    """Bring the turns of a queue in step with who waits, where a process of an earlier version has changed that."""
    rows = _lanes_of(connection, queue)
    for row in rows:
        connection.execute(statement("turns.mend_gone"), (row.number,))
    connection.execute(statement("turns.mend_begin"), (queue,))
    connection.execute(statement("turns.mend_keys"), (queue,))
    connection.execute(statement("turns.mend_lines"), (queue,))
    connection.execute(statement("turns.mend_empty"), (queue,))
    turns = FairTurns(connection)
    updates: list[tuple[object, ...]] = []
    met: list[Damage] = []
    for row in rows:
        come = connection.execute(statement("turns.mend_come"), (row.number,)).fetchall()
        for ready_at, task_id, task, status, spec in come:
            try:
                fair, known = unpack_spec(spec).fair, unpack_status(status)
            except UNDECODABLE as error:
                met.append(damage_of(task_id, status, spec, error))
                continue
            if fair is not None:
                known = turns.enter(row.number, row.lane, fair, replace(known, ready_at=ready_at), task_id, task)
                updates.append((task, task_id, row.number, QUEUED.value, known.alarm, pack(known)))
    if met:
        raise Damaged(met)
    turns.write()
    write_rows(connection, "change.status_set", updates)
    connection.execute(statement("turns.mend_bound"), (queue,))


def mend_strays(connection: sqlite3.Connection) -> None:
    """Do that for all queues in which such a process has queued something."""
    for (queue,) in connection.execute(statement("turns.strays")).fetchall():
        mend(connection, queue)


def _lanes_of(connection: sqlite3.Connection, queue: str) -> list[LaneRow]:
    return [row_of(row) for row in connection.execute(statement("turns.lanes"), (queue,))]


def _waiting_in(rows: Iterable[LaneRow]) -> dict[Priority, int]:
    """How many tasks wait in the lines of these lanes."""
    waiting: dict[Priority, int] = {}
    for row in rows:
        if row.queued:
            waiting[row.lane.priority] = waiting.get(row.lane.priority, 0) + row.queued
    return waiting
