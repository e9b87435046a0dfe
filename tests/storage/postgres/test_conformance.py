"""The PostgreSQL store keeps the storage contract: on an event loop and driven from synchronous code, with prepared
statements and without, whatever order the database sorts text in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from fairlead.storage.postgres.schema import migrate
from fairlead.storage.postgres.store import open_postgres
from fairlead.storage.protocol import Store
from fairlead.testing.contract import QuarantineContract, SharingContract, StoreContract
from fairlead.testing.leases import check_leases
from fairlead.testing.machine import compare_with_memory
from fairlead.testing.vandalism import Vandal
from tests.servers.postgres import PostgresServer
from tests.storage.postgres.emptying import emptied, empty
from tests.storage.postgres.vandal import DatabaseVandal


class TestPostgres(StoreContract, SharingContract, QuarantineContract):
    @pytest.fixture
    async def store(self, url: str) -> AsyncIterator[Store]:
        store = await open_postgres(url)
        yield store
        await store.close()

    @pytest.fixture
    def vandal(self, url: str) -> Vandal:
        return DatabaseVandal(url)


class TestPostgresBlocking(StoreContract, SharingContract):
    test_one_task_does_not_wake_every_waiter = None  # type: ignore[assignment]

    @pytest.fixture
    async def store(self, url: str) -> AsyncIterator[Store]:
        store = await open_postgres(url, blocking=True)
        # A wait that blocks its thread cannot be told from the same thread; test_waiting tells it from another.
        store.wait = _no_wait  # type: ignore[method-assign]
        yield store
        await store.close()


async def _no_wait(queues: Sequence[str], timeout: float) -> None:
    await asyncio.sleep(0)


class TestPostgresUnprepared(StoreContract, SharingContract):
    """As behind PgBouncer: no prepared statements, no session settings, no LISTEN."""

    @pytest.fixture
    async def store(self, url: str) -> AsyncIterator[Store]:
        store = await open_postgres(f"{url}?prepare=off&listen=off")
        yield store
        await store.close()


class TestPostgresSorting(StoreContract, SharingContract):
    """In a database whose text order is a language's, not that of bytes."""

    @pytest.fixture(scope="class")
    @classmethod
    def sorted_url(cls, server: PostgresServer) -> Iterator[str]:
        options = server.sorting_options()
        if options is None:
            pytest.skip("this PostgreSQL has no locale whose order differs from that of bytes")
        database = server.create_database(options=options)
        migrate(server.url(database))
        yield server.url(database)
        server.drop_database(database)

    @pytest.fixture
    async def store(self, sorted_url: str) -> AsyncIterator[Store]:
        empty(sorted_url)
        store = await open_postgres(sorted_url)
        yield store
        await store.close()


@pytest.mark.slow
def test_postgres_agrees_with_memory(url: str) -> None:
    compare_with_memory(emptied(url))


@pytest.mark.slow
def test_postgres_driven_from_synchronous_code_agrees_with_memory(url: str) -> None:
    compare_with_memory(emptied(url, blocking=True))


@pytest.mark.slow
def test_leases_hold(url: str) -> None:
    check_leases(emptied(url))
