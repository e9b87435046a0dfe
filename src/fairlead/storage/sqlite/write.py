"""The operations that write: functions of a connection inside a transaction of someone else's."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from fairlead.core.health.quarantine import Fault, is_newer
from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant, Span
from fairlead.core.task import COMPLETED, EXECUTING, QUEUED, After, State, Status, Task
from fairlead.storage.lane_merge import merge
from fairlead.storage.quarantine import UNDECODABLE, Damage, Damaged, Removal
from fairlead.storage.sqlite import arrivals, concurrency_keys
from fairlead.storage.sqlite.arrivals import pack
from fairlead.storage.sqlite.database import Connection, Standing
from fairlead.storage.sqlite.lanes import LaneBook, counts_of, ready_lanes
from fairlead.storage.sqlite.read import damage_of, unpack_spec, unpack_status
from fairlead.storage.sqlite.statements import statement, write_rows
from fairlead.storage.steps import claimed, counted, curtailed, ends, extended, host_time, judged, pulse, released
from fairlead.storage.values import (
    APPLIED,
    RELEASED,
    Added,
    Beat,
    Change,
    Claim,
    Full,
    KeyHeld,
    Known,
    Missing,
    Pulse,
    Receipt,
    Seen,
    Verdict,
)

_Standing: TypeAlias = tuple[TaskId, int, int, Status, str | None]
"""A task's id, number and lane, how it stands, and its concurrency key."""

_LANE_STATEMENTS: Final = 128

_ADDED: Final = Added()

_WORDS: Final = {state: state.value for state in State}
"""The states as plain strings, which SQLite's module takes as they are; of others it asks what they would be."""

_EXECUTING: Final = EXECUTING.value


def add(
    connection: sqlite3.Connection, tasks: Sequence[Task], now: Instant | None, bounds: Mapping[str, int]
) -> tuple[list[Receipt], dict[str, int]]:
    """The receipts, and how many tasks of each queue became ready."""
    if arrivals.may_arrive(tasks, bounds) and arrivals.arrive(connection, tasks[0]):
        return [_ADDED], {tasks[0].spec.queue: 1}
    entry = _Entry(connection, tasks, host_time() if now is None else now, bounds)
    receipts = [entry.admit(task) for task in tasks]
    return receipts, entry.write()


def add_alone(connection: sqlite3.Connection, task: Task) -> tuple[list[Receipt], dict[str, int]] | None:
    """`add`, of a task that may arrive, by a single statement; None if it takes more than that."""
    return ([_ADDED], {task.spec.queue: 1}) if arrivals.arrive(connection, task) else None


class _Entry:
    """One call's way into the store: who may come in, and the rows of those who do."""

    def __init__(
        self, connection: sqlite3.Connection, tasks: Sequence[Task], now: Instant, bounds: Mapping[str, int]
    ) -> None:
        self._connection = connection
        self._now = now
        self._bounds = bounds
        self._book = LaneBook(connection)
        self._filed = arrivals.file(connection)
        (newest,) = connection.execute(statement("add.last_id")).fetchone()
        ids = [task.spec.id for task in tasks]
        # Ids sort by time, so new tasks mostly come after all that are stored, and need not be looked for.
        self._known = set() if newest is None or newest < min(ids, default="") else _known(connection, ids)
        self._depths = {queue: self._depth(queue) for queue in bounds}
        self._numbers = itertools.count(self._filed + 1)
        self._tasks: list[tuple[object, ...]] = []
        self._statuses: list[tuple[object, ...]] = []
        self._entered: list[tuple[int, State]] = []
        self._dependents: list[tuple[object, ...]] = []
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
        number, lane = next(self._numbers), self._book.number(task.lane)
        ready_at = status.ready_at if status.state is QUEUED else None
        self._tasks.append((number, spec.id, lane, ready_at, spec.concurrency_key, pack(spec), pack(status)))
        if ready_at is None:
            self._statuses.append(status_row(number, spec.id, lane, status))
        self._entered.append((lane, status.state))
        if spec.concurrency_key is not None:
            concurrency_keys.enter(self._connection, spec.queue, lane, spec.concurrency_key, status, spec.id, number)
        if named:
            self._dependents += [(parent, spec.id) for parent, state in named.items() if not state.ended]
        return _ADDED

    def write(self) -> dict[str, int]:
        """Store those who may come in; how many tasks of each queue became ready."""
        if not self._tasks:
            return {}
        write_rows(self._connection, "add.tasks", self._tasks)
        arrivals.enter(self._connection, self._filed, self._filed + len(self._tasks))
        write_rows(self._connection, "change.status_set", self._statuses)
        write_rows(self._connection, "add.dependents", self._dependents)
        for (lane, state), tasks in counts_of(self._entered).items():
            self._book.enter(lane, state, tasks)
        return self._book.write()

    def _named(self, after: After) -> dict[TaskId, State] | Missing:
        """How those stand that a task is to wait for."""
        unasked = len(self._states)
        self._states |= {
            task_id: state
            for (_, task_id, *_), (_, state) in zip(self._tasks[unasked:], self._entered[unasked:], strict=True)
        }
        rows = self._connection.execute(statement("read.statuses_by_id"), (json.dumps(after.tasks),))
        stored = {task_id: status.state for task_id, _, _, status, _ in _standings(self._connection, rows)}
        states: dict[TaskId, State] = {}
        for task_id in after.tasks:
            state = stored.get(task_id) or self._states.get(task_id)
            if state is None:
                return Missing(task_id)
            states[task_id] = state
        return states

    def _depth(self, queue: str) -> int:
        (depth,) = self._connection.execute(statement("add.depth"), (queue,)).fetchone()
        return int(depth)


