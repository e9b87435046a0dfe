"""Fixtures of the end-to-end tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.app.connection import Connection
from tests.e2e import fleet
from tests.e2e.processes import Yard
from tests.servers import postgres, redis


@pytest.fixture(scope="session")
def redis_server() -> Iterator[redis.RedisServer]:
    yield from redis.started_single()


@pytest.fixture(scope="session")
def postgres_server(one_postgres: postgres.PostgresServer) -> postgres.PostgresServer:
    return one_postgres


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty store: a file, unless the test is parametrised with another kind."""
    match getattr(request, "param", "sqlite"):
        case "redis":
            server: redis.RedisServer = request.getfixturevalue("redis_server")
            yield server.url()
            server.ask("FLUSHALL")
        case "postgresql":
            databases: postgres.PostgresServer = request.getfixturevalue("postgres_server")
            database = databases.copy_of_template()
            yield databases.url(database)
            databases.drop_database(database)
        case _:
            yield f"sqlite:///{tmp_path / 'fleet.db'}"


@pytest.fixture
def yard(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    """An empty store on which the fleet's tasks are submitted and its workers work."""
    for name in [name for name in os.environ if name.startswith("FAIRLEAD_")]:
        monkeypatch.delenv(name)
    former = fleet.app._swap(Connection(store_url, fleet.SETTINGS))
    with Yard(tmp_path, store_url).manned() as yard:
        yield yard
    fleet.app.connection().close_inline()
    fleet.app._swap(former)
