"""Rows as tasks; `columns.py` has tasks as columns.

What a statement compares or changes by itself is a column. The spec is packed whole; of the status, `rest` holds what
only passes through.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import NODEFAULT, defstruct, structs
from msgspec.structs import replace

from fairlead.core.health.quarantine import Quarantined, fault_of
from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant, Span
from fairlead.core.task import Lease, Priority, Progress, Spec, State, Status, Task
from fairlead.storage.quarantine import UNDECODABLE, Damage
from fairlead.storage.values import Claim

STATES: Final = tuple(State)
CODES: Final = {state: code for code, state in enumerate(STATES)}
ENDED: Final = frozenset(code for state, code in CODES.items() if state.ended)
"""The number of each state in the database. New states go at the end."""

COLUMNS: Final = (
    "t.spec, t.rest, t.state, t.priority, t.ready_at, t.timeout, t.version, t.beats, t.attempts, t.alarm, "
    "t.started_at, t.cancel_asked, t.settled, t.progress, t.token, t.worker, t.until, "
    "t.pending, t.unmet, t.turn, t.id::text"
)
"""What `tasks_in` reads."""

CLAIMED: Final = (
    "t.started_at, t.spec, t.rest, t.priority, t.ready_at, t.timeout, t.version, t.beats, t.attempts, t.cancel_asked, "
    "t.settled, t.progress, t.pending, t.unmet, t.turn"
)
"""What `claimed_tasks` reads: all but what a claim has just written and its caller knows."""

_WIDTH: Final = COLUMNS.count(",") + 1
_PACKED: Final = {"spec": 0, "rest": 1, "progress": 13}
"""Where in a row of `COLUMNS` that is which is packed, by the part that is kept of it."""
_COLUMNS: Final = "columns"
"""The part that is kept of the others."""

_PRIORITIES: Final = tuple(Priority)

Row = tuple[Any, ...]


_COLUMN_FIELDS: Final = frozenset(
    {
        "state",
        "priority",
        "ready_at",
        "timeout",
        "version",
        "beats",
        "attempts",
        "alarm",
        "lease",
        "started_at",
        "cancel_asked",
        "progress",
        "settled",
        "pending",
        "unmet",
        "turn",
    }
)
"""The fields of a status that are columns."""

_REST: Final = tuple(field for field in structs.fields(Status) if field.name not in _COLUMN_FIELDS)


def _default(field: structs.FieldInfo) -> Any:
    made = field.default_factory is not NODEFAULT
    return msgspec.field(default_factory=field.default_factory) if made else field.default


Rest: Final = defstruct(
    "Rest", [(field.name, field.type, _default(field)) for field in _REST], frozen=True, array_like=True
)
"""What of a status no statement looks at: all its other fields, those of later versions at the end."""

rest_of: Final = attrgetter(*(field.name for field in _REST))
"""The fields of a status that `rest` holds, in their order."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_spec: Final = msgspec.msgpack.Decoder(Spec).decode
_decode_rest: Final = msgspec.msgpack.Decoder(Rest).decode
_decode_progress: Final = msgspec.msgpack.Decoder(Progress).decode
_NEVER_TRIED: Final = _encode(Rest())
"""The rest of almost every task that is claimed."""


def tasks_in(rows: Iterable[Row]) -> tuple[list[Task], Sequence[Damage]]:
    """The tasks in rows of `COLUMNS`, and what is no task among them."""
    tasks: list[Task] = []
    met: list[Damage] = []
    for row in rows:
        try:
            task = _task_of(row)
            if task.spec.id != task_id_of(row[-1]):
                raise ValueError(f"the id in its spec is {task.spec.id!r}")
        except UNDECODABLE as error:
            met.append(_damage_of(row, error))
        else:
            tasks.append(task)
    return tasks, met


def alarm_of(row: Row) -> tuple[Instant, TaskId]:
    """The alarm and the id in a row of `COLUMNS`."""
    return row[9] or 0, task_id_of(row[-1])


