"""Tasks as rows of the journal and rows as tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from fairlead.core.task import Spec, Status, Task
from fairlead.storage.postgres import arrays
from fairlead.storage.postgres.arrays import Packed
from fairlead.storage.postgres.rows import CODES

SEARCHED_BYTES: Final = 16 * 1024
"""Parameters larger than this are kept, but cannot be searched: an index of them would dwarf the tasks."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_spec: Final = msgspec.msgpack.Decoder(Spec).decode
_decode_status: Final = msgspec.msgpack.Decoder(Status).decode


def task_of(row: Sequence[Any]) -> Task:
    """The task in a row that begins with spec and status."""
    return Task(_decode_spec(row[0]), _decode_status(row[1]))


def asked_columns(tasks: Sequence[Task]) -> list[Packed]:
    """The columns of `task`."""
    specs = [task.spec for task in tasks]
    return [
        arrays.uuids([spec.id for spec in specs]),
        arrays.int8s([spec.created_at for spec in specs]),
        arrays.texts([spec.queue for spec in specs]),
        arrays.texts([spec.type for spec in specs]),
        arrays.texts([json.dumps(spec.tags) if spec.tags else None for spec in specs]),
        arrays.byteas([spec.parameters if _is_searched(spec) else None for spec in specs]),
        arrays.byteas([_encode(spec) for spec in specs]),
    ]


def status_columns(tasks: Sequence[Task]) -> list[Packed]:
    """The columns of `status` after the id."""
    statuses = [task.status for task in tasks]
    return [
        arrays.int8s([status.version for status in statuses]),
        arrays.int8s([status.beats for status in statuses]),
        arrays.int8s([status.ended_at for status in statuses]),
        arrays.int8s([status.alarm for status in statuses]),
        arrays.int8s([task.spec.key_until for task in tasks]),
        arrays.int2s([CODES[status.state] for status in statuses]),
        arrays.int2s([status.priority for status in statuses]),
        arrays.texts([_worker(status) for status in statuses]),
        arrays.texts([_error(status) for status in statuses]),
        arrays.byteas([_encode(status) for status in statuses]),
    ]


def _is_searched(spec: Spec) -> bool:
    return len(spec.parameters) <= SEARCHED_BYTES


def _worker(status: Status) -> str | None:
    """Who runs the task, or ran it last."""
    if status.lease is not None:
        return status.lease.worker
    return next((entry.worker for entry in reversed(status.history) if entry.worker is not None), None)


def _error(status: Status) -> str | None:
    """What went wrong last, as text that PostgreSQL can hold."""
    failure = status.failure
    return None if failure is None else f"{failure.type}: {failure.message}".replace("\0", "")
