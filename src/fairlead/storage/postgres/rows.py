"""Rows as tasks; `columns.py` has tasks as columns.

What a statement compares or changes by itself is a column. The spec is packed whole; of the status, `Rest` holds what
only passes through.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant, Span
from fairlead.core.task import Entry, Failure, Lease, Priority, Progress, Reason, Spec, State, Status, Task
from fairlead.storage.values import Claim

STATES: Final = tuple(State)
CODES: Final = {state: code for code, state in enumerate(STATES)}
"""The number of each state in the database. New states go at the end."""

COLUMNS: Final = (
    "t.spec, t.rest, t.state, t.priority, t.ready_at, t.timeout, t.version, t.beats, t.attempts, t.alarm, "
    "t.started_at, t.cancel_asked, t.settled, t.progress, t.token, t.worker, t.until, "
    "t.pending, t.unmet"
)
"""What `task_of` reads."""

CLAIMED: Final = (
    "t.spec, t.rest, t.priority, t.ready_at, t.timeout, t.version, t.beats, t.attempts, t.cancel_asked, t.settled, "
    "t.progress, t.pending, t.unmet"
)
"""What `claimed_tasks` reads: all but what a claim has just written, which its caller knows."""

_PRIORITIES: Final = tuple(Priority)

Row = tuple[Any, ...]


class Rest(Struct, frozen=True, array_like=True):
    """What of a status no statement looks at. Add fields at the end, with a default."""

    retries: int = 0
    crashes: int = 0
    ended_at: Instant | None = None
    reason: Reason = Reason.SUBMITTED
    failure: Failure | None = None
    result: bytes | None = None
    history: tuple[Entry, ...] = ()


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_spec: Final = msgspec.msgpack.Decoder(Spec).decode
_decode_rest: Final = msgspec.msgpack.Decoder(Rest).decode
_decode_progress: Final = msgspec.msgpack.Decoder(Progress).decode
_NEVER_TRIED: Final = _encode(Rest())
"""The rest of almost every task that is claimed."""


def task_of(row: Row) -> Task:
    """The task in a row of `COLUMNS`."""
    spec, rest, state, priority, ready_at, timeout, version, beats, attempts, alarm, started_at, *others = row
    cancel_asked, settled, progress, token, worker, until, pending, unmet = others
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
    return Task(_decode_spec(spec), _with_rest(status, rest, cancel_asked, settled, progress, pending, unmet))


def claimed_tasks(rows: Sequence[Row], claim: Claim) -> list[Task]:
    """The tasks that a claim took, from rows of something else and `CLAIMED`."""
    leases: dict[Span, Lease] = {}
    tasks: list[Task] = []
    for _, spec, rest, priority, ready_at, timeout, version, beats, attempts, *seldom in rows:
        lease = leases.get(timeout)
        if lease is None:
            until = claim.lease_end(timeout)
            lease = leases[timeout] = Lease(token=claim.token, worker=claim.worker, until=until)
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
            started_at=claim.now,
        )
        tasks.append(Task(_decode_spec(spec), _with_rest(status, rest, *seldom)))
    return tasks


def _with_rest(
    status: Status,
    packed: bytes,
    cancel_asked: bool,
    settled: str | None,
    progress: bytes | None,
    pending: int | None,
    unmet: int | None,
) -> Status:
    """A status with what is at its default in a task that was never tried."""
    if cancel_asked or settled or progress or pending or unmet:
        status = replace(
            status,
            cancel_asked=cancel_asked,
            settled=settled,
            progress=None if progress is None else _decode_progress(progress),
            pending=pending or 0,
            unmet=unmet or 0,
        )
    if packed == _NEVER_TRIED:
        return status
    rest = _decode_rest(packed)
    return replace(
        status,
        retries=rest.retries,
        crashes=rest.crashes,
        ended_at=rest.ended_at,
        reason=rest.reason,
        failure=rest.failure,
        result=rest.result,
        history=rest.history,
    )


def task_id_of(text: str) -> TaskId:
    """A task id as the database writes it."""
    return TaskId(text.replace("-", ""))
