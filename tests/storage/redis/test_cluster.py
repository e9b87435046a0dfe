"""The Redis store keeps the storage contract on a Redis Cluster."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fairlead.core.errors import StoreUnavailable
from fairlead.core.identity import slot_of
from fairlead.core.instant import DAY, HOUR
from fairlead.core.task import State
from fairlead.storage.protocol import Store
from fairlead.storage.redis.keys import Keys, hash_slot
from fairlead.storage.redis.store import open_redis
from fairlead.storage.values import Added, Apart
from fairlead.testing.builders import NOW, a_beat, a_claim, a_dependent, a_task
from fairlead.testing.contract import QuarantineContract, SharingContract, StoreContract
from fairlead.testing.leases import check_leases
from fairlead.testing.machine import compare_with_memory
from fairlead.testing.races import RaceContract
from fairlead.testing.steps import add, claim_one, ids, read
from fairlead.testing.vandalism import Vandal
from tests.servers.redis import RedisCluster, until
from tests.servers.slots import is_well
from tests.storage.redis.orphans import assert_no_orphans
from tests.storage.redis.vandal import ServerVandal

pytestmark = pytest.mark.slow

_numbers = itertools.count()


SAME_SLOT = "default-13028"
"""A queue that is in the slot of the default queue."""


class TestRedisCluster(StoreContract, SharingContract, QuarantineContract):
    other = SAME_SLOT

    @pytest.fixture
    async def store(self, cluster: RedisCluster, prefix: str) -> AsyncIterator[Store]:
        store = await open_redis(cluster.url(prefix=prefix))
        yield store
        await store.close()
        assert_no_orphans(cluster.servers, prefix)

    @pytest.fixture
    def vandal(self, cluster: RedisCluster, prefix: str) -> Vandal:
        return ServerVandal(cluster.servers, prefix)


class TestRedisClusterRaces(RaceContract):
    @pytest.fixture
    def url(self, cluster: RedisCluster, prefix: str) -> str:
        return cluster.url(prefix=prefix)


@asynccontextmanager
async def opened_empty(cluster: RedisCluster) -> AsyncIterator[Store]:
    prefix = f"c{next(_numbers)}"
    store = await open_redis(cluster.url(prefix=prefix))
    try:
        yield store
    finally:
        await store.close()
    assert_no_orphans(cluster.servers, prefix)


def test_redis_cluster_agrees_with_memory(cluster: RedisCluster) -> None:
    compare_with_memory(lambda: opened_empty(cluster))


def test_redis_cluster_keeps_its_leases(cluster: RedisCluster) -> None:
    check_leases(lambda: opened_empty(cluster))


def test_queues_are_spread_over_the_nodes(cluster: RedisCluster) -> None:
    keys = Keys("fl")
    slots = [hash_slot(keys.base(slot_of(f"queue-{number}"))) for number in range(100)]
    shares = [sum(1 for slot in slots if slot * 3 // 16384 == node) for node in range(3)]
    assert min(shares) > 10


async def test_a_task_cannot_wait_for_one_of_another_slot(cluster: RedisCluster, prefix: str) -> None:
    """D1: no step can count for both."""
    assert slot_of(SAME_SLOT) == slot_of("default") != slot_of("other")
    store = await open_redis(cluster.url(prefix=prefix))
    near, far = a_task(queue=SAME_SLOT), a_task(queue="other")
    tasks = [near, far, a_dependent(near), a_dependent(near, far), a_task()]
    receipts = await store.add(tasks, now=NOW, bounds={})
    await store.close()
    assert receipts == [Added(), Added(), Added(), Apart(far.id), Added()]


async def test_a_moved_slot_is_followed(cluster: RedisCluster, prefix: str) -> None:
    """A slot that another node took over is found by its redirection, without an error to the caller."""
    store = await open_redis(cluster.url(prefix=prefix))
    task = a_task(queue="moving")
    await add(store, task)
    slot = hash_slot(Keys(prefix).base(slot_of("moving")))
    source = next(server for server in cluster.servers if server.ask("CLUSTER", "COUNTKEYSINSLOT", slot))
    target = next(server for server in cluster.servers if server is not source)
    names = {server: server.ask("CLUSTER", "MYID") for server in (source, target)}
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", names[source])
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", names[target])
    for key in source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100):
        assert source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 5000) == b"OK"
    for server in (target, source, *cluster.servers):
        server.ask("CLUSTER", "SETSLOT", slot, "NODE", names[target])
    assert ids(await store.claim(a_claim("moving"))) == [task.id]
    await store.close()
    assert_no_orphans(cluster.servers, prefix)


async def test_a_lost_node_keeps_nobody_from_the_queues_of_the_others(prefix: str) -> None:
    """Where a cluster goes on without a part of its slots, so do the claims and sweeps that span them."""
    cluster = RedisCluster()
    try:
        cluster.start()
        for server in cluster.servers:
            server.ask("CONFIG", "SET", "cluster-require-full-coverage", "no")
        keys = Keys(prefix)
        queues = [f"queue-{number}" for number in range(100)]
        places = {queue: hash_slot(keys.base(slot_of(queue))) * 3 // 16384 for queue in queues}
        place = hash_slot(keys.registry) * 3 // 16384
        store = await open_redis(cluster.url(prefix=prefix))
        await add(store, *(a_task(queue=queue) for queue in queues))
        later = [a_task(queue=queue, state=State.SCHEDULED, ready_at=NOW + 1) for queue in queues]
        await add(store, *later)
        lost = (place + 1) % 3
        cluster.servers[lost].halt()
        taken = await store.claim(a_claim(*queues, limit=100))
        due = await store.due(NOW + 1, 100)
        await store.close()
        living = {queue for queue in queues if places[queue] != lost}
        assert {task.spec.queue for task in taken} == living
        assert {task.id for task in due} == {task.id for task in later if task.spec.queue in living}
    finally:
        cluster.stop()


@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "async"])
async def test_a_node_that_hangs_keeps_nobody_from_renewing_leases_on_the_others(
    cluster: RedisCluster, prefix: str, blocking: bool
) -> None:
    """The keeper of a worker renews all of them in one call, whatever nodes they are on."""
    keys = Keys(prefix)
    queues = {hash_slot(keys.base(slot_of(name))) * 3 // 16384: name for name in (f"queue-{n}" for n in range(50))}
    store = await open_redis(cluster.url(prefix=prefix, timeout=1.5), blocking=blocking)
    await add(store, *(a_task(queue=queue) for queue in queues.values()))
    held = [await claim_one(store, a_claim(queue)) for queue in queues.values()]
    for place, server in enumerate(cluster.servers):
        server.pause()
        try:
            with pytest.raises(StoreUnavailable):
                await store.extend([a_beat(task) for task in held], lease=HOUR + place, grace=DAY, now=NOW)
        finally:
            server.resume()
        until(lambda: all(map(is_well, cluster.servers)), "the cluster to be well again")
        for task in held:
            after = await read(store, task)
            assert after is not None and after.status.lease is not None
            if task.spec.queue != queues[place]:
                assert after.status.lease.until == NOW + HOUR + place
    await store.close()
