"""Claiming tasks: the best of the lanes, read as far as the claim asks, inside a transaction of someone else's."""

from __future__ import annotations

import sqlite3
from typing import Final

from fairlead.core.task import EXECUTING, QUEUED, Status, Task
from fairlead.storage.lane_merge import merge
from fairlead.storage.quarantine import UNDECODABLE, Damage, Damaged
from fairlead.storage.sqlite import arrivals, concurrency_keys
from fairlead.storage.sqlite.arrivals import pack
from fairlead.storage.sqlite.database import Connection
from fairlead.storage.sqlite.lanes import LaneChanges, counts_of, ready_lanes
from fairlead.storage.sqlite.read import damage_of, unpack_spec, unpack_status
from fairlead.storage.sqlite.statements import statement, write_rows
from fairlead.storage.steps import claimed, host_time
from fairlead.storage.values import (
    Claim,
)

_LANE_STATEMENTS: Final = 128

_EXECUTING: Final = EXECUTING.value


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
    lanes_changed = LaneChanges(connection)
    for lane, count in counts_of([lane for _, _, _, lane, _, _ in taken]).items():
        lanes_changed.leave(lane, QUEUED, count)
        lanes_changed.enter(lane, EXECUTING, count)
    lanes_changed.write()
    return tasks


def _heads(connection: sqlite3.Connection, lane: int) -> sqlite3.Cursor:
    """The ready tasks of a lane, read only as far as the claim asks."""
    # A prepared statement serves one open cursor; the comment gives each lane a statement of its own in the cache.
    return connection.execute(f"{statement('claim.heads')} -- {lane % _LANE_STATEMENTS}", (lane,))
