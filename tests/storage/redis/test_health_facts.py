"""What a Redis store finds out about itself, on real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fairlead.core.health.diagnosis import REDIS_ALWAYS, REDIS_EVERYSEC, REDIS_NOTHING, Examination, Finding, Level
from fairlead.core.identity import TaskId
from fairlead.storage.redis.keys import Keys, id_bytes
from fairlead.storage.redis.store import RedisStore, open_redis
from fairlead.testing.builders import a_task
from tests.servers.redis import RedisCluster, RedisServer, Watched


@pytest.fixture
async def store(single: RedisServer, prefix: str) -> AsyncIterator[RedisStore]:
    store = await open_redis(single.url(prefix=prefix))
    yield store
    await store.close()


def found(examination: Examination, what: str) -> Finding:
    (finding,) = [finding for finding in examination.findings if finding.what == what]
    return finding


async def test_an_index_entry_without_its_task_is_found(store: RedisStore, single: RedisServer, prefix: str) -> None:
    tasks = [a_task(queue=f"q{number % 3}") for number in range(12)]
    await store.add(tasks, now=0, bounds={})
    assert found(await store.examine(), "orphans").level is Level.GREEN

    base = Keys(prefix).base(Keys(prefix).slot(tasks[0].spec.queue))
    single.ask("DEL", base + b"t" + _bytes(tasks[0].id))
    orphans = found(await store.examine(), "orphans")

    assert orphans.level is Level.RED
    assert orphans.value.startswith("1 of ")
    single.ask("FLUSHALL")


async def test_keys_that_are_not_ours_or_never_expire_are_found(
    store: RedisStore, single: RedisServer, prefix: str
) -> None:
    await store.add([a_task(queue="mail")], now=0, bounds={})
    await store.publish([b"one"], now=0, keep=10)
    keys = found(await store.examine(), "keys")
    assert (keys.level, keys.value.startswith("all ")) == (Level.GREEN, True)
    feed = f"{{{prefix}}}feed"
    single.ask("PERSIST", feed)
    assert found(await store.examine(), "keys").value == f"1 keys never expire that should: {feed}"
    strange = f"{{{prefix}}}cache"
    single.ask("SET", strange, "x")
    keys = found(await store.examine(), "keys")
    assert (keys.level, strange in keys.value) == (Level.YELLOW, True)
    single.ask("DEL", strange)


async def test_only_so_many_keys_are_looked_at(store: RedisStore, single: RedisServer) -> None:
    single.ask("EVAL", "for i = 1, 30000 do redis.call('set', 'other' .. i, '') end", 0)
    keys = found(await store.examine(), "keys")
    assert keys.value.startswith("some ")
    single.ask("FLUSHALL")


async def test_the_tier_follows_the_settings_of_the_server(store: RedisStore, single: RedisServer) -> None:
    assert (await store.examine()).tier is REDIS_NOTHING
    single.ask("CONFIG", "SET", "appendonly", "yes")
    try:
        assert (await store.examine()).tier is REDIS_EVERYSEC
        single.ask("CONFIG", "SET", "appendfsync", "always")
        assert (await store.examine()).tier is REDIS_ALWAYS
    finally:
        single.ask("CONFIG", "SET", "appendonly", "no")
        single.ask("CONFIG", "SET", "appendfsync", "everysec")


async def test_settings_that_may_not_be_read_are_said_to_be_unknown(
    store: RedisStore, single: RedisServer, prefix: str
) -> None:
    single.ask("ACL", "SETUSER", "plain", "on", ">secret", "~*", "&*", "+@all", "-config")
    single.ask("CONFIG", "SET", "appendonly", "yes")
    url = single.url(prefix=prefix).replace("redis://", "redis://plain:secret@")
    limited = await open_redis(url)
    try:
        examination = await limited.examine()
        assert examination.tier is REDIS_EVERYSEC
        assert found(examination, "appendfsync").level is Level.YELLOW
    finally:
        await limited.close()
        single.ask("CONFIG", "SET", "appendonly", "no")
        single.ask("ACL", "DELUSER", "plain")


async def test_a_master_whose_replicas_nobody_waits_for(watched: Watched, prefix: str) -> None:
    store = await open_redis(watched.url(prefix=prefix))
    try:
        assert found(await store.examine(), "replicas").level is Level.YELLOW
    finally:
        await store.close()


async def test_every_node_of_a_cluster_that_has_tasks_is_looked_at(cluster: RedisCluster, prefix: str) -> None:
    store = await open_redis(cluster.url(prefix=prefix))
    try:
        await store.add([a_task(queue=f"q{number}") for number in range(30)], now=0, bounds={})
        examination = await store.examine()
        assert examination.tier is REDIS_NOTHING
        assert found(examination, "orphans").level is Level.GREEN
        # That of the node whose tier is shown, and one more red one for each of the others.
        durability = [each for each in examination.findings if each.what == "durability"]
        assert [each.level for each in durability] == [Level.RED] * 3
    finally:
        await store.close()


def _bytes(task_id: TaskId) -> bytes:
    packed = id_bytes(task_id)
    assert packed is not None
    return packed
