"""Adding tasks inside a transaction of the caller's own: they exist if and only if that commits.

The caller's connection may be of any driver, so what is given here is a text and plain values, for the driver to send.
Keys and ids are checked inside the same statement. A bound cannot be: its lock would be held until the caller commits.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from fairlead.core.errors import InvalidTask
from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.task import Task
from fairlead.storage.postgres.add import named_columns
from fairlead.storage.postgres.columns import RouteNames, route_columns
from fairlead.storage.postgres.rows import task_id_of
from fairlead.storage.postgres.statements import Statements
from fairlead.storage.postgres.url import parse

_PLACEHOLDER: Final = re.compile(r"\$(\d+)")


class ParameterStyle(enum.Enum):
    """How a driver wants parameters written."""

    NUMBERED = "$1"
    """asyncpg, and psycopg's raw cursors."""
    FORMAT = "%s"
    """psycopg, and SQLAlchemy's `exec_driver_sql` over it."""


class Written(Struct, frozen=True):
    """A statement for a caller's own connection."""

    text: str
    parameters: tuple[Any, ...]


class Addition(Struct, frozen=True):
    """What to run, in order, on the caller's connection; the last one's only row goes to `refused_by`."""

    routes: Written
    tasks: Written


def addition(url: str, tasks: Sequence[Task], *, now: Instant, style: ParameterStyle) -> Addition:
    """The statements that add these tasks; no two of them may share an id or a key."""
    keys = [(task.spec.queue, task.spec.idempotency_key) for task in tasks if task.spec.idempotency_key is not None]
    if len({task.id for task in tasks}) < len(tasks) or len(set(keys)) < len(keys):
        raise InvalidTask("idempotency_key", "two tasks of one transactional submit share a key; submit them in turn")
    if any(task.spec.after is not None for task in tasks):
        raise InvalidTask(
            "after", "a task of a transactional submit cannot wait for others; submit it after the commit"
        )
    channel, statements = _place(url)
    ordered = sorted(tasks, key=lambda task: task.id)
    names, columns = named_columns(ordered, RouteNames())
    columns[0] = [UUID(task_id) for task_id in columns[0]]
    columns[2] = [int(priority) for priority in columns[2]]
    routes = sorted(names)
    return Addition(
        _written(statements.text("add.routes"), (routes, *route_columns(routes)), style),
        _written(statements.text("add.tasks", late=True), (now, channel, names, *columns), style),
    )


@lru_cache(maxsize=16)
def _place(url: str) -> tuple[str, Statements]:
    """The channel on which a store tells of tasks, and its statements; to read a URL costs more than to submit."""
    address = parse(url)
    return address.channel, Statements(address.schema)


def refused_by(row: Sequence[Any]) -> frozenset[TaskId]:
    """The tasks that were not added, because their id or their key is known, from the row that `tasks` answered."""
    return frozenset(task_id_of(str(text)) for text in row[2] or ())


def _written(text: str, parameters: tuple[Any, ...], style: ParameterStyle) -> Written:
    match style:
        case ParameterStyle.NUMBERED:
            return Written(text, parameters)
        case ParameterStyle.FORMAT:
            # A parameter that is named twice is sent twice: the style knows no numbers.
            order = [int(number) - 1 for number in _PLACEHOLDER.findall(text)]
            return Written(_PLACEHOLDER.sub("%s", text.replace("%", "%%")), tuple(parameters[place] for place in order))
