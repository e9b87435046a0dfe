"""Submitting inside the caller's own transaction."""

from __future__ import annotations

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from fairlead import Fairlead, InvalidSettings, InvalidTask, TaskNotFound
from fairlead.engine.runtime.inline import run_inline


async def test_the_task_exists_if_and_only_if_the_transaction_commits(own_url: str) -> None:
    app = Fairlead(own_url)

    @app.task
    async def bill(order: int) -> int:
        return order

    async with await psycopg.AsyncConnection.connect(own_url) as connection:
        lost = await bill.submit_in(connection, 1)
        await connection.rollback()
        kept = await bill.submit_in(connection, 2)
        await connection.commit()

    assert (await kept.refresh()).snapshot.spec.parameters == b'{"order":2}'
    with pytest.raises(TaskNotFound):
        await lost.refresh()
    await app.close()


def test_synchronous_code_can_do_the_same(own_url: str) -> None:
    app = Fairlead(own_url)

    @app.task
    def bill(order: int) -> int:
        return order

    with psycopg.connect(own_url) as connection:
        kept = bill.options(idempotency_key="order-2").submit_in_sync(connection, 2)
    with psycopg.connect(own_url) as connection, pytest.raises(InvalidTask, match="order-2"):
        bill.options(idempotency_key="order-2").submit_in_sync(connection, 2)

    assert kept.refresh_sync().status == "queued"
    app.connection().close_inline()


def test_into_a_queue_of_a_tenant_it_is_that_tenants(own_url: str) -> None:
    app = Fairlead(own_url)
    app.queues.change_sync("bills", tenant="acme")

    @app.task(queue="bills")
    def bill(order: int) -> int:
        return order

    with psycopg.connect(own_url) as connection:
        kept = bill.submit_in_sync(connection, 1)
    with psycopg.connect(own_url) as connection, pytest.raises(InvalidTask, match="is bound to another tenant"):
        bill.options(tenant="umbrella").submit_in_sync(connection, 2)

    (task,) = run_inline(app.connection().inline().find())
    assert (task.id, task.spec.tenant) == (kept.id, "acme")
    app.connection().close_inline()


async def test_a_connection_of_nobody_we_know_is_refused() -> None:
    app = Fairlead("memory://")

    @app.task
    async def bill(order: int) -> int:
        return order

    with pytest.raises(InvalidSettings, match="cannot use a connection"):
        await bill.submit_in(object(), 1)


async def test_a_store_that_is_not_postgresql_is_refused(own_url: str) -> None:
    app = Fairlead("memory://")

    @app.task
    async def bill(order: int) -> int:
        return order

    async with await psycopg.AsyncConnection.connect(own_url) as connection:
        with pytest.raises(InvalidSettings, match="needs an app on PostgreSQL"):
            await bill.submit_in(connection, 1)


async def test_asyncpg_takes_part(own_url: str) -> None:
    app = Fairlead(own_url)

    @app.task
    async def bill(order: int) -> int:
        return order

    connection = await asyncpg.connect(own_url)
    async with connection.transaction():
        kept = await bill.submit_in(connection, 3)
    await connection.close()

    assert (await kept.refresh()).status == "queued"
    await app.close()


def test_sqlalchemy_takes_part(own_url: str) -> None:
    app = Fairlead(own_url)

    @app.task
    def bill(order: int) -> int:
        return order

    database = sqlalchemy.create_engine(own_url.replace("postgresql://", "postgresql+psycopg://"))
    with Session(database) as session:
        lost = bill.submit_in_sync(session, 4)
        session.rollback()
        kept = bill.submit_in_sync(session, 5)
        session.commit()
    database.dispose()

    assert kept.refresh_sync().status == "queued"
    with pytest.raises(TaskNotFound):
        lost.refresh_sync()
    app.connection().close_inline()
