"""How a task becomes bytes and back.

A value is a msgpack array [where the status starts, kind, idempotency key or nil, spec, status], so that Lua can find
and replace the status without a look at the spec. With a concurrency key, the third is an array of the idempotency key,
or '', and the concurrency key. The id is in the key's name and not repeated in the spec.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from fairlead.core.health.quarantine import Quarantined, fault_of
from fairlead.core.identity import TaskId
from fairlead.core.task import Spec, Status, Task
from fairlead.storage.quarantine import UNDECODABLE, Damage
from fairlead.storage.redis.keys import Kind

_encoder: Final = msgspec.msgpack.Encoder()
encode: Final = _encoder.encode
"""Anything as msgpack."""

_HEAD: Final = 1 + 5 + 9
"""Bytes up to the idempotency key: the array, a 32-bit offset, a kind of eight letters."""

_SPEC_ARRAY: Final = 1 if len(Spec.__struct_fields__) < 16 else 3
_ID: Final = 2 + 32
"""Bytes of an id in a spec: a one-byte length and its letters."""

_START: Final = b"\x95\xce"
"""An array of five, the first a 32-bit number."""

_VALUE: Final = "value"
"""What is kept of a task that is set aside: all of it is one value."""

_NOTHING: Final = b"\xc0"
_EMPTY_TEXT: Final = b"\xa0"


class _Stored(Struct, array_like=True):
    status_at: int
    kind: str
    keys: str | tuple[str, str] | None
    spec: Spec
    status: Status


_decode: Final = msgspec.msgpack.Decoder(_Stored).decode


def task_value(task: Task, kind: Kind) -> bytes:
    """A task's value."""
    spec = encode(task.spec)
    key = task.spec.idempotency_key
    concurrency_key = task.spec.concurrency_key
    if concurrency_key is not None:
        packed_key = encode((key or "", concurrency_key))
    else:
        packed_key = _NOTHING if key is None else encode(key)
    status_at = _HEAD + len(packed_key) + len(spec) - _ID + 1
    return b"".join(
        (
            _START,
            status_at.to_bytes(4, "big"),
            kind.mark,
            packed_key,
            spec[:_SPEC_ARRAY],
            _EMPTY_TEXT,
            spec[_SPEC_ARRAY + _ID :],
            encode(task.status),
        )
    )


_STATUS_AT: Final = slice(2, 6)
"""Where a value says where its status starts."""
_KIND: Final = slice(7, _HEAD)
_UNREADABLE: Final = "the server finds no status in its value"


def tasks_in(reply: Sequence[bytes]) -> tuple[list[Task], Sequence[Damage]]:
    """The tasks of ids and values in turn, as scripts answer them, and what is no task among them."""
    try:
        return [task_of(TaskId(reply[at].hex()), reply[at + 1]) for at in range(0, len(reply), 2)], ()
    except UNDECODABLE:
        return _sorted_out(reply)


def _sorted_out(reply: Sequence[bytes]) -> tuple[list[Task], list[Damage]]:
    tasks: list[Task] = []
    met: list[Damage] = []
    for at in range(0, len(reply), 2):
        # Behind the id of one that the script could not read is a mark.
        task_id, value = TaskId(reply[at][:16].hex()), reply[at + 1]
        try:
            if len(reply[at]) > 16:
                raise ValueError(_UNREADABLE)
            tasks.append(task_of(task_id, value))
        except UNDECODABLE as error:
            met.append(damage_of(task_id, value, error))
    return tasks, met


def damage_of(task_id: TaskId, value: bytes, error: Exception | None = None) -> Damage:
    """What was met in place of a task; without an error, by a script."""
    status_at = int.from_bytes(value[_STATUS_AT], "big") if value.startswith(_START) else 0
    return Damage(task_id, {_VALUE: value}, str(error or _UNREADABLE), fault_of(value[status_at:]))


def revived(quarantined: Quarantined) -> Task:
    """The task that was set aside; raises one of `UNDECODABLE`."""
    return task_of(TaskId(quarantined.name), quarantined.parts[_VALUE])


def value_in(damage: Damage) -> bytes:
    """The value that was met in place of a task."""
    return damage.parts[_VALUE]


def kind_in(value: bytes) -> bytes:
    """The kind that a value says it is of, if it begins as values do."""
    return value[_KIND]


def task_of(task_id: TaskId, value: bytes) -> Task:
    """The task of this id with this value."""
    stored = _decode(value)
    # The struct was made a line above and no one else has seen it: setting its id is still part of making it.
    force_setattr(stored.spec, "id", task_id)
    return Task(stored.spec, stored.status)
