"""Where an empty store of each kind is, on servers that are started when they are first needed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer, started_single
from tests.storage.postgres.emptying import empty, empty_journal

_numbers = itertools.count()


class Place(NamedTuple):
    """Where a store is, and the journal behind it."""

    url: str
    journal: str | None = None


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    yield from started_single()


@pytest.fixture(scope="session")
def postgres(one_postgres: PostgresServer) -> PostgresServer:
    return one_postgres


@pytest.fixture(scope="session")
def database(postgres: PostgresServer) -> str:
    return postgres.url(postgres.copy_of_template())


@pytest.fixture(params=["memory", "sqlite", "redis", "postgresql", "journal"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty store of each kind."""
    return empty_place(request, tmp_path)


def empty_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty store of the kind that is the fixture's parameter. The fixtures above must be there for it."""
    match request.param:
        case "memory":
            return Place("memory://")
        case "sqlite":
            return Place(f"sqlite:///{tmp_path}/tasks.db?synchronous=normal")
        case "postgresql":
            url: str = request.getfixturevalue("database")
            empty(url)
            return Place(url)
        case kind:
            server: RedisServer = request.getfixturevalue("redis")
            url = server.url(prefix=f"p{next(_numbers)}")
            if kind == "redis":
                return Place(url)
            databases: PostgresServer = request.getfixturevalue("postgres")
            journal = databases.url(databases.journal_database())
            empty_journal(journal)
            return Place(url, journal)