def _known(connection: sqlite3.Connection, ids: Sequence[TaskId]) -> set[TaskId]:
    """Which of these ids are taken."""
    return {task_id for (task_id,) in connection.execute(statement("add.ids_known"), (json.dumps(ids),))}


def claim(connection: Connection, request: Claim) -> list[Task]:
    arrivals.file(connection)
    request = request.dated(host_time())
    lanes = [
        (number, lane, None if lane.keyed else _heads(connection, number))
        for number, lane in ready_lanes(connection, (order.queue for order in request.queues))
        if request.admits(lane)
    ]
    plain = [(lane, heads) for _, lane, heads in lanes if heads is not None]
    if request.limited or len(plain) < len(lanes):
        taken = concurrency_keys.choose(connection, request, lanes)
    else:
        taken = merge(request, plain)
    # A cursor left open would keep reading what is written here.
    for _, heads in plain:
        heads.close()
    tasks: list[Task] = []
    updates: list[tuple[object, ...]] = []
    fronts = {number for number, lane, _ in lanes if not lane.keyed}
    last: dict[int, tuple[object, ...]] = {}
    memory = connection.memory.current(connection)
    # Tasks that were submitted together stand alike, and then so do they once they are claimed.
    alike: dict[bytes, tuple[Status, bytearray]] = {}
    met: list[Damage] = []
    for ready_at, task_id, number, lane, packed_status, packed_spec in taken:
        try:
            standing = alike.get(packed_status)
            if standing is None:
                status = claimed(unpack_status(packed_status), request)
                standing = alike[packed_status] = status, pack(status)
            status, packed = standing
            task = Task(unpack_spec(packed_spec), status)
            if task.spec.id != task_id:
                raise ValueError(f"the id in its spec is {task.spec.id!r}")
        except UNDECODABLE as error:
            met.append(damage_of(task_id, packed_status, packed_spec, error))
            continue
        tasks.append(task)
        updates.append((number, task_id, lane, _EXECUTING, status.alarm, packed))
        if lane in fronts:
            last[lane] = lane, ready_at, task_id
            memory[task_id] = number, lane, status, None
    if met:
        raise Damaged(met)
    write_rows(connection, "change.status_set", updates)
    # What is taken of a lane is its front.
    connection.executemany(statement("claim.ready_take"), last.values())
    book = LaneBook(connection)
    for lane, count in counts_of([lane for _, _, _, lane, _, _ in taken]).items():
        book.leave(lane, QUEUED, count)
        book.enter(lane, EXECUTING, count)
    book.write()
    return tasks


def _heads(connection: sqlite3.Connection, lane: int) -> sqlite3.Cursor:
    """The ready tasks of a lane, read only as far as the claim asks."""
    # A prepared statement serves one open cursor; the comment gives each lane a statement of its own in the cache.
    return connection.execute(f"{statement('claim.heads')} -- {lane % _LANE_STATEMENTS}", (lane,))


