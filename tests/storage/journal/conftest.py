"""The servers of these tests, and an empty journal for each."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from fairlead.storage.journal.journal import PACKAGE, Journal
from fairlead.storage.journal.url import JournalAddress, parse_journal
from fairlead.storage.postgres.schema import migrate_at
from tests.servers.postgres import PostgresServer, started
from tests.servers.redis import RedisServer, started_single
from tests.storage.journal.current import CurrentStore
from tests.storage.journal.noting_memory import NotingMemoryStore

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    yield from started()


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    yield from started_single()


@pytest.fixture
def prefix() -> str:
    """A prefix that no other test uses."""
    return f"j{next(_numbers)}"


@pytest.fixture(scope="session")
def shared_url(server: PostgresServer) -> str:
    url = server.url(server.create_database())
    migrate_at(parse_journal(url).database, PACKAGE)
    return url


@pytest.fixture
def url(shared_url: str) -> str:
    """An empty journal."""
    empty(shared_url)
    return shared_url


def empty(url: str) -> None:
    database = parse_journal(url).database
    with psycopg.connect(database.conninfo, autocommit=True) as connection:
        for table in ("task", "status", "record"):
            connection.execute(f'DELETE FROM "{database.schema}".{table}'.encode())
        connection.execute(f'DELETE FROM "{database.schema}".marked'.encode())
        connection.execute(f'UPDATE "{database.schema}".mark SET number = 0, whole = true'.encode())
        connection.execute(f"UPDATE \"{database.schema}\".duty SET until = 0, at = 0, id = '{'0' * 32}'::uuid".encode())


@pytest.fixture
def address(url: str) -> JournalAddress:
    """Ended tasks may leave the hot store at once."""
    return parse_journal(f"{url}?hot_retention=0")


@pytest.fixture
async def journal(address: JournalAddress) -> AsyncIterator[Journal]:
    journal = Journal(address)
    yield journal
    await journal.close()


@pytest.fixture
def hot() -> NotingMemoryStore:
    return NotingMemoryStore()


@pytest.fixture
def store(hot: NotingMemoryStore, journal: Journal) -> CurrentStore:
    return CurrentStore(hot, journal)
