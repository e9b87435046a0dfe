"""A worker is known while it works, drains when it is asked to, and leaves."""

from __future__ import annotations

import asyncio
import threading

from fairlead.core.errors import StoreUnavailable
from fairlead.core.identity import WorkerId
from fairlead.core.task import State
from fairlead.engine.worker_records import WorkerRecord, WorkerState
from fairlead.storage.memory import MemoryStore
from tests.worker.building import PATIENCE, Crew, eventually

ME = WorkerId("worker-1")


async def until_present(
    crew: Crew, state: WorkerState = WorkerState.ACTIVE, running: int | None = None
) -> WorkerRecord:
    """The worker, as soon as it is in this state and runs so many tasks."""
    async with asyncio.timeout(PATIENCE):
        while True:
            for worker in await crew.engine.worker_records.workers():
                if worker.state is state and running in (None, worker.running):
                    return worker
            await asyncio.sleep(0.005)


async def test_a_worker_is_known_while_it_works(crew: Crew) -> None:
    async def echo() -> None: ...

    crew.handle(echo)
    async with crew.working(concurrency=7):
        worker = await until_present(crew)
        assert (worker.id, worker.capacity, worker.queues, worker.types) == (ME, 7, ("default",), ("echo",))
        assert worker.pid > 0
        assert worker.version

    assert await crew.engine.worker_records.workers() == []


async def test_it_says_how_many_tasks_it_runs(crew: Crew) -> None:
    release = asyncio.Event()

    async def wait() -> None:
        await release.wait()

    crew.handle(wait)
    tasks = [await crew.submit("wait") for _ in range(2)]
    async with crew.working():
        for task in tasks:
            await crew.until(task, State.EXECUTING)
        await until_present(crew, running=2)
        release.set()


async def test_it_says_so_for_each_kind_of_handler(crew: Crew) -> None:
    release, released = asyncio.Event(), threading.Event()

    async def on_loop() -> None:
        await release.wait()

    def in_thread() -> None:
        released.wait()

    crew.handle(on_loop)
    crew.handle(in_thread)
    tasks = [await crew.submit("on_loop"), await crew.submit("in_thread"), await crew.submit("in_thread")]
    async with crew.working(concurrency=5, thread_concurrency=2):
        for task in tasks:
            await crew.until(task, State.EXECUTING)
        worker = await until_present(crew, running=3)
        assert worker.capacity == 7
        assert [(each.kind, each.running, each.capacity, each.types) for each in worker.slots] == [
            ("async", 1, 5, ("on_loop",)),
            ("thread", 2, 2, ("in_thread",)),
        ]
        release.set()
        released.set()


async def test_a_worker_that_is_asked_to_drain_ends_what_it_runs_and_leaves(crew: Crew) -> None:
    release = asyncio.Event()

    async def wait() -> str:
        await release.wait()
        return "in time"

    crew.handle(wait)
    first = await crew.submit("wait")
    running = asyncio.create_task(crew.worker().run())
    await crew.until(first, State.EXECUTING)
    await until_present(crew)
    await crew.engine.worker_records.ask_drain(ME)
    await until_present(crew, WorkerState.DRAINING)
    second = await crew.submit("wait")
    release.set()
    await asyncio.wait_for(running, PATIENCE)

    assert (await crew.engine.get(first.id)).status.result == b'"in time"'
    assert (await crew.engine.get(second.id)).state is State.QUEUED
    assert await crew.engine.worker_records.workers() == []


async def test_a_worker_that_was_forgotten_joins_again(crew: Crew) -> None:
    async with crew.working():
        await until_present(crew)
        await crew.store.drop("worker", ME)
        await until_present(crew)


async def test_a_worker_works_and_leaves_though_it_cannot_be_known() -> None:
    store = Aloof()
    crew = Crew(store=store)

    async def echo() -> None: ...

    crew.handle(echo)
    async with crew.working():
        await eventually(lambda: store.refused > 0)
        assert (await crew.until_ended(await crew.submit("echo"))).state is State.COMPLETED


class Aloof(MemoryStore):
    """Takes no records."""

    refused = 0

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        self.refused += 1
        raise StoreUnavailable("no records here")

    async def drop(self, kind: str, name: str, *, expected: int | None = None) -> bool:
        raise StoreUnavailable("no records here")
