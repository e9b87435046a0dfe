"""Tasks with concurrency keys: who is first of each key, which keys are to be looked at, how many run of each."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from functools import partial
from typing import Final

import msgspec

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.queues.limits import NEVER, Limit
from fairlead.core.task import EXECUTING, QUEUED, Lane, Priority, State, Status
from fairlead.storage.claim_limits import (
    LOOKS_AT_ONCE,
    QUEUE_NAME,
    Front,
    LimitGate,
    PlainFront,
    key_name,
    limits_of,
    merge_limited,
    type_name,
)
from fairlead.storage.lane_merge import Head
from fairlead.storage.sqlite.statements import statement
from fairlead.storage.values import Claim, Usage, Used

_ANY: Final = Priority.MEDIUM
"""Where none is asked for."""

_written: Final = msgspec.json.Encoder().encode


def enter(
    connection: sqlite3.Connection, queue: str, lane: int, key: str, status: Status, task_id: TaskId, number: int
) -> None:
    """Take note of a task of a key as it now stands."""
    if status.state is QUEUED:
        connection.execute(statement("limits.line_add"), (lane, key, status.ready_at, task_id, number))
        connection.execute(statement("limits.look_wake"), (queue, key))
    elif status.state is EXECUTING:
        connection.execute(statement("limits.running_more"), (queue, key))


def leave(connection: sqlite3.Connection, queue: str, lane: int, key: str, status: Status, task_id: TaskId) -> None:
    """Forget how a task of a key stood."""
    if status.state is QUEUED:
        connection.execute(statement("limits.line_remove"), (lane, key, status.ready_at, task_id))
        if connection.execute(statement("limits.front_remove"), (lane, status.ready_at, task_id)).rowcount:
            connection.execute(statement("limits.front_add"), (lane, key))
        connection.execute(statement("limits.look_forget"), (queue, key))
    elif status.state is EXECUTING:
        connection.execute(statement("limits.running_less"), (queue, key))
        connection.execute(statement("limits.running_none"), (queue, key))
        connection.execute(statement("limits.look_free"), (queue, key))


def forget(connection: sqlite3.Connection, queue: str, lane: int, key: str, state: State, task_id: TaskId) -> None:
    """Forget a task of a key of which it cannot be said how it stood."""
    row = (
        connection.execute(statement("limits.line_place"), (lane, key, task_id)).fetchone() if state is QUEUED else (0,)
    )
    if row is not None:
        (ready_at,) = row
        leave(connection, queue, lane, key, Status(state=state, priority=_ANY, ready_at=ready_at, timeout=0), task_id)


def choose(
    connection: sqlite3.Connection, claim: Claim, lanes: Iterable[tuple[int, Lane, sqlite3.Cursor | None]]
) -> list[Head]:
    """The heads that a claim takes under its limits; lanes of keyed tasks have no cursor."""
    limits = limits_of(claim)
    connection.execute(statement("limits.due_forget"), (claim.at,))
    for queue, own in limits.items():
        _look(connection, queue, own.key, claim.at)
    fronts: list[Front] = [
        _KeyedFront(connection, number, lane, _text(limits[lane.queue].key))
        if heads is None
        else PlainFront(lane, heads)
        for number, lane, heads in lanes
    ]
    rows = connection.execute(statement("limits.lanes_running"), (json.dumps(list(limits)),))
    running = {(queue, task_type): count for queue, task_type, count in rows}
    gate = LimitGate(claim, running, partial(_due, connection), partial(_running_of_key, connection))
    taken = merge_limited(claim, fronts, gate)
    connection.executemany(statement("limits.due_set"), [(*thing, due) for thing, due in gate.dues().items()])
    return taken


def usage(connection: sqlite3.Connection, queue: str, task_type: str, key: str | None) -> Usage:
    rows = connection.execute(statement("limits.lanes_running"), (json.dumps([queue]),))
    running = {of_type: count for _, of_type, count in rows}
    return Usage(
        queue=Used(sum(running.values()), _due(connection, queue, QUEUE_NAME)),
        type=Used(running.get(task_type, 0), _due(connection, queue, type_name(task_type))),
        key=Used()
        if key is None
        else Used(_running_of_key(connection, queue, key), _due(connection, queue, key_name(key))),
    )


def _due(connection: sqlite3.Connection, queue: str, name: str) -> Instant | None:
    row = connection.execute(statement("limits.due_of"), (queue, name)).fetchone()
    return row[0] if row else None


def _running_of_key(connection: sqlite3.Connection, queue: str, key: str) -> int:
    row = connection.execute(statement("limits.running_of"), (queue, key)).fetchone()
    return row[0] if row else 0


def _look(connection: sqlite3.Connection, queue: str, under: Limit, now: Instant) -> None:
    """Let the keys come to the front that may go on by now, or were full by another limit."""
    given = (queue, now, _text(under), LOOKS_AT_ONCE, under.horizon(now), NEVER)
    keys = [key for (key,) in connection.execute(statement("limits.look_due"), given)]
    if keys:
        lanes = [lane for (lane,) in connection.execute(statement("limits.lanes_keyed"), (queue,))]
        connection.executemany(statement("limits.front_add"), [(lane, key) for key in keys for lane in lanes])
        connection.executemany(statement("limits.look_done"), [(queue, key) for key in keys])


def _text(limit: Limit) -> str:
    return _written(limit).decode()


class _KeyedFront:
    """The front of a lane of keyed tasks, for one claim."""

    def __init__(self, connection: sqlite3.Connection, number: int, lane: Lane, under: str) -> None:
        self.lane = lane
        self._connection = connection
        self._number = number
        self._under = under
        self._advance()

    def take(self) -> None:
        if self.head is not None:
            ready_at, task_id, *_ = self.head
            self._connection.execute(statement("limits.front_remove"), (self._number, ready_at, task_id))
            self._connection.execute(statement("limits.line_remove"), (self._number, self.key, ready_at, task_id))
            self._connection.execute(statement("limits.front_add"), (self._number, self.key))
            self._connection.execute(statement("limits.running_more"), (self.lane.queue, self.key))
            self._connection.execute(statement("change.ready_remove"), (self._number, ready_at, task_id))
        self._advance()

    def close(self, until: Instant) -> None:
        if self.head is not None:
            ready_at, task_id, *_ = self.head
            self._connection.execute(statement("limits.front_remove"), (self._number, ready_at, task_id))
            self._connection.execute(statement("limits.look_later"), (self.lane.queue, self.key, until, self._under))
        self._advance()

    def _advance(self) -> None:
        row = self._connection.execute(statement("limits.front_head"), (self._number,)).fetchone()
        self.head: Head | None = None if row is None else row[:-1]
        self.key: str = "" if row is None else row[-1]
