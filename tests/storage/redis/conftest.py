"""The servers and stores of these tests. A store that leaves an orphan behind fails its test."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

from fairlead.storage.redis.store import RedisStore, open_redis
from tests.servers.redis import (
    RedisCluster,
    RedisServer,
    Watched,
    started_cluster,
    started_single,
    started_watched,
)
from tests.storage.redis.orphans import assert_no_orphans

_numbers = itertools.count()


@pytest.fixture(scope="session")
def single() -> Iterator[RedisServer]:
    yield from started_single()


@pytest.fixture(scope="session")
def watched() -> Iterator[Watched]:
    yield from started_watched()


@pytest.fixture(scope="session")
def cluster() -> Iterator[RedisCluster]:
    yield from started_cluster()


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server of this test's own."""
    yield from started_single()


@pytest.fixture
def prefix() -> str:
    """A prefix that no other test uses."""
    return f"t{next(_numbers)}"


@pytest.fixture
async def store(single: RedisServer, prefix: str) -> AsyncIterator[RedisStore]:
    """An empty store on one server."""
    store = await open_redis(single.url(prefix=prefix))
    yield store
    await store.close()
    assert_no_orphans([single], prefix)
