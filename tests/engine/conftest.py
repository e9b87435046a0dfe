"""Fixtures of the engine's tests."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fairlead.storage.opening import open_store
from fairlead.storage.protocol import Store
from tests.engine.building import Bench
from tests.servers.postgres import PostgresServer, started
from tests.servers.redis import RedisServer, started_single
from tests.storage.postgres.emptying import empty

_numbers = itertools.count()


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    yield from started_single()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    yield from started()


@pytest.fixture(scope="session")
def database(postgres: PostgresServer) -> str:
    return postgres.url(postgres.copy_of_template())


@pytest.fixture
def journal(postgres: PostgresServer) -> str:
    """An empty one each time: what it knows is found too."""
    return postgres.url(postgres.create_database())


@pytest.fixture(params=["memory", "sqlite", "redis", "postgresql", "journal"])
async def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """An empty store of each kind."""
    behind: str | None = None
    match request.param:
        case "memory":
            url = "memory://"
        case "sqlite":
            url = f"sqlite:///{tmp_path}/tasks.db?synchronous=normal"
        case "postgresql":
            url = request.getfixturevalue("database")
            empty(url)
        case _:
            server: RedisServer = request.getfixturevalue("redis")
            url = server.url(prefix=f"e{next(_numbers)}")
            behind = request.getfixturevalue("journal") if request.param == "journal" else None
    store = await open_store(url, journal=behind)
    yield store
    await store.close()
