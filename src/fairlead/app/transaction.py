"""Submitting inside a transaction of the caller's own, on the caller's own connection to PostgreSQL.

The connection may be psycopg's, asyncpg's or SQLAlchemy's. None of them is imported here: a connection says by its type
whose it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import Instant
from fairlead.core.task import Task
from fairlead.engine.submit import key_held
from fairlead.storage.open import is_postgres


async def add_in(connection: Any, url: str, task: Task, now: Instant) -> None:
    """Add a task on an asynchronous connection; it exists if and only if the caller's transaction commits."""
    match _driver(connection):
        case "asyncpg":
            routes, tasks = _written(url, task, now, numbered=True)
            await connection.execute(routes.text, *routes.parameters)
            row = await connection.fetchrow(tasks.text, *tasks.parameters)
        case "sqlalchemy":
            bound = connection if hasattr(connection, "exec_driver_sql") else await connection.connection()
            routes, tasks = _written(url, task, now, numbered=bound.dialect.driver == "asyncpg")
            await bound.exec_driver_sql(routes.text, routes.parameters)
            row = (await bound.exec_driver_sql(tasks.text, tasks.parameters)).fetchone()
        case _:
            routes, tasks = _written(url, task, now, numbered=False)
            await connection.execute(routes.text, routes.parameters)
            row = await (await connection.execute(tasks.text, tasks.parameters)).fetchone()
    _check(row, task)


def add_in_sync(connection: Any, url: str, task: Task, now: Instant) -> None:
    """`add_in`, on a synchronous connection."""
    if _driver(connection) == "sqlalchemy":
        bound = connection if hasattr(connection, "exec_driver_sql") else connection.connection()
        routes, tasks = _written(url, task, now, numbered=False)
        bound.exec_driver_sql(routes.text, routes.parameters)
        row = bound.exec_driver_sql(tasks.text, tasks.parameters).fetchone()
    else:
        routes, tasks = _written(url, task, now, numbered=False)
        connection.execute(routes.text, routes.parameters)
        row = connection.execute(tasks.text, tasks.parameters).fetchone()
    _check(row, task)


def _driver(connection: Any) -> str:
    driver = type(connection).__module__.partition(".")[0]
    if driver not in ("asyncpg", "psycopg", "sqlalchemy"):
        raise InvalidSettings(
            f"submit_in cannot use a connection of {type(connection).__module__}.{type(connection).__name__}; give it "
            f"one of psycopg, asyncpg or SQLAlchemy"
        )
    return driver


def _written(url: str, task: Task, now: Instant, *, numbered: bool) -> tuple[Any, Any]:
    if not is_postgres(url):
        raise InvalidSettings("submit_in needs an app on PostgreSQL: only there can its task be part of a transaction")
    from fairlead.storage.postgres.transactional import ParameterStyle, addition

    style = ParameterStyle.NUMBERED if numbered else ParameterStyle.FORMAT
    added = addition(url, [task], now=now, style=style)
    return added.routes, added.tasks


def _check(row: Sequence[Any] | None, task: Task) -> None:
    from fairlead.storage.postgres.transactional import refused_by

    if row is None or refused_by(row):
        raise key_held(task)
