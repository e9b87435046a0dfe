"""The server of these tests, and a database of its own for each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from fairlead.storage.postgres.store import PostgresStore, open_postgres
from tests.servers.postgres import PostgresServer, started
from tests.storage.postgres.emptying import empty


@pytest.fixture(scope="session")
def server(one_postgres: PostgresServer) -> PostgresServer:
    return one_postgres


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that the test may stop, pause and break."""
    yield from started()


@pytest.fixture(scope="session")
def shared_url(server: PostgresServer) -> str:
    """One database for all tests that leave its schema alone: emptying it takes a hundredth of copying another."""
    return server.url(server.copy_of_template())


@pytest.fixture
def url(shared_url: str) -> str:
    """An empty store."""
    empty(shared_url)
    return shared_url


@pytest.fixture
def own_url(server: PostgresServer) -> Iterator[str]:
    """An empty store in a database that the test may alter."""
    database = server.copy_of_template()
    yield server.url(database)
    server.drop_database(database)


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = await open_postgres(url)
    yield store
    await store.close()
