"""Tasks as rows of the journal and rows as tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from fairlead.core.health.quarantine import fault_of
from fairlead.core.task import Spec, Status, Task
from fairlead.storage.postgres import binary_arrays
from fairlead.storage.postgres.binary_arrays import Packed
from fairlead.storage.postgres.rows import CODES, task_id_of
from fairlead.storage.quarantine import UNDECODABLE, Damage

SEARCHED_BYTES: Final = 16 * 1024
"""Parameters larger than this are kept, but cannot be searched: an index of them would dwarf the tasks."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_spec: Final = msgspec.msgpack.Decoder(Spec).decode
_decode_status: Final = msgspec.msgpack.Decoder(Status).decode


def tasks_in(rows: Iterable[Sequence[Any]]) -> tuple[list[Task], list[Damage]]:
    """The tasks in rows that begin with spec, status and id, and what is no task among them."""
    tasks: list[Task] = []
    met: list[Damage] = []
    for spec, status, task_id, *_ in rows:
        try:
            tasks.append(Task(_decode_spec(spec), _decode_status(status)))
        except UNDECODABLE as error:
            parts = {"spec": bytes(spec), "status": bytes(status)}
            met.append(Damage(task_id_of(task_id), parts, str(error), fault_of(parts["status"])))
    return tasks, met


def requires_in(spec: bytes) -> tuple[str, ...] | None:
    """What a task requires, by its packed spec; None if that cannot be decoded."""
    try:
        return _decode_spec(spec).requires
    except UNDECODABLE:
        return None


def asked_columns(tasks: Sequence[Task]) -> list[Packed]:
    """The columns of `task`."""
    specs = [task.spec for task in tasks]
    return [
        binary_arrays.uuids([spec.id for spec in specs]),
        binary_arrays.int8s([spec.created_at for spec in specs]),
        binary_arrays.texts([spec.queue for spec in specs]),
        binary_arrays.texts([spec.type for spec in specs]),
        binary_arrays.texts([json.dumps(spec.tags) if spec.tags else None for spec in specs]),
        binary_arrays.byteas([spec.parameters if _is_searched(spec) else None for spec in specs]),
        binary_arrays.byteas([_encode(spec) for spec in specs]),
    ]


def status_columns(tasks: Sequence[Task]) -> list[Packed]:
    """The columns of `status` after the id."""
    statuses = [task.status for task in tasks]
    return [
        binary_arrays.int8s([status.version for status in statuses]),
        binary_arrays.int8s([status.beats for status in statuses]),
        binary_arrays.int8s([status.ended_at for status in statuses]),
        binary_arrays.int8s([status.alarm for status in statuses]),
        binary_arrays.int8s([task.spec.key_until for task in tasks]),
        binary_arrays.int2s([CODES[status.state] for status in statuses]),
        binary_arrays.int2s([status.priority for status in statuses]),
        binary_arrays.texts([_worker(status) for status in statuses]),
        binary_arrays.texts([_error(status) for status in statuses]),
        binary_arrays.byteas([_encode(status) for status in statuses]),
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
