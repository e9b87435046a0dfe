"""Tasks as rows of the journal and rows as tasks, and the statements that read, write and search them.

A search is a filter that becomes conditions with their values written out. The values are in the text, not beside it,
because the best plan depends on them: a rare type is found by its index, a common one by walking from the newest task.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct
from psycopg import sql

from fairlead.core.health.quarantine import fault_of
from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.task import Spec, State, Status, Task
from fairlead.storage.postgres import binary_arrays
from fairlead.storage.postgres.binary_arrays import Packed
from fairlead.storage.postgres.rows import CODES, task_id_of
from fairlead.storage.postgres.statements import Statement
from fairlead.storage.quarantine import UNDECODABLE, Damage
from fairlead.storage.sql_files import statements_in
from fairlead.storage.values import Filter

_read: Final = statements_in(Path(__file__).with_name("sql"))

_PREPARED: Final = frozenset({"change.add", "change.update", "read.get", "read.versions", "read.live"})
"""The statements worth a plan of their own in every session."""


class Statements:
    """All statements of one schema."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._made: dict[tuple[str, ...], Statement] = {}

    def __getitem__(self, name: str) -> Statement:
        return self.filled(name)

    def filled(self, name: str, **words: str) -> Statement:
        """A statement with words of ours in its gaps."""
        key = (name, *words.values())
        statement = self._made.get(key)
        if statement is None:
            statement = self._made[key] = Statement(self.text(name, **words), prepared=name in _PREPARED)
        return statement

    def text(self, name: str, **words: str) -> str:
        """The text of a statement, for this schema."""
        text = self.fitted(_read(name))
        for gap, word in words.items():
            text = text.replace(f"{{{gap}}}", word)
        return text

    def fitted(self, text: str) -> str:
        """A text, for this schema."""
        return text.replace("{schema}", f'"{self._schema}"')


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


class Search(Struct, frozen=True, kw_only=True):
    """What only a journal can be asked for, beyond a filter; an empty field asks for nothing in particular."""

    matching: Filter = Filter()
    ran_by: str | None = None
    """The worker that runs the task, or ran it last."""
    error: str | None = None
    """Words that all are in what went wrong last, in any case and order."""
    parameters: bytes | None = None
    """A JSON object that the task's parameters contain."""
    ended_from: Instant | None = None
    ended_before: Instant | None = None


def searching(
    statements: Statements, search: Search, limit: int, newest_first: bool, after: TaskId | None
) -> Statement:
    """The statement that finds one page."""
    order, beyond = ("DESC", "<") if newest_first else ("ASC", ">")
    conditions = _of_filter(search.matching) + _of_search(search)
    # The side that the order is taken from is the one whose index can be walked; both have the same ids.
    side = "s" if any(condition.startswith("s.") for condition in conditions) or not conditions else "t"
    if after is not None:
        # Said of both: the planner knows that both ids are equal, but not what is beyond which.
        conditions += [f"{table}.id {beyond} {_text(after)}::uuid" for table in ("s", "t")]
    text = statements.text(
        "read.find", side=side, order=order, limit=str(int(limit)), conditions=" AND ".join(conditions) or "true"
    )
    return Statement(text, prepared=False)


def _of_filter(matching: Filter) -> list[str]:
    conditions: list[str] = []
    states = matching.states
    if matching.worker is not None:
        # Only an executing task has a holder.
        states = frozenset({State.EXECUTING}) & (states or {State.EXECUTING})
        conditions.append(f"s.worker = {_text(matching.worker)}" if states else "false")
    if len(states) == 1:
        conditions.append(f"s.state = {CODES[next(iter(states))]}")
    elif states:
        conditions.append(f"s.state IN ({', '.join(str(CODES[state]) for state in sorted(states))})")
    if matching.priority is not None:
        conditions.append(f"s.priority = {int(matching.priority)}")
    if matching.queue is not None:
        conditions.append(f"t.queue = {_text(matching.queue)}")
    if matching.type is not None:
        conditions.append(f"t.type = {_text(matching.type)}")
    if matching.tag is not None:
        conditions.append(f"t.tags @> {_text(json.dumps([matching.tag]))}::jsonb")
    if matching.created_from is not None:
        conditions.append(f"t.created_at >= {int(matching.created_from)}")
    if matching.created_before is not None:
        conditions.append(f"t.created_at < {int(matching.created_before)}")
    return conditions


def _of_search(search: Search) -> list[str]:
    conditions: list[str] = []
    if search.ran_by is not None:
        conditions.append(f"s.worker = {_text(search.ran_by)}")
    if search.error is not None:
        words = _text(search.error.replace("\0", ""))
        conditions.append(f"s.words @@ plainto_tsquery('simple', {words})")
    if search.parameters is not None:
        conditions.append(f"t.parameters @> {_text(search.parameters.decode())}::jsonb")
    if search.ended_from is not None:
        conditions.append(f"s.ended_at >= {int(search.ended_from)}")
    if search.ended_before is not None:
        conditions.append(f"s.ended_at < {int(search.ended_before)}")
    return conditions


def _text(word: str) -> str:
    return sql.Literal(word.replace("\0", "")).as_string(None)
