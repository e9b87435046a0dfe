"""Adding tasks: who may come in, and the rows of those who do, inside a transaction of someone else's."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Mapping, Sequence

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.task import QUEUED, After, State, Task
from fairlead.storage.sqlite import arrivals, concurrency_keys
from fairlead.storage.sqlite.arrivals import ADDED, pack
from fairlead.storage.sqlite.change import standings, status_row
from fairlead.storage.sqlite.database import statement, write_rows
from fairlead.storage.sqlite.lanes import LaneChanges, counts_of
from fairlead.storage.sqlite.turns import FairTurns
from fairlead.storage.steps import counted, host_time
from fairlead.storage.values import (
    Full,
    KeyHeld,
    Known,
    Missing,
    Receipt,
)


def add(
    connection: sqlite3.Connection, tasks: Sequence[Task], now: Instant | None, bounds: Mapping[str, int]
) -> tuple[list[Receipt], dict[str, int]]:
    """The receipts, and how many tasks of each queue became ready."""
    if arrivals.may_arrive(tasks, bounds) and (arrived := arrivals.arrive(connection, tasks[0])) is not None:
        return arrived
    entry = _Entry(connection, tasks, host_time() if now is None else now, bounds)
    receipts = [entry.admit(task) for task in tasks]
    return receipts, entry.write()


class _Entry:
    """One call's way into the store: who may come in, and the rows of those who do."""

    def __init__(
        self, connection: sqlite3.Connection, tasks: Sequence[Task], now: Instant, bounds: Mapping[str, int]
    ) -> None:
        self._connection = connection
        self._now = now
        self._bounds = bounds
        self._lanes_changed = LaneChanges(connection)
        self._filed = arrivals.file(connection)
        (newest,) = connection.execute(statement("add.last_id")).fetchone()
        ids = [task.spec.id for task in tasks]
        # Ids sort by time, so new tasks mostly come after all that are stored, and need not be looked for.
        self._known = set() if newest is None or newest < min(ids, default="") else _known(connection, ids)
        self._depths = {queue: self._depth(queue) for queue in bounds}
        self._numbers = itertools.count(self._filed + 1)
        self._tasks: list[tuple[int, TaskId, int, Instant | None, str | None, bytearray, bytearray]] = []
        self._statuses: list[tuple[object, ...]] = []
        self._entered: list[tuple[int, State]] = []
        self._dependents: list[tuple[object, ...]] = []
        self._turns = FairTurns(connection)
        self._fair_lanes: set[int] = set()
        self._states: dict[object, State] = {}
        """How those of this call stand that a task may wait for, as far as anyone has asked."""

    def admit(self, task: Task) -> Receipt:
        spec, status = task.spec, task.status
        if spec.id in self._known:
            return Known()
        key = None if spec.idempotency_key is None else (spec.queue, spec.idempotency_key)
        if key is not None:
            holder = self._connection.execute(statement("read.key_holder"), (*key, self._now)).fetchone()
            if holder is not None:
                return KeyHeld(holder[0])
        named = None
        if spec.after is not None and status.waits:
            found = self._named(spec.after)
            if isinstance(found, Missing):
                return found
            named = found
            status = counted(status, named.values())
        bound = self._bounds.get(spec.queue)
        if bound is not None and status.state.waiting:
            depth = self._depths[spec.queue]
            if depth >= bound:
                return Full(depth, bound)
            self._depths[spec.queue] = depth + 1
        if key is not None:
            self._connection.execute(statement("add.key_take"), (*key, spec.id, spec.key_until or 0))
        self._known.add(spec.id)
        number, lane = next(self._numbers), self._lanes_changed.number(task.lane)
        if spec.fair is not None and spec.concurrency_key is None:
            self._fair_lanes.add(lane)
            if status.state is QUEUED:
                status = self._turns.enter(lane, task.lane, spec.fair, status, spec.id, number)
        ready_at = status.ready_at if status.state is QUEUED else None
        self._tasks.append((number, spec.id, lane, ready_at, spec.concurrency_key, pack(spec), pack(status)))
        if ready_at is None:
            self._statuses.append(status_row(number, spec.id, lane, status))
        self._entered.append((lane, status.state))
        if spec.concurrency_key is not None:
            concurrency_keys.enter(self._connection, spec.queue, lane, spec.concurrency_key, status, spec.id, number)
        if named:
            self._dependents += [(parent, spec.id) for parent, state in named.items() if not state.ended]
        return ADDED

    def write(self) -> dict[str, int]:
        """Store those who may come in; how many tasks of each queue became ready."""
        if not self._tasks:
            return {}
        write_rows(self._connection, "add.tasks", self._tasks)
        arrivals.enter(self._connection, self._filed, self._filed + len(self._tasks))
        write_rows(self._connection, "change.status_set", self._statuses)
        write_rows(self._connection, "add.dependents", self._dependents)
        self._turns.write()
        self._come()
        for (lane, state), tasks in counts_of(self._entered).items():
            self._lanes_changed.enter(lane, state, tasks)
        return self._lanes_changed.write()

    def _come(self) -> None:
        """Take note of what may be the head of its lane: mostly nothing is, and that is seen at a glance."""
        since = [row[3] for row in self._tasks if row[3] is not None]
        if since and self._lanes_changed.may_lead((min(since), TaskId(""))):
            for _, task_id, lane, ready_at, key, *_ in self._tasks:
                if ready_at is not None and key is None and lane not in self._fair_lanes:
                    self._lanes_changed.come(lane, (ready_at, task_id))

    def _named(self, after: After) -> dict[TaskId, State] | Missing:
        """How those stand that a task is to wait for."""
        unasked = len(self._states)
        self._states |= {
            task_id: state
            for (_, task_id, *_), (_, state) in zip(self._tasks[unasked:], self._entered[unasked:], strict=True)
        }
        rows = self._connection.execute(statement("read.statuses_by_id"), (json.dumps(after.tasks),))
        stored = {task_id: status.state for task_id, _, _, status, _ in standings(self._connection, rows)}
        states: dict[TaskId, State] = {}
        for task_id in after.tasks:
            state = stored.get(task_id) or self._states.get(task_id)
            if state is None:
                return Missing(task_id)
            states[task_id] = state
        return states

    def _depth(self, queue: str) -> int:
        waiting, _ = concurrency_keys.total_of(self._connection, queue)
        return waiting


def _known(connection: sqlite3.Connection, ids: Sequence[TaskId]) -> set[TaskId]:
    """Which of these ids are taken."""
    return {task_id for (task_id,) in connection.execute(statement("add.ids_known"), (json.dumps(ids),))}
