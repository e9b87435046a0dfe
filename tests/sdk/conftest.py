"""Fixtures of the SDK's tests."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fairlead import Fairlead
from fairlead.core.settings import Settings
from tests.servers.postgres import PostgresServer, started
from tests.servers.redis import RedisServer, started_single
from tests.storage.postgres.emptying import empty

_numbers = itertools.count()


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    yield from started_single()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    yield from started()


@pytest.fixture(scope="session")
def database(postgres: PostgresServer) -> str:
    return postgres.url(postgres.copy_of_template())


@pytest.fixture(params=["memory", "sqlite", "redis", "postgresql", "journal"])
async def any_app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Fairlead]:
    """An app on an empty store of each kind."""
    journal: str | None = None
    match request.param:
        case "memory":
            url = "memory://"
        case "sqlite":
            url = f"sqlite:///{tmp_path}/tasks.db?synchronous=normal"
        case "postgresql":
            url = request.getfixturevalue("database")
            empty(url)
        case _:
            redis: RedisServer = request.getfixturevalue("redis")
            url = redis.url(prefix=f"s{next(_numbers)}")
            if request.param == "journal":
                postgres: PostgresServer = request.getfixturevalue("postgres")
                journal = postgres.url(postgres.create_database())
    app = Fairlead(url, journal=journal, settings=Settings())
    yield app
    await app.close()
