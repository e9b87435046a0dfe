"""The schema: set up in an empty database, refused when it is behind or ahead, in any schema, without superuser."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator

import psycopg
import pytest

from fairlead.core.errors import InvalidSettings, StoreMismatch, StoreUnavailable
from fairlead.storage.postgres import schema
from fairlead.storage.postgres.schema import migrate, pending
from fairlead.storage.postgres.store import open_postgres
from fairlead.storage.postgres.url import parse
from fairlead.testing.builders import a_task
from fairlead.testing.steps import add, contents
from tests.servers.postgres import PostgresServer


@pytest.fixture
def empty_url(server: PostgresServer) -> Iterator[str]:
    """A database with nothing in it."""
    database = server.create_database()
    yield server.url(database)
    server.drop_database(database)


def test_migrating_twice_does_nothing_the_second_time(empty_url: str) -> None:
    names = [name for name, _ in schema.migrations()]
    assert pending(empty_url) == names
    assert migrate(empty_url) == names
    assert migrate(empty_url) == []
    assert pending(empty_url) == []


async def test_an_empty_database_is_set_up_when_it_is_opened(empty_url: str) -> None:
    store = await open_postgres(empty_url)
    await add(store, a_task())
    await store.close()


def test_processes_that_start_at_once_set_up_one_schema(empty_url: str) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: schema.ensure(parse(empty_url)), range(4)))
    assert pending(empty_url) == []


async def test_a_schema_that_is_behind_names_the_command(empty_url: str) -> None:
    migrate(empty_url)
    with psycopg.connect(empty_url) as connection:
        connection.execute("DELETE FROM fairlead.migration")
    with pytest.raises(StoreMismatch, match="fairlead migrate"):
        await open_postgres(empty_url)


async def test_a_schema_that_is_ahead_is_refused(empty_url: str) -> None:
    migrate(empty_url)
    with psycopg.connect(empty_url) as connection:
        connection.execute("INSERT INTO fairlead.migration (version, name) VALUES (9999, 'from_the_future')")
    with pytest.raises(StoreMismatch, match="upgrade fairlead"):
        await open_postgres(empty_url)
    with pytest.raises(StoreMismatch, match="upgrade fairlead"):
        migrate(empty_url)


async def test_two_schemas_of_one_database_are_two_stores(empty_url: str) -> None:
    one, two = await open_postgres(f"{empty_url}?schema=one"), await open_postgres(f"{empty_url}?schema=two")
    task = a_task()
    await add(one, task)
    assert await contents(two) == []
    assert await contents(one) == [task]
    await one.close()
    await two.close()


async def test_a_schema_made_by_an_administrator_will_do(server: PostgresServer, empty_url: str) -> None:
    """The role may not create schemas, but owns the one it was given."""
    database = empty_url.rpartition("/")[2]
    with server.admin(database) as connection:
        connection.execute("DO $$ BEGIN CREATE ROLE tenant LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
        connection.execute("CREATE SCHEMA given AUTHORIZATION tenant")
    store = await open_postgres(f"{server.url(database, role='tenant')}?schema=given")
    await add(store, a_task())
    await store.close()


async def test_a_server_that_is_not_there_is_unavailable_and_a_database_is_a_mismatch(server: PostgresServer) -> None:
    with pytest.raises(StoreUnavailable):
        await open_postgres("postgresql://nobody@127.0.0.1:1/nothing")
    with pytest.raises(StoreMismatch, match="Create the database"):
        await open_postgres(server.url("no_such_database"))


@pytest.mark.parametrize(
    "query", ["schema=Upper", "schema=a%22b", "prepare=maybe", "pool=0", "pool=many", "timeout=-1", "listen=2"]
)
def test_an_option_that_makes_no_sense_is_refused(query: str) -> None:
    with pytest.raises(InvalidSettings):
        parse(f"postgresql://localhost/x?{query}")


def test_errors_do_not_show_the_password() -> None:
    address = parse("postgresql://user:secret@localhost:5432/x?schema=s")
    assert "secret" not in address.shown
    assert "secret" in address.conninfo
