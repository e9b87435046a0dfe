"""Changing tasks: leases renewed, changes applied under their guards, and what cannot be decoded removed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from fairlead.core.health.quarantine import Fault, is_newer
from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant, Span
from fairlead.core.queues.fairness import comes_to_be_queued
from fairlead.core.task import COMPLETED, EXECUTING, QUEUED, Spec, State, Status
from fairlead.storage.quarantine import UNDECODABLE, Damage, Damaged, Removal
from fairlead.storage.sqlite import arrivals, concurrency_keys
from fairlead.storage.sqlite.arrivals import pack
from fairlead.storage.sqlite.database import Connection, Standing, statement, write_rows
from fairlead.storage.sqlite.lanes import LaneChanges, counts_of
from fairlead.storage.sqlite.read import damage_of, unpack_spec, unpack_status
from fairlead.storage.sqlite.turns import FairTurns
from fairlead.storage.steps import curtailed, ends, extended, host_time, judged, pulse, released
from fairlead.storage.values import (
    APPLIED,
    RELEASED,
    Beat,
    Change,
    Pulse,
    Seen,
    Verdict,
)

_Standing: TypeAlias = tuple[TaskId, int, int, Status, str | None]
"""A task's id, number and lane, how it stands, and its concurrency key."""

_ANY: Final = 1
"""A number, where any will do."""

_WORDS: Final = {state: state.value for state in State}
"""The states as plain strings, which SQLite's module takes as they are; of others it asks what they would be."""


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
            stored.set(change.id, change.status, before)
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
        self._lanes_changed = LaneChanges(connection)
        self._turns = FairTurns(connection)
        self.read(ids)

    def read(self, ids: Sequence[TaskId]) -> None:
        """Read how more tasks stand, as far as nobody remembers it."""
        unknown = [task_id for task_id in ids if task_id not in self._memory]
        if unknown:
            rows = self._connection.execute(statement("read.statuses_by_id"), (json.dumps(unknown),))
            for task_id, number, lane, status, key in standings(self._connection, rows):
                self._read[task_id] = number, lane, status, key

    def get(self, task_id: TaskId) -> Status | None:
        if task_id in self._changed:
            return self._changed[task_id]
        standing = self._memory.get(task_id) or self._read.get(task_id)
        return None if standing is None else standing[2]

    def set(self, task_id: TaskId, status: Status | None, before: Status | None = None) -> None:
        """Have a task stand like this; `before` is how it stood if it may come to be queued or wait no more."""
        if before is not None and (before.turn or (status is not None and status.state is QUEUED)):
            status = self._turned(task_id, before, status)
        self._changed[task_id] = status

    def _turned(self, task_id: TaskId, before: Status, after: Status | None) -> Status | None:
        """How a task stands with its turn, if it takes any."""
        number, first, _, key = self._memory.get(task_id) or self._read[task_id]
        lane = self._lanes_changed.with_priority(first, before.priority)
        if key is not None or not (named := self._lanes_changed.lane(lane)).fair:
            return after
        if comes_to_be_queued(after, before):
            self._turns.leave(lane, named, before.turn, task_id)
        if after is None or after.state is not QUEUED:
            return after
        if not comes_to_be_queued(before, after):
            self._turns.stay(lane, before.turn, task_id, after.ready_at)
            return replace(after, turn=before.turn)
        lane = self._lanes_changed.with_priority(first, after.priority)
        fair = _spec_of(self._connection, task_id, number).fair
        return (
            after
            if fair is None
            else self._turns.enter(lane, self._lanes_changed.lane(lane), fair, after, task_id, number)
        )

    def write(self) -> dict[str, int]:
        """Store what was made of them; how many tasks of each queue became ready."""
        lanes_changed = self._lanes_changed
        self._turns.write()
        moves: list[tuple[int, State, int, State | None]] = []
        updates: list[tuple[object, ...]] = []
        again: list[tuple[object, ...]] = []
        for task_id, status in self._changed.items():
            remembered = self._memory.pop(task_id, None)
            number, left, before, key = self._read[task_id] if remembered is None else remembered
            if status is not None and status.state is before.state is EXECUTING:
                key = None  # it keeps its place
            if key is not None:
                concurrency_keys.leave(self._connection, lanes_changed.lane(left).queue, left, key, before, task_id)
            if before.state is QUEUED:
                self._connection.execute(statement("change.ready_remove"), (left, before.ready_at, task_id))
            if status is None:
                _remove(self._connection, task_id, number)
                moves.append((left, before.state, left, None))
                continue
            lane = left if status.priority == before.priority else lanes_changed.with_priority(left, status.priority)
            moves.append((left, before.state, lane, status.state))
            updates.append(status_row(number, task_id, lane, status))
            if key is not None:
                concurrency_keys.enter(
                    self._connection, lanes_changed.lane(lane).queue, lane, key, status, task_id, number
                )
            if status.state is QUEUED:
                again.append((lane, status.ready_at, task_id, number))
                if key is None and not lanes_changed.lane(lane).fair:
                    lanes_changed.come(lane, (status.ready_at, task_id))
        write_rows(self._connection, "change.status_set", updates)
        write_rows(self._connection, "change.ready_add", again)
        for (left, was, lane, now), tasks in counts_of(moves).items():
            lanes_changed.leave(left, was, tasks)
            if now is not None:
                lanes_changed.enter(lane, now, tasks)
        return lanes_changed.write()


