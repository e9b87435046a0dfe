"""Claims that wait, at their worst moments: whatever happens, a task is run, or ready again.

What is cut or cancelled here is so at moments that no test can name, so each is tried many times over.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.core.errors import StoreError, StoreUnavailable
from fairlead.core.identity import WorkerId
from fairlead.core.instant import MILLISECOND, SECOND
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission
from fairlead.core.task import State, Task
from fairlead.storage.redis.keys import Keys
from fairlead.storage.redis.store import RedisStore, open_redis
from fairlead.storage.values import Claim
from fairlead.testing.builders import NOW, a_claim, a_task
from fairlead.testing.steps import add, contents, ids
from fairlead.worker.handlers import Handler, Handlers
from fairlead.worker.keeper.keeper import ThreadKeeper
from fairlead.worker.source import EngineSource
from fairlead.worker.worker import Worker, WorkerSettings
from tests.servers.redis import RedisCluster, RedisServer
from tests.storage.redis.orphans import assert_no_orphans

LONG: Final = 300.0
PATIENCE: Final = 60.0
ROUNDS: Final = 60
SETTINGS: Final = Settings(lease=4 * SECOND, heartbeat=100 * MILLISECOND, sweep_interval=50 * MILLISECOND)


async def until_blocked(server: RedisServer, count: int = 1) -> None:
    """Return when so many clients wait for a ring."""
    async with asyncio.timeout(PATIENCE):
        while f"blocked_clients:{count}\r".encode() not in server.ask("INFO", "clients"):  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def spin(seconds: float) -> None:
    """Let other coroutines run for so long, or hardly longer."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:  # noqa: ASYNC110 - moments that nothing tells of are what is sought
        await asyncio.sleep(0)


@asynccontextmanager
async def waiting(
    server: RedisServer, store: RedisStore, claim: Claim
) -> AsyncIterator[asyncio.Task[list[Task] | None]]:
    """A claim that waits, and does so in the server."""
    waiter = asyncio.create_task(store.wait_and_claim(claim, LONG))
    try:
        await until_blocked(server)
        yield waiter
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([waiter])
    finally:
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)


async def test_a_task_is_claimed_where_the_bell_is_rung(server: RedisServer) -> None:
    """The claim was sent with the wait, which brings the task."""
    store = await open_redis(server.url())
    assert await store.claim(a_claim()) == []
    task = a_task()
    async with waiting(server, store, a_claim()) as waiter:
        await add(store, task)
    assert ids(await waiter or []) == [task.id]
    await store.close()
    assert_no_orphans([server], "fl")


async def test_a_claim_that_the_server_has_forgotten_is_to_be_made_again(server: RedisServer) -> None:
    store = await open_redis(server.url())
    await add(store, first := a_task())
    assert ids(await store.claim(a_claim())) == [first.id]
    async with waiting(server, store, a_claim()) as waiter:
        server.ask("SCRIPT", "FLUSH")
        await add(store, second := a_task())
    assert await waiter is None
    assert ids(await store.claim(a_claim())) == [second.id]
    await store.close()
    assert_no_orphans([server], "fl")


async def test_a_claim_of_tasks_with_concurrency_keys_is_to_be_made_again(server: RedisServer) -> None:
    """It takes another script, which goes by what runs; the next wait claims nothing from the start."""
    store = await open_redis(server.url())
    for key in ("one", "other"):
        task = a_task(concurrency_key=key)
        async with waiting(server, store, a_claim()) as waiter:
            await add(store, task)
        assert await waiter is None
        assert ids(await store.claim(a_claim())) == [task.id]
    await store.close()
    assert_no_orphans([server], "fl")


async def test_a_doorbell_that_is_none_is_an_error_and_no_busy_loop(server: RedisServer) -> None:
    store = await open_redis(server.url())
    doorbell = Keys("fl").doorbell("default")
    server.ask("SET", doorbell, "something else")
    with pytest.raises(StoreError, match="prefix of its own"):
        await store.wait_and_claim(a_claim(), LONG)
    server.ask("DEL", doorbell)
    await store.close()


async def test_queues_on_several_servers_are_claimed_from_in_a_step_of_its_own(
    cluster: RedisCluster, prefix: str
) -> None:
    store = await open_redis(cluster.url(prefix=prefix))
    queues = [f"queue-{number}" for number in range(5)]
    assert await store.wait_and_claim(a_claim(*queues), 0.01) is None
    await add(store, task := a_task(queue=queues[0]))
    tasks = await store.wait_and_claim(a_claim(queues[0]), LONG)
    assert ids(tasks or await store.claim(a_claim(queues[0]))) == [task.id]
    await store.close()
    assert_no_orphans(cluster.servers, prefix)


async def test_a_connection_that_is_cut_takes_no_task_with_it(server: RedisServer) -> None:
    """The server drops what it held up: a claim that has not begun never will."""
    store = await open_redis(server.url())
    async with waiting(server, store, a_claim()) as waiter:
        server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    with pytest.raises(StoreUnavailable):
        await waiter
    await add(store, task := a_task())
    assert ids(await store.claim(a_claim())) == [task.id]
    await store.close()
    assert_no_orphans([server], "fl")


