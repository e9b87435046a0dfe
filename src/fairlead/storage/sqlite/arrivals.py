"""Tasks that arrive one at a time: each is one row at first, and many of them are filed together.

A task has a place in its lane, a count there and an entry in the directory, each on a page of its own that a commit
would have to write. So a single task that arrives is only stored. Whoever changes anything else files first all that
have arrived, in the same transaction; whoever reads looks at them too, and they are few.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from fairlead.core.task import QUEUED, Task
from fairlead.storage.sqlite.database import statement
from fairlead.storage.sqlite.lanes import joined, move_totals
from fairlead.storage.values import Added, Receipt

UNFILED: Final = 64
"""How many tasks may have arrived without being filed."""

ADDED: Final = Added()

_encode_into: Final = msgspec.msgpack.Encoder().encode_into


def pack(value: Struct) -> bytearray:
    """A value as it is stored. SQLite's module takes a `bytearray` as it is; of `bytes` it asks what they would be."""
    packed = bytearray()
    _encode_into(value, packed)
    return packed


def may_arrive(tasks: Sequence[Task], bounds: Mapping[str, int]) -> bool:
    """Whether this is one task that is ready and of which nothing else is to be written or looked at."""
    if len(tasks) != 1 or bounds:
        return False
    (task,) = tasks
    spec = task.spec
    return (
        task.status.state is QUEUED
        and spec.idempotency_key is None
        and spec.concurrency_key is None
        and spec.after is None
        and spec.fair is None
    )


def arrive(connection: sqlite3.Connection, task: Task) -> tuple[list[Receipt], dict[str, int]] | None:
    """Add a task that may arrive, by one statement; None if its lane is new, its id is taken or it is time to file."""
    spec, status = task.spec, task.status
    lane = (spec.queue, spec.type, joined(spec.requires), int(status.priority))
    row = (spec.id, status.ready_at, pack(spec), pack(status), *lane, UNFILED)
    return ([ADDED], {spec.queue: 1}) if connection.execute(statement("arrivals.add"), row).rowcount == 1 else None


def file(connection: sqlite3.Connection) -> int:
    """File what has arrived; the number up to which all is filed, above which none is in use."""
    filed, last = connection.execute(statement("arrivals.filed")).fetchone()
    if last is None or last <= filed:
        return int(filed)
    lanes = connection.execute(statement("arrivals.lanes"), (filed,)).fetchall()
    connection.executemany(statement("arrivals.lane_fill"), [row[:2] for row in lanes])
    move_totals(connection, [(row[0], 0, row[1]) for row in lanes])
    # Mostly they come behind what waits.
    first = [place for _, *place, bound, bound_id in lanes if bound is None or (bound, bound_id) > tuple(place[1:])]
    if first:
        connection.executemany(statement("lanes.head_lower"), first)
    enter(connection, filed, last)
    return int(last)


def enter(connection: sqlite3.Connection, filed: int, last: int) -> None:
    """Enter tasks above the number that is filed in the directory and in their lanes, which have counted them."""
    connection.execute(statement("arrivals.directory_fill"), (filed,))
    connection.execute(statement("arrivals.ready_fill"), (filed,))
    connection.execute(statement("arrivals.filed_set"), (last,))
