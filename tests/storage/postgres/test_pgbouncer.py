"""Behind PgBouncer in transaction mode the store keeps its contract; only LISTEN is deaf, and waiting polls."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator

import pytest

from fairlead.storage.postgres.listening import POLL
from fairlead.storage.postgres.store import open_postgres
from fairlead.storage.protocol import Store
from fairlead.testing.builders import a_task
from fairlead.testing.contract import StoreContract
from fairlead.testing.steps import add
from tests.servers.postgres import PostgresServer
from tests.storage.postgres.emptying import empty
from tests.storage.postgres.pgbouncer import pooled


@pytest.fixture(scope="module")
def pooled_url(server: PostgresServer) -> Iterator[str]:
    yield from pooled(server, server.copy_of_template())


@pytest.mark.slow
class TestPostgresPooled(StoreContract):
    @pytest.fixture
    async def store(self, pooled_url: str) -> AsyncIterator[Store]:
        empty(pooled_url)
        store = await open_postgres(f"{pooled_url}?prepare=off")
        yield store
        await store.close()


async def test_a_deaf_wait_is_a_short_sleep(pooled_url: str) -> None:
    store = await open_postgres(f"{pooled_url}?prepare=off")
    await add(store, a_task())
    for _ in range(4):
        began = time.monotonic()
        await store.wait(["other"], 60.0)
        assert time.monotonic() - began < POLL + 5.0
    await store.close()
