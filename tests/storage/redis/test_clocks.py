"""The clocks that leases go by: one for each run of each server, so that none is taken for its successor."""

from __future__ import annotations

import pytest

from fairlead.core.instant import MINUTE
from fairlead.storage.redis.store import open_redis
from fairlead.storage.steps import host_time
from tests.servers.redis import RedisCluster, RedisServer


async def test_a_server_has_one_clock_and_another_when_it_was_restarted(server: RedisServer) -> None:
    store = await open_redis(server.url())
    try:
        before = await store.clocks()
        ((run, now),) = before.items()
        assert (await store.clocks()).keys() == before.keys()
        assert abs(now - host_time()) < MINUTE
        assert run
        server.halt()
        server.start()
        (other,) = await store.clocks()
        assert other != run
    finally:
        await store.close()


@pytest.mark.slow
async def test_each_master_of_a_cluster_has_a_clock(cluster: RedisCluster) -> None:
    store = await open_redis(cluster.url())
    try:
        clocks = await store.clocks()
    finally:
        await store.close()
    assert len(clocks) == len(masters_of(cluster))
    assert all(abs(now - host_time()) < MINUTE for now in clocks.values())


def masters_of(cluster: RedisCluster) -> set[bytes]:
    """The runs of the masters, as they say themselves."""
    infos = [server.ask("INFO") for server in cluster.servers]
    return {info for info in infos if b"role:master" in info}
