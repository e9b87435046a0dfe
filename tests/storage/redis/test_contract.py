"""The Redis store keeps the storage contract on a single server."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fairlead.storage.protocol import Store
from fairlead.storage.redis.store import open_redis
from fairlead.testing.contract import QuarantineContract, SharingContract, StoreContract
from fairlead.testing.leases import check_leases
from fairlead.testing.machine import compare_with_memory
from fairlead.testing.races import RaceContract
from fairlead.testing.vandalism import Vandal
from tests.servers.redis import RedisServer
from tests.storage.redis.orphans import assert_no_orphans
from tests.storage.redis.vandal import ServerVandal

_numbers = itertools.count()


class TestRedis(StoreContract, SharingContract, QuarantineContract):
    @pytest.fixture
    async def store(self, single: RedisServer, prefix: str) -> AsyncIterator[Store]:
        store = await open_redis(single.url(prefix=prefix))
        yield store
        await store.close()
        assert_no_orphans([single], prefix)

    @pytest.fixture
    def vandal(self, single: RedisServer, prefix: str) -> Vandal:
        return ServerVandal([single], prefix)


class TestRedisRaces(RaceContract):
    @pytest.fixture
    def url(self, single: RedisServer, prefix: str) -> str:
        return single.url(prefix=prefix)


@asynccontextmanager
async def opened_empty(server: RedisServer) -> AsyncIterator[Store]:
    prefix = f"m{next(_numbers)}"
    store = await open_redis(server.url(prefix=prefix))
    try:
        yield store
    finally:
        await store.close()
    assert_no_orphans([server], prefix)


def test_redis_agrees_with_memory(single: RedisServer) -> None:
    compare_with_memory(lambda: opened_empty(single))


def test_redis_keeps_its_leases(single: RedisServer) -> None:
    check_leases(lambda: opened_empty(single))
