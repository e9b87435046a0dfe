"""Tasks with concurrency keys: who is first of each key, which keys are to be looked at, how many run of each."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import partial
from typing import Final

import msgspec

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.queues.limits import NEVER, NO_LIMITS, Limit
from fairlead.core.task import EXECUTING, QUEUED, Lane, Priority, State, Status
from fairlead.storage.claim_limits import (
    LOOKS_AT_ONCE,
    QUEUE_NAME,
    LimitGate,
    key_name,
    limits_of,
    type_name,
)
from fairlead.storage.lane_merge import Head
from fairlead.storage.lane_search import Front
from fairlead.storage.sqlite.database import statement
from fairlead.storage.sqlite.lane_heads import PlainLane
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


def look(connection: sqlite3.Connection, claim: Claim, few: int) -> bool:
    """Let the keys of a claim's queues come to the front that may go on by now, or were full by another limit.

    Whether fair tasks wait in any queue of the file.
    """
    limits = limits_of(claim)
    any_key, any_fair = connection.execute(statement("limits.looking")).fetchone()
    if any_key:
        for queue in limits if len(limits) <= few else _looking(connection):
            if queue in limits:
                _look(connection, queue, limits[queue].key, claim.at)
    return bool(any_fair)


def gate_of(connection: sqlite3.Connection, claim: Claim) -> LimitGate:
    """What the limits of a claim's queues leave room for."""
    connection.execute(statement("limits.due_forget"), (claim.at,))
    return LimitGate(
        claim, partial(_running, connection), partial(_due, connection), partial(_running_of_key, connection)
    )


def keep_dues(connection: sqlite3.Connection, gate: LimitGate) -> None:
    """Store when the next starts are due."""
    connection.executemany(statement("limits.due_set"), [(*thing, due) for thing, due in gate.dues().items()])


def front_of(connection: sqlite3.Connection, claim: Claim, number: int, lane: Lane) -> Front:
    """The front of a lane, for one claim."""
    if not lane.keyed:
        return PlainLane(connection, number, lane)
    limits = next(order.limits for order in claim.queues if order.queue == lane.queue) or NO_LIMITS
    return _KeyedFront(connection, number, lane, _text(limits.key))


def total_of(connection: sqlite3.Connection, queue: str) -> tuple[int, int]:
    """How many tasks wait and how many are executing in a queue, kept from now on."""
    row = connection.execute(statement("limits.total_of"), (queue,)).fetchone()
    if row is None:
        row = connection.execute(statement("limits.total_count"), (queue,)).fetchone()
        connection.execute(statement("limits.total_keep"), (queue, *row))
    return row[0], row[1]


def usage(connection: sqlite3.Connection, queue: str, task_type: str, key: str | None) -> Usage:
    total = connection.execute(statement("limits.total_of"), (queue,)).fetchone()
    if total is None:
        total = connection.execute(statement("limits.total_count"), (queue,)).fetchone()
    return Usage(
        queue=Used(total[1], _due(connection, queue, QUEUE_NAME)),
        type=Used(_running(connection, queue, task_type), _due(connection, queue, type_name(task_type))),
        key=Used()
        if key is None
        else Used(_running_of_key(connection, queue, key), _due(connection, queue, key_name(key))),
    )


def _running(connection: sqlite3.Connection, queue: str, task_type: str | None) -> int:
    if task_type is None:
        return total_of(connection, queue)[1]
    (running,) = connection.execute(statement("limits.running_of_type"), (queue, task_type)).fetchone()
    return int(running)


def _looking(connection: sqlite3.Connection) -> Iterator[str]:
    """The queues that have keys to be looked at."""
    queue = ""
    while True:
        (queue,) = connection.execute(statement("limits.looking_next"), (queue,)).fetchone()
        if queue is None:
            return
        yield queue


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
