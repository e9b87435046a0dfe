"""What happens when a server stops, hangs, forgets its scripts, is full, or is set up badly."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.core.errors import StoreFull, StoreMismatch, StoreReadOnly, StoreRefused, StoreUnavailable
from fairlead.core.events import Completed
from fairlead.core.instant import HOUR, SECOND
from fairlead.engine.runtime.clock import FollowingClock, ManualClock
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.redis.store import RedisStore, open_redis
from fairlead.storage.values import Added, Filter, Known, Pulse, Verdict
from fairlead.testing.builders import LEASE, NOW, a_beat, a_claim, a_removal, a_settle, a_task, some_tasks
from fairlead.testing.steps import add, ids
from tests.servers.redis import RedisServer, until
from tests.storage.redis.orphans import assert_no_orphans

_HOW_TO = Path(__file__).parents[3] / "docs" / "how-to" / "run-on-redis.md"
DOCUMENTED_RIGHTS = _HOW_TO.read_text().split("An ACL user needs `")[1].split("`")[0].split()


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server of this test's own, which remembers its tasks when it is killed."""
    server = RedisServer("--appendonly", "yes", "--appendfsync", "always")
    try:
        yield server.start()
    finally:
        server.stop()


async def open_either(url: str, blocking: bool) -> RedisStore:
    return await open_redis(url, blocking=blocking)


both = pytest.mark.parametrize("blocking", [False, True], ids=["asyncio", "blocking"])


@both
async def test_a_store_recovers_from_a_restart_by_itself(server: RedisServer, blocking: bool) -> None:
    store = await open_either(server.url(timeout=1), blocking)
    first, second = a_task(), a_task()
    await add(store, first)
    server.halt()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await store.add([second], now=NOW, bounds={})
    assert time.monotonic() - began < 6
    server.start()
    assert await store.add([second], now=NOW, bounds={}) == [Added()]
    assert ids(await store.claim(a_claim(limit=5))) == ids([first, second])
    await store.close()
    assert_no_orphans([server], "fl")


@both
async def test_a_store_opened_before_an_idle_restart_notices_nothing(server: RedisServer, blocking: bool) -> None:
    store = await open_either(server.url(), blocking)
    await add(store, a_task())
    server.halt(signal.SIGTERM)
    server.start()
    # Longer than a blocking connection is trusted without a look; the event loop looks by itself, when it is let.
    await asyncio.sleep(1.1)
    assert len(await store.claim(a_claim(limit=5))) == 1
    await store.close()


@both
async def test_a_call_to_a_hanging_server_fails_in_time_and_the_next_succeeds(
    server: RedisServer, blocking: bool
) -> None:
    """Whether the task was stored is unknown, so the same is added again: it is stored once."""
    store = await open_either(server.url(timeout=0.3), blocking)
    task = a_task()
    await add(store, a_task())
    server.pause()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"in time|within 0\.3 s"):
        await store.add([task], now=NOW, bounds={})
    assert time.monotonic() - began < 3
    server.resume()
    (receipt,) = await store.add([task], now=NOW, bounds={})
    assert receipt in (Added(), Known())
    assert len(await store.claim(a_claim(limit=5))) == 2
    await store.close()
    assert_no_orphans([server], "fl")


@both
async def test_scripts_are_sent_again_when_the_server_forgot_them(
    single: RedisServer, prefix: str, blocking: bool
) -> None:
    store = await open_either(single.url(prefix=prefix), blocking)
    for _ in range(3):
        single.ask("SCRIPT", "FLUSH")
        await add(store, *some_tasks(450))
        single.ask("SCRIPT", "FLUSH")
        tasks = await store.claim(a_claim(limit=450))
        single.ask("SCRIPT", "FLUSH")
        assert await store.extend([a_beat(task) for task in tasks], lease=LEASE, now=NOW, grace=0) == [Pulse.HELD] * 450
        single.ask("SCRIPT", "FLUSH")
        assert await store.apply([a_settle(task, Completed()) for task in tasks]) == [Verdict.APPLIED] * 450
    await store.close()
    assert_no_orphans([single], prefix)


