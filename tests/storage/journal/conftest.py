"""The servers of these tests, and an empty journal for each."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

from fairlead.storage.journal.journal import Journal
from fairlead.storage.journal.url import JournalAddress, parse_journal
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer, started_single
from tests.storage.journal.current import CurrentStore
from tests.storage.journal.noting_memory import NotingMemoryStore
from tests.storage.postgres.emptying import empty_journal

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server(one_postgres: PostgresServer) -> PostgresServer:
    return one_postgres


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    yield from started_single()


@pytest.fixture
def prefix() -> str:
    """A prefix that no other test uses."""
    return f"j{next(_numbers)}"


@pytest.fixture(scope="session")
def shared_url(server: PostgresServer) -> str:
    return server.url(server.journal_database())


@pytest.fixture
def url(shared_url: str) -> str:
    """An empty journal."""
    empty_journal(shared_url)
    return shared_url


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
