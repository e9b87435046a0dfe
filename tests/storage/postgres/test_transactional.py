"""Tasks added inside a caller's own transaction exist if and only if it commits."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from fairlead.core.errors import InvalidTask
from fairlead.core.task import Task
from fairlead.storage.postgres.store import PostgresStore
from fairlead.storage.postgres.transactional import ParameterStyle, addition, refused_by
from fairlead.storage.protocol import Store
from fairlead.testing.builders import NOW, a_claim, a_task, some_tasks
from fairlead.testing.reference import expected_standing, standing
from fairlead.testing.steps import add, contents, ids


def add_in(connection: psycopg.Connection[Any], url: str, tasks: Sequence[Task]) -> Any:
    written = addition(url, tasks, now=NOW, style=ParameterStyle.FORMAT)
    connection.execute(written.routes.text.encode(), written.routes.parameters)
    return connection.execute(written.tasks.text.encode(), written.tasks.parameters).fetchone()


async def test_tasks_of_a_committed_transaction_are_there(store: PostgresStore, url: str) -> None:
    tasks = [*some_tasks(3), a_task(queue="other", tags=["red"], requires=["gpu"], key="k")]
    with psycopg.connect(url) as connection:
        row = add_in(connection, url, tasks)
        assert await contents(store) == []
    assert refused_by(row) == frozenset()
    assert await contents(store) == tasks
    assert standing(await store.tally()) == expected_standing(tasks)
    assert ids(await store.claim(a_claim(limit=9))) == ids(tasks[:3])


async def test_tasks_of_a_rolled_back_transaction_are_not(store: PostgresStore, url: str) -> None:
    with psycopg.connect(url) as connection:
        add_in(connection, url, some_tasks(3))
        connection.rollback()
    assert await contents(store) == []
    assert (await store.tally()).lanes == []


async def test_a_known_key_is_refused(store: PostgresStore, url: str) -> None:
    holder, other = a_task(key="k"), a_task(key="k")
    await add(store, holder)
    with psycopg.connect(url) as connection:
        row = add_in(connection, url, [other])
    assert refused_by(row) == {other.id}
    assert await contents(store) == [holder]


async def test_two_tasks_with_one_key_are_refused_before_the_database_is_asked(url: str) -> None:
    with pytest.raises(InvalidTask, match="share a key"):
        addition(url, [a_task(key="k"), a_task(key="k")], now=NOW, style=ParameterStyle.FORMAT)


async def test_an_asynchronous_connection_will_do(store: PostgresStore, url: str) -> None:
    tasks = some_tasks(3)
    written = addition(url, tasks, now=NOW, style=ParameterStyle.FORMAT)
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(written.routes.text.encode(), written.routes.parameters)
        await connection.execute(written.tasks.text.encode(), written.tasks.parameters)
        assert await contents(store) == []
    assert await contents(store) == tasks


async def test_asyncpg_will_do(store: PostgresStore, url: str) -> None:
    asyncpg = _optional("asyncpg")
    tasks = [*some_tasks(2), a_task(key="k", tags=["red"])]
    written = addition(url, tasks, now=NOW, style=ParameterStyle.NUMBERED)
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(written.routes.text, *written.routes.parameters)
            row = await connection.fetchrow(written.tasks.text, *written.tasks.parameters)
            assert await contents(store) == []
    finally:
        await connection.close()
    assert refused_by(row) == frozenset()
    assert await contents(store) == tasks


async def test_sqlalchemy_will_do(store: Store, url: str) -> None:
    sqlalchemy = _optional("sqlalchemy")
    tasks = some_tasks(2)
    written = addition(url, tasks, now=NOW, style=ParameterStyle.FORMAT)
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.exec_driver_sql(written.routes.text, written.routes.parameters)
        connection.exec_driver_sql(written.tasks.text, written.tasks.parameters)
        assert await contents(store) == []
    engine.dispose()
    assert await contents(store) == tasks


def _optional(name: str) -> Any:
    """A driver that fairlead does not need: its test runs where it is installed."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    return importlib.import_module(name)
