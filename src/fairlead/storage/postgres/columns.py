"""Tasks as columns: the parameters of the statements that store and change them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from fairlead.core.task import Priority, Progress, Spec, State, Status, Task
from fairlead.storage.postgres import binary_arrays
from fairlead.storage.postgres.binary_arrays import Packed
from fairlead.storage.postgres.rows import CODES, rest_of

_encode: Final = msgspec.msgpack.Encoder().encode

_Route: TypeAlias = tuple[str, str, tuple[str, ...], str]
"""A queue, a type, capabilities, and in which lanes its tasks are: those with concurrency keys, those that take turns,
or the others."""
_KEYED: Final = "keyed"
_FAIR: Final = "fair"


def packed_rest(status: Status) -> bytes:
    """The part of a status that only passes through."""
    return _encode(rest_of(status))


def packed_progress(progress: Progress | None) -> bytes | None:
    return None if progress is None else _encode(progress)


class RouteNames:
    """The names of routes, remembered: a process sees few of them, many times."""

    def __init__(self) -> None:
        self._names: dict[_Route, str] = {}

    def of(self, spec: Spec) -> str:
        """The name of the route a task takes."""
        return self._name(_route_of(spec))

    def among(self, specs: Iterable[Spec]) -> tuple[list[str], list[int]]:
        """The names of the routes that tasks take, each once, and for each task the place of its own, from 1."""
        seen: dict[_Route, int] = {}
        places = [seen.setdefault(_route_of(spec), len(seen) + 1) for spec in specs]
        return [self._name(route) for route in seen], places

    def _name(self, route: _Route) -> str:
        name = self._names.get(route)
        if name is None:
            if len(self._names) > 10_000:
                self._names.clear()
            queue, type_, requires, lanes = route
            # A JSON text, so that no two routes share one.
            parts = (queue, type_, requires, lanes) if lanes else (queue, type_, requires)
            name = self._names[route] = json.dumps(parts, separators=(",", ":"))
        return name


def _route_of(spec: Spec) -> _Route:
    lanes = _KEYED if spec.concurrency_key is not None else "" if spec.fair is None else _FAIR
    return spec.queue, spec.type, spec.requires, lanes


def route_columns(names: Sequence[str]) -> tuple[list[str], list[str], list[str], list[bool], list[bool]]:
    """The columns of add.routes after the names."""
    parts = [json.loads(name) for name in names]
    return (
        [queue for queue, *_ in parts],
        [type_ for _, type_, *_ in parts],
        [json.dumps(requires) for _, _, requires, *_ in parts],
        [_KEYED in lanes for _, _, _, *lanes in parts],
        [_FAIR in lanes for _, _, _, *lanes in parts],
    )


def key_of(spec: Spec) -> bytes | None:
    """The idempotency key as the database has it."""
    return None if spec.idempotency_key is None else spec.idempotency_key.encode()


def concurrency_key_of(spec: Spec) -> bytes | None:
    """The concurrency key as the database has it."""
    return None if spec.concurrency_key is None else spec.concurrency_key.encode()


def fair_key_of(queue: str, key: str) -> bytes:
    """A fair key of a queue as the database has it: no name of a queue has a byte of 0."""
    return b"%b\0%b" % (queue.encode(), key.encode())


def _turn_columns(tasks: Sequence[Task]) -> list[list[Any]]:
    """Whose turns tasks take, how far apart these are, and which each has."""
    fair = [task.spec.fair if task.spec.takes_turns else None for task in tasks]
    if fair.count(None) == len(fair):
        return [[], [], []]
    return [
        [None if key is None else fair_key_of(task.spec.queue, key.key) for task, key in zip(tasks, fair, strict=True)],
        [None if key is None else key.step for key in fair],
        [task.status.turn or None for task in tasks],
    ]


def columns_of(tasks: Sequence[Task], places: Sequence[int]) -> list[list[Any]]:
    """The columns of add.tasks from $4 on, as lists; a column of defaults is empty.

    Those of add.new from $3 on are the same but for the last two.
    """
    specs = [task.spec for task in tasks]
    statuses = [task.status for task in tasks]
    times = 1
    if statuses.count(statuses[0]) == len(statuses):
        # Tasks of one call mostly begin alike: one value then makes a column.
        statuses, times = statuses[:1], len(statuses)
    return [
        [spec.id for spec in specs],
        list(places),
        [status.priority for status in statuses] * times,
        [CODES[status.state] for status in statuses] * times,
        [status.ready_at for status in statuses] * times,
        [status.timeout for status in statuses] * times,
        _unless_all([status.alarm for status in statuses], None) * times,
        [spec.created_at for spec in specs],
        [_encode(spec) for spec in specs],
        [packed_rest(status) for status in statuses] * times,
        _unless_all([status.version for status in statuses], 1) * times,
        _unless_all([status.beats for status in statuses], 0) * times,
        _unless_all([status.attempts for status in statuses], 0) * times,
        _unless_all([status.started_at for status in statuses], None) * times,
        _unless_all([status.settled for status in statuses], None) * times,
        _unless_all([packed_progress(status.progress) for status in statuses], None) * times,
        _unless_all([json.dumps(spec.tags) if spec.tags else None for spec in specs], None),
        _unless_all([status.cancel_asked for status in statuses], False) * times,
        _unless_all([concurrency_key_of(spec) for spec in specs], None),
        _unless_all([status.pending or None for status in statuses], None) * times,
        _unless_all([status.unmet or None for status in statuses], None) * times,
        *_turn_columns(tasks),
        _unless_all([key_of(spec) for spec in specs], None),
        _unless_all([spec.key_until for spec in specs], None),
    ]


def is_plain(task: Task) -> bool:
    """Whether a task is as add.one expects it."""
    spec, status = task.spec, task.status
    bare = spec.idempotency_key is None and spec.concurrency_key is None and not spec.tags and spec.after is None
    return bare and spec.fair is None and status == _plain(status)


def _plain(status: Status) -> Status:
    """The status of a submit with the same state, priority, times and reason."""
    return Status(
        state=status.state,
        priority=status.priority,
        ready_at=status.ready_at,
        timeout=status.timeout,
        alarm=status.alarm,
        reason=status.reason,
        ended_at=status.ended_at,
    )


def plain_columns(task: Task, names: RouteNames) -> tuple[Any, ...]:
    """The parameters of add.one from $2 on."""
    spec, status = task.spec, task.status
    return (
        names.of(spec),
        UUID(spec.id),
        int(status.priority),
        CODES[status.state],
        status.ready_at,
        status.timeout,
        status.alarm,
        spec.created_at,
        _encode(spec),
        packed_rest(status),
    )


ADD_PACKERS: Final[tuple[Callable[[list[Any]], Packed], ...]] = (
    binary_arrays.uuids,
    binary_arrays.int4s,
    binary_arrays.int2s,
    binary_arrays.int2s,
    binary_arrays.int8s,
    binary_arrays.int8s,
    binary_arrays.int8s,
    binary_arrays.int8s,
    binary_arrays.byteas,
    binary_arrays.byteas,
    binary_arrays.int8s,
    binary_arrays.int8s,
    binary_arrays.int8s,
    binary_arrays.int8s,
    binary_arrays.texts,
    binary_arrays.byteas,
    binary_arrays.texts,
    binary_arrays.booleans,
    binary_arrays.byteas,
    binary_arrays.int8s,
    binary_arrays.int8s,
    binary_arrays.byteas,
    binary_arrays.int4s,
    binary_arrays.int8s,
    binary_arrays.byteas,
    binary_arrays.int8s,
)
"""How to pack each of `columns_of`."""
KEY_COLUMNS: Final = 2
"""How many of them, the last, are about idempotency keys."""
TURN_COLUMNS: Final = 3
"""How many before those are about turns."""


def status_columns(statuses: Sequence[Status | None]) -> list[Packed]:
    """The columns of change.settle from $4 and of change.apply from $7 on; None for a task that is to be removed."""
    given = [status or _REMOVED for status in statuses]
    return [
        binary_arrays.int2s([status.priority for status in given]),
        binary_arrays.int2s([CODES[status.state] for status in given]),
        binary_arrays.int8s([status.ready_at for status in given]),
        binary_arrays.int8s([status.timeout for status in given]),
        binary_arrays.int8s([status.version for status in given]),
        binary_arrays.int8s([status.beats for status in given]),
        binary_arrays.int8s([status.attempts for status in given]),
        binary_arrays.int8s([status.alarm for status in given]),
        binary_arrays.int8s([status.started_at for status in given]),
        binary_arrays.booleans([status.cancel_asked for status in given]),
        binary_arrays.texts([status.settled for status in given]),
        binary_arrays.byteas(_unless_all([packed_progress(status.progress) for status in given], None)),
        binary_arrays.byteas([packed_rest(status) for status in given]),
        binary_arrays.int8s(_unless_all([status.turn or None for status in given], None)),
    ]


def lease_columns(statuses: Sequence[Status | None]) -> list[Packed]:
    """The last columns of change.apply: the lease, for a change that leaves its holder with it; the waited for."""
    leases = [None if status is None else status.lease for status in statuses]
    given = [status or _REMOVED for status in statuses]
    return [
        binary_arrays.texts([None if lease is None else lease.token for lease in leases]),
        binary_arrays.texts([None if lease is None else lease.worker for lease in leases]),
        binary_arrays.int8s([None if lease is None else lease.until for lease in leases]),
        binary_arrays.int8s([status.pending or None for status in given]),
        binary_arrays.int8s([status.unmet or None for status in given]),
    ]


_REMOVED: Final = Status(state=State.CANCELLED, priority=Priority.MEDIUM, ready_at=0, timeout=0)
"""Fills the columns of a task that is to be removed; never stored."""


def _unless_all(values: list[Any], default: object) -> list[Any]:
    return [] if values.count(default) == len(values) else values