def standings(
    connection: sqlite3.Connection, rows: Iterable[tuple[TaskId, int, int, bytes, str | None]]
) -> Iterator[_Standing]:
    """How tasks stand, by rows of statuses_by_id; those that cannot be decoded are met instead.

    One of a newer format is as if it were not there: whoever knows that format sees to it.
    """
    met: list[Damage] = []
    lanes_changed = LaneChanges(connection)
    for task_id, number, lane, packed, key in rows:
        try:
            yield task_id, number, lane, unpack_status(packed), key
        except UNDECODABLE as error:
            spec, _ = connection.execute(statement("read.packed_by_number"), (number,)).fetchone()
            damage = damage_of(task_id, packed, spec, error)
            if damage.fault is Fault.DAMAGED or not is_newer(lanes_changed.lane(lane).requires):
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
    lanes_changed = LaneChanges(connection)
    if state is QUEUED and lanes_changed.lane(lane).fair:
        turns = FairTurns(connection)
        turns.leave(lane, lanes_changed.lane(lane), 0, damage.id)
        turns.write()
    if state is QUEUED:
        # When it became ready is in its status alone, and that cannot be decoded.
        connection.execute(statement("change.ready_forget"), (lane, damage.id))
    if key is not None:
        concurrency_keys.forget(connection, lanes_changed.lane(lane).queue, lane, key, state, damage.id)
    connection.execute(statement("change.key_forget"), (damage.id,))
    connection.execute(statement("change.dependents_forget"), (damage.id,))
    _erase(connection, damage.id, number)
    lanes_changed.leave(lane, state, 1)
    lanes_changed.write()
    if state.ended:
        return Removal.REMOVED, {}
    stored = _Statuses(connection, [])
    _count_end(connection, stored, Change(damage.id, Seen(0, 0), None))
    return Removal.REMOVED, stored.write()


def _spec_of(connection: sqlite3.Connection, task_id: TaskId, number: int) -> Spec:
    packed, packed_status = connection.execute(statement("read.packed_by_number"), (number,)).fetchone()
    try:
        return unpack_spec(packed)
    except UNDECODABLE as error:
        raise Damaged([damage_of(task_id, packed_status, packed, error)]) from None


def _remove(connection: sqlite3.Connection, task_id: TaskId, number: int) -> None:
    spec = _spec_of(connection, task_id, number)
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


def store_all(connection: Connection, changes: Sequence[Change]) -> None:
    """Store what changes would make of tasks, though the tasks are not there."""
    apply(connection, changes)
    for change in changes:
        if change.status is not None:
            status_row(_ANY, change.id, _ANY, change.status)
