"""The operations that only read: functions of a connection inside a transaction of someone else's."""

from __future__ import annotations

import heapq
import itertools
import json
import sqlite3
from collections.abc import Sequence
from operator import itemgetter
from typing import Final

import msgspec
from msgspec.structs import astuple

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.task import Spec, State, Status, Task
from fairlead.storage.sqlite.lanes import COUNTED, lane_columns, lane_of
from fairlead.storage.sqlite.statements import statement
from fairlead.storage.values import Filter, LaneTally, Record, Stretch, Tally

unpack_spec: Final = msgspec.msgpack.Decoder(Spec).decode
unpack_status: Final = msgspec.msgpack.Decoder(Status).decode

_BEFORE_ALL: Final = (-1, TaskId(""))

_STANDING: Final = "LEFT JOIN status ON status.number = task.number"
_FILED: Final = f"directory CROSS JOIN task ON task.number = directory.number {_STANDING}"
_ARRIVED: Final = f"task {_STANDING}"


def get(connection: sqlite3.Connection, ids: Sequence[TaskId]) -> list[Task | None]:
    rows = connection.execute(statement("tasks_by_id"), (json.dumps(ids),))
    tasks = {task_id: _task(status, spec) for task_id, status, spec in rows}
    if len(tasks) < len(ids):
        rows = connection.execute(statement("arrivals_by_id"), (json.dumps(ids),))
        tasks |= {task_id: _task(status, spec) for task_id, status, spec in rows}
    return [tasks.get(task_id) for task_id in ids]


def due(connection: sqlite3.Connection, now: Instant, limit: int, after: tuple[Instant, TaskId] | None) -> list[Task]:
    parameters = (now, *(after or _BEFORE_ALL), limit)
    alarms = [connection.execute(statement(query), parameters) for query in ("leases_due", "tasks_due")]
    rows = itertools.islice(heapq.merge(*alarms), limit)
    return [_task(status, spec) for _, _, status, spec in rows]


def find(
    connection: sqlite3.Connection, matching: Filter, limit: int, newest_first: bool, after: TaskId | None
) -> list[Task]:
    """What the lane table cannot tell is filtered here, row by row, as far as the limit needs."""
    parameters = {
        "after": after,
        "queue": matching.queue,
        "type": matching.type,
        "priority": matching.priority,
    }
    listings = [connection.execute(query, parameters) for query in _listings(matching.states, newest_first)]
    rows = heapq.merge(*listings, key=itemgetter(0), reverse=newest_first)
    tasks = (_task(status, spec) for _, status, spec in rows)
    return list(itertools.islice(filter(matching.admits, tasks), limit))


def _listings(states: frozenset[State], newest_first: bool) -> list[str]:
    """The queries whose results, merged, are all tasks of these states; of any state if there are none."""
    query = statement("tasks_newest" if newest_first else "tasks_oldest")
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


def tally(connection: sqlite3.Connection) -> Tally:
    arrived = {lane: (tasks, oldest) for lane, tasks, oldest in connection.execute(statement("arrivals_tally"))}
    lanes: list[LaneTally] = []
    for number, queue, kind, requires, priority, keyed, oldest, *counts in connection.execute(statement("lanes_tally")):
        counted = dict(zip(COUNTED, counts, strict=True))
        if number in arrived:
            tasks, first = arrived[number]
            counted[State.QUEUED] += tasks
            oldest = first if oldest is None else min(first, oldest)
        lane = lane_of(queue, kind, requires, priority, keyed)
        lanes.append(LaneTally(lane, {state: count for state, count in counted.items() if count}, oldest))
    (alarm,) = connection.execute(statement("next_alarm")).fetchone()
    return Tally(lanes, alarm)


def count(connection: sqlite3.Connection, stretches: Sequence[Stretch]) -> list[int]:
    query = statement("lane_stretch")
    rows = [
        connection.execute(query, (*lane_columns(each.lane), *astuple(each.start), *astuple(each.end))).fetchone()
        for each in stretches
    ]
    return [0 if row is None else row[0] for row in rows]


def scan(connection: sqlite3.Connection, kind: str) -> list[Record]:
    rows = connection.execute(statement("records"), (kind,))
    return [Record(kind=kind, name=name, value=value, version=version) for name, value, version in rows]


def _task(status: bytes, spec: bytes) -> Task:
    return Task(unpack_spec(spec), unpack_status(status))