async def test_a_server_that_hangs_does_not_keep_a_cancelled_claim(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    store = await open_redis(server.url(timeout=0.3))
    async with waiting(server, store, a_claim()) as waiter:
        server.pause()
        waiter.cancel()
    with pytest.raises(StoreUnavailable, match="does not say what became of a claim"):
        await waiter
    server.resume()
    await add(store, task := a_task())
    assert ids(await store.claim(a_claim())) == [task.id]
    await store.close()
    del waiter
    gc.collect()
    assert caplog.messages == []


async def test_a_claim_cancelled_while_the_bell_rings_has_the_task_or_leaves_it(server: RedisServer) -> None:
    """And the doorbells by which claims were called back are gone soon."""
    store = await open_redis(server.url())
    dice = random.Random(1)
    for _ in range(ROUNDS):
        task = a_task()
        async with waiting(server, store, a_claim()) as waiter:
            adding = asyncio.create_task(add(store, task))
            await spin(dice.random() * 0.001)
            waiter.cancel()
        await adding
        got = None if waiter.cancelled() else waiter.result()
        assert ids(got or await store.claim(a_claim())) == [task.id]
    assert {task.state for task in await contents(store)} == {State.EXECUTING}
    await store.close()
    assert_no_orphans([server], "fl")


async def test_a_worker_that_is_gone_holds_no_task_longer_than_its_lease(server: RedisServer) -> None:
    """Its connections close at any moment around a ring, as they do when it is killed."""
    store = await open_redis(server.url())
    dice = random.Random(2)
    for _ in range(ROUNDS):
        task, victim = a_task(), await open_redis(server.url())
        async with waiting(server, victim, claim := a_claim()) as waiter:
            adding = asyncio.create_task(add(store, task))
            await spin(dice.random() * 0.001)
            await victim.close()
            waiter.cancel()
        await adding
        await asyncio.gather(waiter, return_exceptions=True)
        (stored,) = await store.get([task.id])
        assert stored is not None
        if stored.state is State.QUEUED:
            assert ids(await store.claim(a_claim())) == [task.id]
        else:
            lease = stored.status.lease
            assert lease is not None
            assert (lease.token, stored.status.alarm) == (claim.token, lease.until)
            assert task.id in ids(await store.due(lease.until, ROUNDS))
    await store.close()
    assert_no_orphans([server], "fl")


class Crew:
    """A store on a real server, and workers that come and go."""

    def __init__(self, store: RedisStore, keeping: RedisStore) -> None:
        self.engine = AdminEngine(store, SETTINGS)
        self.runs: set[int] = set()
        self._keeping = keeping
        self._handlers = Handlers()
        self._handlers.add(Handler("note", self._note))

    async def _note(self, number: int) -> None:
        self.runs.add(number)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[Worker]:
        """A worker that works, and leaves at the end."""
        source = EngineSource(self.engine, WorkerId("worker-1"), ["default"], [], self._handlers.types)
        keeper = ThreadKeeper(AdminEngine(self._keeping, SETTINGS, batching=False))
        worker = Worker(source, self._handlers, keeper, WorkerSettings(concurrency=4))
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.leave()
            await asyncio.wait_for(running, PATIENCE)

    async def submit(self, number: int) -> None:
        while True:
            with contextlib.suppress(StoreUnavailable):
                await self.engine.submit(
                    Submission(type="note", parameters=b'{"number": %d}' % number, idempotency_key=str(number))
                )
                return

    async def until_all_ended(self) -> list[Task]:
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(StoreUnavailable):
                    tasks = await contents(self.engine.store)
                    if all(task.state.ended for task in tasks):
                        return tasks
                await asyncio.sleep(0.02)


@pytest.fixture
async def crew(server: RedisServer) -> AsyncIterator[Crew]:
    store, keeping = await open_redis(server.url()), await open_redis(server.url(), blocking=True)
    crew = Crew(store, keeping)
    await crew.engine.follow_clock()
    yield crew
    await crew.engine.close()
    await keeping.close()
    assert_no_orphans([server], "fl")


async def test_a_connection_cut_while_a_script_is_sent_again_is_an_outage(server: RedisServer) -> None:
    """The server knows no scripts, and is gone before it has learnt this one."""
    store = await open_redis(server.url())
    dice = random.Random(5)
    for _ in range(ROUNDS):
        server.ask("SCRIPT", "FLUSH")
        adding = asyncio.create_task(store.add([a_task()], now=NOW, bounds={}))
        await spin(dice.random() * 0.001)
        server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        with contextlib.suppress(StoreUnavailable):
            await adding
    await store.close()
    assert_no_orphans([server], "fl")


async def test_workers_that_leave_while_tasks_come_lose_none_and_crash_none(server: RedisServer, crew: Crew) -> None:
    """What a leaving worker was given in its last moment, it runs or hands back: no lease has to end for that."""
    dice = random.Random(3)
    for number in range(ROUNDS):
        async with crew.working() as worker:
            await until_blocked(server)
            submitting = asyncio.create_task(crew.submit(number))
            await spin(dice.random() * 0.002)
            worker.leave()
        await submitting
    async with crew.working():
        tasks = await crew.until_all_ended()
    assert len(tasks) == ROUNDS
    assert {(task.state, task.status.crashes) for task in tasks} == {(State.COMPLETED, 0)}
    assert crew.runs == set(range(ROUNDS))


async def test_a_worker_whose_connections_are_cut_while_tasks_come_runs_them_all(
    server: RedisServer, crew: Crew
) -> None:
    """What was given to a connection that is gone is run when its lease has ended."""
    dice = random.Random(4)
    async with crew.working():
        for number in range(12):
            await until_blocked(server)
            submitting = asyncio.create_task(crew.submit(number))
            await spin(dice.random() * 0.002)
            server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            await submitting
        tasks = await crew.until_all_ended()
        # A worker whose last claim was cut off says so when it leaves.
        await until_blocked(server)
    assert {task.state for task in tasks} == {State.COMPLETED}
    assert crew.runs == set(range(12))