def _damage_of(row: Row, error: Exception) -> Damage:
    """What was met in place of a task: the parts that are packed, and its other columns packed together."""
    columns = [None if at in _PACKED.values() else value for at, value in enumerate(row)]
    parts = {name: bytes(row[at]) for name, at in _PACKED.items() if row[at] is not None}
    return Damage(task_id_of(row[-1]), parts | {_COLUMNS: _encode(columns)}, str(error), fault_of(bytes(row[1])))


def revived(quarantined: Quarantined) -> Task:
    """The task that was set aside; raises one of `UNDECODABLE`."""
    row: list[Any] = msgspec.msgpack.decode(quarantined.parts[_COLUMNS], type=list)
    while len(row) < _WIDTH:
        row.insert(-1, None)  # Set aside by an earlier version: columns of later ones come before the id.
    for name, at in _PACKED.items():
        row[at] = quarantined.parts.get(name)
    return _task_of(tuple(row))


def packed_parts(damage: Damage) -> tuple[bytes | None, ...]:
    """The columns that cannot be decoded: spec, rest and progress."""
    return tuple(damage.parts.get(name) for name in _PACKED)


def _task_of(row: Row) -> Task:
    """The task in a row of `COLUMNS`."""
    spec, rest, state, priority, ready_at, timeout, version, beats, attempts, alarm, started_at, *others = row
    cancel_asked, settled, progress, token, worker, until, pending, unmet, turn, _ = others
    status = Status(
        state=STATES[state],
        priority=_PRIORITIES[priority],
        ready_at=ready_at,
        timeout=timeout,
        version=version,
        beats=beats,
        attempts=attempts,
        alarm=alarm,
        lease=None if token is None else Lease(token=token, worker=worker, until=until),
        started_at=started_at,
    )
    return Task(_decode_spec(spec), _with_rest(status, rest, cancel_asked, settled, progress, pending, unmet, turn))


def claimed_tasks(rows: Sequence[Row], claim: Claim, spoilt: list[Exception]) -> list[Task]:
    """The tasks that a claim took, from rows of something else and `CLAIMED`; why not others, in `spoilt`."""
    leases: dict[Span, Lease] = {}
    tasks: list[Task] = []
    for _, started_at, spec, rest, priority, ready_at, timeout, version, beats, attempts, *seldom in rows:
        lease = leases.get(timeout)
        if lease is None:
            until = claim.lease_end(timeout, started_at)
            lease = leases[timeout] = Lease(token=claim.token, worker=claim.worker, until=until)
        try:
            status = Status(
                state=State.EXECUTING,
                priority=_PRIORITIES[priority],
                ready_at=ready_at,
                timeout=timeout,
                version=version,
                beats=beats,
                attempts=attempts,
                alarm=lease.until,
                lease=lease,
                started_at=started_at,
            )
            tasks.append(Task(_decode_spec(spec), _with_rest(status, rest, *seldom)))
        except UNDECODABLE as error:
            spoilt.append(error)
    return tasks


def _with_rest(
    status: Status,
    packed: bytes,
    cancel_asked: bool,
    settled: str | None,
    progress: bytes | None,
    pending: int | None,
    unmet: int | None,
    turn: int | None,
) -> Status:
    """A status with what is at its default in a task that was never tried."""
    if cancel_asked or settled or progress or pending or unmet or turn:
        status = replace(
            status,
            cancel_asked=cancel_asked,
            settled=settled,
            progress=None if progress is None else _decode_progress(progress),
            pending=pending or 0,
            unmet=unmet or 0,
            turn=turn or 0,
        )
    if packed == _NEVER_TRIED:
        return status
    return replace(status, **structs.asdict(_decode_rest(packed)))


def task_id_of(text: str) -> TaskId:
    """A task id as the database writes it."""
    return TaskId(text.replace("-", ""))
