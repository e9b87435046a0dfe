"""Claiming tasks: the best of the lanes, read as far as the claim asks, inside a transaction of someone else's."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from fairlead.core.queues.fairness import LineTurns
from fairlead.core.task import EXECUTING, QUEUED, Lane, Priority, Status, Task
from fairlead.storage.claim_limits import choose_fair
from fairlead.storage.lane_merge import Head, merge
from fairlead.storage.lane_search import FEW, Bound, Front
from fairlead.storage.quarantine import UNDECODABLE, Damage, Damaged
from fairlead.storage.sqlite import arrivals, concurrency_keys, turns
from fairlead.storage.sqlite.arrivals import pack
from fairlead.storage.sqlite.database import Connection, statement, write_rows
from fairlead.storage.sqlite.lane_heads import FewLanes, LaneRow, ManyLanes, few_lanes, lanes_of_types
from fairlead.storage.sqlite.lanes import LaneChanges, counts_of
from fairlead.storage.sqlite.read import damage_of, unpack_spec, unpack_status
from fairlead.storage.steps import claimed, host_time
from fairlead.storage.turns import serve_in_turn
from fairlead.storage.values import Claim

_LANE_STATEMENTS: Final = 128

_UNASKED: Final = 15
"""How many claims by the index follow one another before it is asked whether there are few lanes by now."""

_EXECUTING: Final = EXECUTING.value


def claim(connection: Connection, request: Claim, few: int = FEW) -> list[Task]:
    """A claim looks at each lane and queue where there are no more of them than `few`."""
    arrivals.file(connection)
    request = request.dated(host_time())
    any_fair = concurrency_keys.look(connection, request, few)
    lanes = _few_lanes(connection, request, few)
    if lanes is not None and any(row.lane.fair for row in lanes):
        for queue in {row.lane.queue for row in lanes if row.lane.fair}:
            turns.mend(connection, queue)
        lanes, any_fair = [row for row in lanes if not row.lane.fair], True
    fair = turns.FairLanes(connection, request, few) if any_fair else None
    if lanes is None or request.limited or (fair is not None and fair.any) or any(row.lane.keyed for row in lanes):
        choice = _choose(connection, request, lanes, few, fair)
    else:
        choice = _merge(connection, request, lanes)
    tasks = _store(connection, request, choice)
    lanes_changed = LaneChanges(connection)
    for lane, count in counts_of([lane for _, _, _, lane, _, _ in choice.taken]).items():
        lanes_changed.leave(lane, QUEUED, count)
        lanes_changed.enter(lane, EXECUTING, count)
    for lane, head in choice.heads.items():
        lanes_changed.set_head(lane, head)
    lanes_changed.write()
    return tasks


def _few_lanes(connection: Connection, request: Claim, few: int) -> list[LaneRow] | None:
    """The lanes, if they are few, or those of the few types asked for; where they were many just now, only these."""
    if connection.many_lanes:
        connection.many_lanes -= 1
        return lanes_of_types(connection, request, few)
    lanes = few_lanes(connection, request, few)
    if lanes is None:
        connection.many_lanes = _UNASKED
        return lanes_of_types(connection, request, few)
    return lanes


class _Choice(Struct):
    """What a claim takes, and what it has learned of lanes."""

    taken: list[Head]
    """When each wait began, and id, number, lane, packed status and packed spec."""
    heads: dict[int, Bound | None] = {}
    """The heads that lanes have then, as far as they are to be stored."""
    keyed: frozenset[int] = frozenset()
    """The lanes of keyed tasks: what was taken of them is no longer in line."""
    fair: turns.FairLanes | None = None
    """The lanes of fair tasks: what is taken of them need not be in front."""
    reached: Mapping[tuple[str, Priority], LineTurns] = {}
    """How far the turns of fair tasks have come."""


def _merge(connection: Connection, request: Claim, rows: list[LaneRow]) -> _Choice:
    """Of few lanes without limits."""
    plain = [(row.lane, _heads(connection, row.number)) for row in rows if request.admits(row.lane)]
    taken = merge(request, plain)
    # A cursor left open would keep reading what is written here.
    for _, heads in plain:
        heads.close()
    return _Choice(taken)


def _choose(
    connection: Connection,
    request: Claim,
    rows: list[LaneRow] | None,
    few: int,
    fair: turns.FairLanes | None,
) -> _Choice:
    """Of any lanes, under limits and by turns."""
    gate = concurrency_keys.gate_of(connection, request)
    keyed: set[int] = set()

    def open_lane(number: int, lane: Lane) -> Front:
        if lane.keyed:
            keyed.add(number)
        return concurrency_keys.front_of(connection, request, number, lane)

    index = (
        ManyLanes(connection, request, gate, open_lane, few)
        if rows is None
        else FewLanes(connection, rows, request, gate, open_lane, few)
    )
    if fair is not None:
        index.first = fair.queues
    places, reached = _in_turn(request, index, fair) or choose_fair(request, index, gate, fair)
    heads = index.correct()
    if index.strays:
        turns.mend_strays(connection)
    concurrency_keys.keep_dues(connection, gate)
    numbers = json.dumps([place[2] for place in places])
    bodies = {number: body for number, *body in connection.execute(statement("claim.bodies"), (numbers,))}
    taken = [(*place[:4], *bodies[place[2]]) for place in places]
    return _Choice(taken, heads, frozenset(keyed), fair, reached)


def _in_turn(
    request: Claim, index: FewLanes | ManyLanes, fair: turns.FairLanes | None
) -> tuple[list[Head], dict[tuple[str, Priority], LineTurns]] | None:
    """What a claim takes of few lanes where age has no say; None where it may have, or where anything is limited."""
    if fair is None or isinstance(index, ManyLanes) or index.keyed or request.limited or len(request.queues) != 1:
        return None
    queue = request.queues[0].queue
    return serve_in_turn(request, index.lines(queue), index.open, fair.fair_lines(queue))


def _store(connection: Connection, request: Claim, choice: _Choice) -> list[Task]:
    """The tasks as they are once they are claimed, and are stored so."""
    tasks: list[Task] = []
    updates: list[tuple[object, ...]] = []
    last: dict[int, tuple[object, ...]] = {}
    fair: list[tuple[int, Task]] = []
    fair_lanes = {} if choice.fair is None else choice.fair.opened
    memory = connection.memory.current(connection)
    # Tasks that were submitted together stand alike, and then so do they once they are claimed.
    alike: dict[bytes, tuple[Status, bytearray]] = {}
    met: list[Damage] = []
    for ready_at, task_id, number, lane, packed_status, packed_spec in choice.taken:
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
        if lane in fair_lanes:
            fair.append((lane, task))
            memory[task_id] = number, lane, status, None
        elif lane not in choice.keyed:
            last[lane] = lane, ready_at, task_id
            memory[task_id] = number, lane, status, None
    if met:
        raise Damaged(met)
    write_rows(connection, "change.status_set", updates)
    # What is taken of a lane is its front; where that is one task of each, it is gone straight to.
    alone = len(last) == len(tasks)
    connection.executemany(statement("change.ready_remove" if alone else "claim.ready_take"), last.values())
    if choice.fair is not None:
        choice.fair.take(fair)
        given = turns.FairTurns(connection)
        for lane, task in fair:
            given.count_out(fair_lanes[lane][0].lane, task.spec.fair_key or "")
        given.reach(choice.reached)
        given.write()
    return tasks


def _heads(connection: sqlite3.Connection, lane: int) -> sqlite3.Cursor:
    """The ready tasks of a lane, read only as far as the claim asks."""
    # A prepared statement serves one open cursor; the comment gives each lane a statement of its own in the cache.
    return connection.execute(f"{statement('claim.heads')} -- {lane % _LANE_STATEMENTS}", (lane,))