def extend(connection: Connection, beats: Sequence[Beat], lease: Span, grace: Span, now: Instant | None) -> list[Pulse]:
    at = host_time() if now is None else now
    stored = _Statuses(connection, [beat.id for beat in beats])
    pulses: list[Pulse] = []
    for beat in beats:
        status = stored.get(beat.id)
        after = None if status is None else extended(status, beat, lease, grace, at)
        if after is not None:
            stored.set(beat.id, after)
        pulses.append(pulse(after))
    stored.write()
    return pulses


def curtail(connection: Connection, lease: Span, limit: int, now: Instant | None) -> int:
    end = (host_time() if now is None else now) + lease
    late = [task_id for (task_id,) in connection.execute(statement("change.leases_late"), (end, limit))]
    cut = 0
    if late:
        stored = _Statuses(connection, late)
        for task_id in late:
            status = stored.get(task_id)
            if status is not None:
                stored.set(task_id, curtailed(status, end))
                cut += 1
        stored.write()
    return cut


def apply(connection: Connection, changes: Sequence[Change]) -> tuple[list[Verdict], dict[str, int]]:
    """The verdicts, and how many tasks of each queue became ready."""
    stored = _Statuses(connection, [change.id for change in changes])
    (awaited,) = connection.execute(statement("change.dependents_any")).fetchone()
    verdicts: list[Verdict] = []
    for change in changes:
        before = stored.get(change.id)
        verdict = judged(change, before)
        if verdict is APPLIED:
            stored.set(change.id, change.status)
            if (
                awaited
                and before is not None
                and ends(before, change.status)
                and _count_end(connection, stored, change)
            ):
                verdict = RELEASED
        verdicts.append(verdict)
    return verdicts, stored.write()


def _count_end(connection: Connection, stored: _Statuses, change: Change) -> bool:
    """Let those who wait for a task know that it has ended; whether any of them has nothing left to wait for."""
    dependents = [task_id for (task_id,) in connection.execute(statement("change.dependents_of"), (change.id,))]
    if not dependents:
        return False
    connection.execute(statement("change.dependents_remove"), (change.id,))
    stored.read(dependents)
    completed = change.status is not None and change.status.state is COMPLETED
    last = False
    for task_id in dependents:
        status = stored.get(task_id)
        if status is not None and status.waits:
            after = released(status, 1, 0 if completed else 1)
            stored.set(task_id, after)
            last |= after.pending == 0
    return last


class _Statuses:
    """The statuses that one call reads, and what it makes of them."""

    def __init__(self, connection: Connection, ids: Sequence[TaskId]) -> None:
        arrivals.file(connection)
        self._connection = connection
        self._memory = connection.memory.current(connection)
        self._read: dict[TaskId, Standing] = {}
        self._changed: dict[TaskId, Status | None] = {}
        self.read(ids)

    def read(self, ids: Sequence[TaskId]) -> None:
        """Read how more tasks stand, as far as nobody remembers it."""
        unknown = [task_id for task_id in ids if task_id not in self._memory]
        if unknown:
            rows = self._connection.execute(statement("read.statuses_by_id"), (json.dumps(unknown),))
            for task_id, number, lane, status, key in _standings(self._connection, rows):
                self._read[task_id] = number, lane, status, key

    def get(self, task_id: TaskId) -> Status | None:
        if task_id in self._changed:
            return self._changed[task_id]
        standing = self._memory.get(task_id) or self._read.get(task_id)
        return None if standing is None else standing[2]

    def set(self, task_id: TaskId, status: Status | None) -> None:
        self._changed[task_id] = status

    def write(self) -> dict[str, int]:
        """Store what was made of them; how many tasks of each queue became ready."""
        book = LaneBook(self._connection)
        moves: list[tuple[int, State, int, State | None]] = []
        updates: list[tuple[object, ...]] = []
        again: list[tuple[object, ...]] = []
        for task_id, status in self._changed.items():
            remembered = self._memory.pop(task_id, None)
            number, left, before, key = self._read[task_id] if remembered is None else remembered
            if status is not None and status.state is before.state is EXECUTING:
                key = None  # it keeps its place
            if key is not None:
                concurrency_keys.leave(self._connection, book.lane(left).queue, left, key, before, task_id)
            if before.state is QUEUED:
                self._connection.execute(statement("change.ready_remove"), (left, before.ready_at, task_id))
            if status is None:
                _remove(self._connection, task_id, number)
                moves.append((left, before.state, left, None))
                continue
            lane = left if status.priority == before.priority else book.with_priority(left, status.priority)
            moves.append((left, before.state, lane, status.state))
            updates.append(status_row(number, task_id, lane, status))
            if key is not None:
                concurrency_keys.enter(self._connection, book.lane(lane).queue, lane, key, status, task_id, number)
            if status.state is QUEUED:
                again.append((lane, status.ready_at, task_id, number))
        write_rows(self._connection, "change.status_set", updates)
        write_rows(self._connection, "change.ready_add", again)
        for (left, was, lane, now), tasks in counts_of(moves).items():
            book.leave(left, was, tasks)
            if now is not None:
                book.enter(lane, now, tasks)
        return book.write()


