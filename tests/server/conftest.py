"""A server on each kind of store, called without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fairlead.storage.opening import open_store
from tests.server.serving import Service
from tests.servers import postgres, redis
from tests.storage.postgres.emptying import empty

STORES = ("memory", "sqlite", "redis", "postgresql")


@pytest.fixture(scope="session")
def redis_server() -> Iterator[redis.RedisServer]:
    yield from redis.started_single()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.PostgresServer]:
    yield from postgres.started()


@pytest.fixture(scope="session")
def postgres_url(postgres_server: postgres.PostgresServer) -> str:
    return postgres_server.url(postgres_server.copy_of_template())


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty store of each kind."""
    match request.param:
        case "redis":
            server: redis.RedisServer = request.getfixturevalue("redis_server")
            server.ask("FLUSHALL")
            yield server.url()
        case "postgresql":
            url: str = request.getfixturevalue("postgres_url")
            empty(url)
            yield url
        case "sqlite":
            yield f"sqlite:///{tmp_path / 'tasks.db'}"
        case _:
            yield "memory://"


@pytest.fixture
async def service(store_url: str) -> AsyncIterator[Service]:
    """A server on an empty store of each kind."""
    async with Service(await open_store(store_url)) as service:
        yield service


@pytest.fixture
async def in_memory() -> AsyncIterator[Service]:
    """A server on an empty memory store, for what has nothing to do with stores."""
    async with Service(await open_store("memory://")) as service:
        yield service