async def test_a_full_server_refuses_tasks_and_lets_workers_drain(server: RedisServer) -> None:
    store = await open_redis(server.url())
    tasks = some_tasks(300, parameters=b'{"x": "' + b"y" * 1000 + b'"}')
    await add(store, *tasks)
    used = int(server.ask("INFO", "memory").split(b"used_memory:")[1].split(b"\r")[0])
    server.ask("CONFIG", "SET", "maxmemory", used // 2)
    with pytest.raises(StoreFull, match="maxmemory"):
        await store.add([a_task()], now=NOW, bounds={})
    taken = await store.claim(a_claim(limit=300))
    assert len(taken) == 300
    beats = [a_beat(task) for task in taken]
    assert set(await store.extend(beats, lease=2 * LEASE, now=NOW, grace=0)) == {Pulse.HELD}
    assert set(await store.apply([a_settle(task, Completed(b"1")) for task in taken])) == {Verdict.APPLIED}
    ended = [task for task in await store.get(ids(taken)) if task is not None]
    assert {task.status.result for task in ended} == {b"1"}
    server.ask("CONFIG", "SET", "maxmemory", 0)
    assert await store.add([a_task()], now=NOW, bounds={}) == [Added()]
    await store.close()
    assert_no_orphans([server], "fl")


async def test_a_server_that_may_evict_tasks_is_warned_of(server: RedisServer) -> None:
    server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    with pytest.warns(RuntimeWarning, match="noeviction"):
        store = await open_redis(server.url())
    await store.close()


async def test_a_replica_takes_no_tasks(server: RedisServer) -> None:
    store = await open_redis(server.url())
    server.ask("REPLICAOF", "127.0.0.1", 1)
    with pytest.raises(StoreReadOnly):
        await store.add([a_task()], now=NOW, bounds={})
    await store.close()


async def test_a_wrong_password_is_named_at_once(server: RedisServer) -> None:
    server.ask("CONFIG", "SET", "requirepass", "secret")
    for url in (server.url(), f"redis://:wrong@127.0.0.1:{server.port}"):
        with pytest.raises(StoreRefused, match=r"nothing was done\. Check user and password") as refused:
            await open_redis(url)
        assert "repeat" not in str(refused.value)
    store = await open_redis(f"redis://:secret@127.0.0.1:{server.port}/3")
    await add(store, a_task())
    await store.close()


async def test_sentinels_that_let_nobody_in_are_no_outage(single: RedisServer) -> None:
    sentinel = RedisServer(sentinel=[f"sentinel monitor tasks 127.0.0.1 {single.port} 1"]).start()
    try:
        assert sentinel.ask("ACL", "SETUSER", "default", "resetpass", ">secret") == b"OK"
        url = f"redis+sentinel://127.0.0.1:{sentinel.port}/tasks"
        for asked in (url, f"{url}?sentinel_password=wrong"):
            with pytest.raises(StoreRefused, match=r"nothing was done\. Check user and password"):
                await open_redis(asked)
        await (await open_redis(f"{url}?sentinel_password=secret")).close()
    finally:
        sentinel.stop()


@both
async def test_a_password_that_is_changed_is_an_outage_to_those_who_work(server: RedisServer, blocking: bool) -> None:
    """It ends when the former one is allowed again, or they are started with the new one."""
    store = await open_either(server.url(), blocking)
    await add(store, a_task())
    server.ask("CONFIG", "SET", "requirepass", "secret")
    server.ask("AUTH", "secret")
    server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    for _ in range(2):
        with pytest.raises(StoreRefused):
            await store.add([a_task()], now=NOW, bounds={})
    server.ask("CONFIG", "SET", "requirepass", "")
    assert await store.add([a_task()], now=NOW, bounds={}) == [Added()]
    await store.close()


async def test_a_database_that_the_server_does_not_have_is_no_outage(server: RedisServer) -> None:
    with pytest.raises(StoreMismatch, match=r"nothing was done\. Name another database") as refused:
        await open_redis(f"redis://127.0.0.1:{server.port}/99")
    assert "repeat" not in str(refused.value)


async def test_a_submit_waits_for_its_replicas(server: RedisServer) -> None:
    store = await open_redis(server.url(replicas=1, timeout=60))
    task = a_task()
    adding = asyncio.create_task(store.add([task], now=NOW, bounds={}))
    async with asyncio.timeout(60):
        while not adding.done():
            await asyncio.to_thread(_end_waits, server)
            await asyncio.sleep(0.01)
    with pytest.raises(StoreUnavailable, match="0 of the 1 replicas"):
        await adding
    replica = RedisServer("--replicaof", "127.0.0.1", str(server.port)).start()
    try:
        until(lambda: b"state=online" in server.ask("INFO", "replication"), "the replica to follow")
        assert await store.add([task, a_task()], now=NOW, bounds={}) == [Known(), Added()]
    finally:
        await store.close()
        replica.stop()


def _end_waits(server: RedisServer) -> None:
    """Have the server answer its WAITs now, as it does when their time is over. There are two where the server does not
    know the script yet."""
    for client in server.ask("CLIENT", "LIST").splitlines():
        if b" cmd=wait " in client:
            server.ask("CLIENT", "UNBLOCK", client.split()[0].removeprefix(b"id=").decode())


async def test_the_clock_is_the_servers(single: RedisServer, prefix: str) -> None:
    """A client whose clock is wrong by an hour follows the server's."""
    store = await open_redis(single.url(prefix=prefix))
    host = ManualClock(time.time_ns() // 1_000 - HOUR)
    clock = FollowingClock(host)
    await clock.measure(store.time)
    assert abs(clock.now() - time.time_ns() // 1_000) < 5 * SECOND
    await store.close()


async def test_one_task_wakes_one_of_two_hundred_waiters(single: RedisServer, prefix: str) -> None:
    """Each waiter has a store of its own, as each worker has; none of them polls."""
    stores = [await open_redis(single.url(prefix=prefix)) for _ in range(200)]
    waiters = [asyncio.create_task(store.wait(["default"], 60)) for store in stores]
    await asyncio.to_thread(until, lambda: b"blocked_clients:200\r" in single.ask("INFO", "clients"), "200 waiters")
    calls = _calls(single)
    await asyncio.sleep(0.5)
    assert _calls(single) - calls < 5, "someone polls"
    submitter = await open_redis(single.url(prefix=prefix))
    waiting = set(waiters)
    for _ in range(3):
        await add(submitter, a_task())
        await asyncio.wait(waiting, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0.2)
        woken = {waiter for waiter in waiting if waiter.done()}
        assert len(woken) == 1
        waiting -= woken
    for waiter in waiters:
        waiter.cancel()
    await asyncio.gather(*waiters, return_exceptions=True)
    for store in (*stores, submitter):
        await store.close()


def _calls(server: RedisServer) -> int:
    return int(server.ask("INFO", "stats").split(b"total_commands_processed:")[1].split(b"\r")[0])


def test_blocking_threads_share_a_store(single: RedisServer, prefix: str) -> None:
    """Without an event loop: every coroutine runs to its end in one step."""
    store = run_inline(open_redis(single.url(prefix=prefix), blocking=True))
    taken: list[str] = []

    def work() -> None:
        run_inline(store.add(some_tasks(50), now=NOW, bounds={}))
        for _ in range(20):
            tasks = run_inline(store.claim(a_claim(limit=7)))
            run_inline(store.apply([a_settle(task, Completed()) for task in tasks]))
            taken.extend(task.id for task in tasks)
        run_inline(store.wait(["default"], 0.01))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rest = run_inline(store.claim(a_claim(limit=1000)))
    assert len(taken) + len(rest) == 300
    assert len(set(taken)) == len(taken)
    run_inline(store.close())
    assert_no_orphans([single], prefix)


async def test_an_empty_slot_is_forgotten_after_a_while(single: RedisServer, prefix: str) -> None:
    store = await open_redis(single.url(prefix=prefix))
    registry = f"{{{prefix}}}slots"
    task = a_task()
    await add(store, task, a_task(queue="other"))
    (taken,) = await store.claim(a_claim())
    assert single.ask("ZCARD", registry) == 2
    assert await store.forget_unused(0) == 0
    done = a_settle(taken, Completed())
    await store.apply([done])
    (ended,) = await store.get([taken.id])
    assert ended is not None
    await store.apply([a_removal(ended)])
    assert await store.forget_unused(3600) == 0
    assert await store.forget_unused(0) == 1
    assert single.ask("ZCARD", registry) == 1
    await store.close()
    assert_no_orphans([single], prefix)


async def test_the_rights_that_the_documentation_names_are_enough(server: RedisServer) -> None:
    server.ask("ACL", "SETUSER", "app", "on", ">secret", *DOCUMENTED_RIGHTS)
    store = await open_redis(f"redis://app:secret@127.0.0.1:{server.port}")
    await add(store, a_task(), *some_tasks(3))
    (task,) = await store.claim(a_claim())
    await store.extend([a_beat(task)], lease=LEASE, now=NOW, grace=0)
    await store.apply([a_settle(task, Completed())])
    assert len(await store.find(Filter(), limit=9)) == 4
    assert (await store.tally()).next_alarm is not None
    assert await store.due(NOW, 5) == []
    assert await store.put("kind", "name", b"value") == 1
    await store.wait(["default"], 0.01)
    assert await store.time()
    await store.close()