def _standings(
    connection: sqlite3.Connection, rows: Iterable[tuple[TaskId, int, int, bytes, str | None]]
) -> Iterator[_Standing]:
    """How tasks stand, by rows of statuses_by_id; those that cannot be decoded are met instead.

    One of a newer format is as if it were not there: whoever knows that format sees to it.
    """
    met: list[Damage] = []
    book = LaneBook(connection)
    for task_id, number, lane, packed, key in rows:
        try:
            yield task_id, number, lane, unpack_status(packed), key
        except UNDECODABLE as error:
            spec, _ = connection.execute(statement("read.packed_by_number"), (number,)).fetchone()
            damage = damage_of(task_id, packed, spec, error)
            if damage.fault is Fault.DAMAGED or not is_newer(book.lane(lane).requires):
                met.append(damage)
    if met:
        raise Damaged(met)


def set_aside(connection: Connection, damage: Damage) -> tuple[Removal, dict[str, int]]:
    """Remove a task whose bytes are still those that could not be decoded, with all that names it.

    Besides how many tasks of each queue became ready.
    """
    arrivals.file(connection)
    row = connection.execute(statement("change.task_stored"), (damage.id,)).fetchone()
    if row is None:
        return Removal.GONE, {}
    number, lane, word, key, status, spec = row
    if damage.parts != {"spec": spec, "status": status}:
        return Removal.CHANGED, {}
    state = State(word)
    connection.memory.current(connection).pop(damage.id, None)
    book = LaneBook(connection)
    if state is QUEUED:
        # When it became ready is in its status alone, and that cannot be decoded.
        connection.execute(statement("change.ready_forget"), (lane, damage.id))
    if key is not None:
        concurrency_keys.forget(connection, book.lane(lane).queue, lane, key, state, damage.id)
    connection.execute(statement("change.key_forget"), (damage.id,))
    connection.execute(statement("change.dependents_forget"), (damage.id,))
    _erase(connection, damage.id, number)
    book.leave(lane, state, 1)
    book.write()
    if state.ended:
        return Removal.REMOVED, {}
    stored = _Statuses(connection, [])
    _count_end(connection, stored, Change(damage.id, Seen(0, 0), None))
    return Removal.REMOVED, stored.write()


def _remove(connection: sqlite3.Connection, task_id: TaskId, number: int) -> None:
    packed, packed_status = connection.execute(statement("read.packed_by_number"), (number,)).fetchone()
    try:
        spec = unpack_spec(packed)
    except UNDECODABLE as error:
        raise Damaged([damage_of(task_id, packed_status, packed, error)]) from None
    if spec.idempotency_key is not None:
        connection.execute(statement("change.key_free"), (spec.queue, spec.idempotency_key, task_id))
    _erase(connection, task_id, number)


def _erase(connection: sqlite3.Connection, task_id: TaskId, number: int) -> None:
    connection.execute(statement("change.task_remove"), (number,))
    connection.execute(statement("change.directory_remove"), (task_id,))
    connection.execute(statement("change.status_remove"), (number,))


def status_row(number: int, task_id: TaskId, lane: int, status: Status) -> tuple[object, ...]:
    """How a task stands, as it is stored."""
    return number, task_id, lane, _WORDS[status.state], status.alarm, pack(status)


def put(connection: sqlite3.Connection, kind: str, name: str, value: bytes, expected: int | None) -> int | None:
    row = connection.execute(statement("records.version"), (kind, name)).fetchone()
    version = int(row[0]) if row else 0
    if expected is not None and expected != version:
        return None
    connection.execute(statement("records.put"), (kind, name, value, version + 1))
    return version + 1


def drop(connection: sqlite3.Connection, kind: str, name: str, expected: int | None) -> bool:
    return connection.execute(statement("records.drop"), (kind, name, expected)).rowcount == 1
