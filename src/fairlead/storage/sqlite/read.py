"""The operations that only read: functions of a connection inside a transaction of someone else's."""

from __future__ import annotations

import heapq
import itertools
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final, TypeVar

import msgspec
from msgspec.structs import astuple

from fairlead.core.health.quarantine import fault_of
from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.task import Spec, State, Status, Task
from fairlead.storage.quarantine import UNDECODABLE, Damage, Damaged, Location, whole
from fairlead.storage.sqlite.database import statement
from fairlead.storage.sqlite.lanes import COUNTED, lane_columns, lane_of, required_by
from fairlead.storage.steps import host_time
from fairlead.storage.values import Filter, LaneTally, Stretch, Tally

unpack_spec: Final = msgspec.msgpack.Decoder(Spec).decode
unpack_status: Final = msgspec.msgpack.Decoder(Status).decode

Found = TypeVar("Found", Task, Task | None)

_BEFORE_ALL: Final = (-1, TaskId(""))

_PASSED_OVER: Final = 1_000
"""How many damaged tasks one look at the alarms passes over: the next one finds them set aside."""

_STANDING: Final = "LEFT JOIN status ON status.number = task.number"
_FILED: Final = f"directory CROSS JOIN task ON task.number = directory.number {_STANDING}"
_ARRIVED: Final = f"task {_STANDING}"


def get(connection: sqlite3.Connection, ids: Sequence[TaskId]) -> list[Task | None]:
    met: list[Damage] = []
    rows = connection.execute(statement("read.tasks_by_id"), (json.dumps(ids),))
    tasks = {task.spec.id: task for task in _tasks(rows, met)}
    if len(tasks) < len(ids):
        rows = connection.execute(statement("arrivals.by_id"), (json.dumps(ids),))
        tasks |= {task.spec.id: task for task in _tasks(rows, met)}
    return _told([tasks.get(task_id) for task_id in ids], met)


def due(
    connection: sqlite3.Connection, now: Instant | None, limit: int, after: tuple[Instant, TaskId] | None
) -> list[Task]:
    return _told(*_due(connection, host_time() if now is None else now, limit, after))


def find(
    connection: sqlite3.Connection, matching: Filter, limit: int, newest_first: bool, after: TaskId | None
) -> list[Task]:
    """What the lane table cannot tell is filtered here, row by row, as far as the limit needs."""
    return _told(*_found(connection, matching, limit, newest_first, after))


# What has cursors open ends before anything is raised: an error that is kept would keep them, and what they have seen.


def _due(
    connection: sqlite3.Connection, now: Instant, limit: int, after: tuple[Instant, TaskId] | None
) -> tuple[list[Task], list[Damage]]:
    # What cannot be decoded is passed over, up to a number; rows are read only as far as they are used.
    parameters = (now, *(after or _BEFORE_ALL), limit + _PASSED_OVER)
    alarms = [connection.execute(statement(query), parameters) for query in ("read.leases_due", "read.tasks_due")]
    met: list[Damage] = []
    tasks = _tasks((row[1:] for row in heapq.merge(*alarms)), met)
    return list(itertools.islice(tasks, limit)), met


def _found(
    connection: sqlite3.Connection, matching: Filter, limit: int, newest_first: bool, after: TaskId | None
) -> tuple[list[Task], list[Damage]]:
    parameters = {
        "after": after,
        "queue": matching.queue,
        "type": matching.type,
        "priority": matching.priority,
    }
    listings = [connection.execute(query, parameters) for query in _listings(matching.states, newest_first)]
    rows = heapq.merge(*listings, key=itemgetter(0), reverse=newest_first)
    met: list[Damage] = []
    return list(itertools.islice(filter(matching.admits, _tasks(rows, met)), limit)), met


def _listings(states: frozenset[State], newest_first: bool) -> list[str]:
    """The queries whose results, merged, are all tasks of these states; of any state if there are none."""
    query = statement("read.tasks_newest" if newest_first else "read.tasks_oldest")
    # Queued tasks have no index by id: it would be written for every task that passes through.
    if not states or State.QUEUED in states:
        return [
            query.format(tables=_FILED, leading="directory", condition="TRUE"),
            query.format(tables=_ARRIVED, leading="task", condition="task.number > (SELECT number FROM filed)"),
        ]
    return [
        query.format(
            tables=f"status INDEXED BY {_listed_by(state)} CROSS JOIN task ON task.number = status.number",
            leading="status",
            condition=_in_state(state),
        )
        for state in states
    ]


def _listed_by(state: State) -> str:
    return "status_lease" if state is State.EXECUTING else "status_state"


def _in_state(state: State) -> str:
    """A condition in the words of the index, which SQLite must see to use it."""
    chosen = f"status.state = '{state.value}'"
    return chosen if state is State.EXECUTING else f"status.state NOT IN ('queued', 'executing') AND {chosen}"


def holder(connection: sqlite3.Connection, queue: str, key: str, now: Instant | None) -> TaskId | None:
    row = connection.execute(statement("read.key_holder"), (queue, key, host_time() if now is None else now)).fetchone()
    return None if row is None else row[0]


def tally(connection: sqlite3.Connection) -> Tally:
    arrived = {lane: (tasks, oldest) for lane, tasks, oldest in connection.execute(statement("arrivals.tally"))}
    lanes: list[LaneTally] = []
    for number, queue, kind, requires, priority, keyed, oldest, *counts in connection.execute(statement("read.tally")):
        counted = dict(zip(COUNTED, counts, strict=True))
        if number in arrived:
            tasks, first = arrived[number]
            counted[State.QUEUED] += tasks
            oldest = first if oldest is None else min(first, oldest)
        lane = lane_of(queue, kind, requires, priority, keyed)
        lanes.append(LaneTally(lane, {state: count for state, count in counted.items() if count}, oldest))
    (alarm,) = connection.execute(statement("read.next_alarm")).fetchone()
    return Tally(lanes, alarm)


def count(connection: sqlite3.Connection, stretches: Sequence[Stretch], most: int | None) -> list[int]:
    by_age, by_turn, limit = statement("read.stretch"), statement("turns.stretch"), -1 if most is None else most
    rows = [
        connection.execute(
            by_turn if each.by_turn else by_age,
            (*lane_columns(each.lane), *astuple(each.start), *astuple(each.end), limit),
        ).fetchone()
        for each in stretches
    ]
    counts = [0 if row is None else row[0] for row in rows]
    return counts if most is None else [min(count, most) for count in counts]


def locate(connection: sqlite3.Connection, task_id: TaskId) -> Location | None:
    """Where a task is, whatever its bytes say."""
    row = connection.execute(statement("read.location_of"), (task_id, task_id)).fetchone()
    return None if row is None else Location(row[0], required_by(row[1]))


def _tasks(rows: Iterable[tuple[TaskId, bytes, bytes]], met: list[Damage]) -> Iterator[Task]:
    """The tasks in rows of id, status and spec; those that cannot be decoded are met instead."""
    for task_id, status, spec in rows:
        try:
            task = whole(task_id, spec, status)
        except UNDECODABLE as error:
            met.append(damage_of(task_id, status, spec, error))
        else:
            yield task


def damage_of(task_id: TaskId, status: bytes, spec: bytes, error: Exception) -> Damage:
    """What was met in place of a task."""
    return Damage(task_id, {"spec": spec, "status": status}, str(error), fault_of(status))


def _told(answer: list[Found], met: list[Damage]) -> list[Found]:
    if met:
        raise Damaged(met, answer)
    return answer
