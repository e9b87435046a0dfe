"""A worker leaves alone what is paused, goes on with what it runs, and notices a resume."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.core.task import State
from tests.worker.building import Crew, eventually


async def test_what_is_paused_waits_and_what_runs_goes_on() -> None:
    crew = Crew()
    gate = asyncio.Event()

    async def slow() -> None:
        await gate.wait()

    async def quick() -> None:
        return None

    crew.handle(slow)
    crew.handle(quick)
    async with crew.working():
        running = await crew.until(await crew.submit("slow"), State.EXECUTING)
        await crew.engine.queues.pause_type("slow")
        held = await crew.submit("slow")
        await crew.until(await crew.submit("quick"), State.COMPLETED)
        await crew.engine.queues.pause("default")
        later = await crew.submit("quick")
        gate.set()
        await crew.until(running, State.COMPLETED)
        assert [(await crew.engine.get(task.id)).state for task in (held, later)] == [State.QUEUED] * 2
        await crew.engine.queues.resume("default")
        await crew.until(later, State.COMPLETED)
        assert (await crew.engine.get(held.id)).state is State.QUEUED
        await crew.engine.queues.resume_type("slow")
        await crew.until(held, State.COMPLETED)


async def test_a_paused_worker_finishes_what_it_runs_and_takes_more_once_it_is_resumed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "fairlead.worker")
    crew = Crew()
    gate = asyncio.Event()

    async def slow() -> None:
        await gate.wait()

    crew.handle(slow)
    async with crew.working() as worker:
        running = await crew.until(await crew.submit("slow"), State.EXECUTING)
        await eventually(lambda: bool(crew.engine.worker_records._known), "the worker to have joined")
        await crew.engine.workers.pause("worker-1")
        await eventually(lambda: worker._paused, "the pause")
        later = await crew.submit("slow")
        gate.set()
        await crew.until(running, State.COMPLETED)
        assert (await crew.engine.get(later.id)).state is State.QUEUED
        await crew.engine.workers.resume("worker-1")
        await crew.until(later, State.COMPLETED)
    assert [record.message for record in caplog.records if "claiming" in record.message] == [
        "paused: claiming no more until resumed",
        "resumed: claiming again",
    ]


async def test_a_paused_worker_drains_and_leaves() -> None:
    crew = Crew()
    worker = crew.worker()
    running = asyncio.create_task(worker.run())
    await eventually(lambda: bool(crew.engine.worker_records._known), "the worker to have joined")
    await crew.engine.workers.pause("worker-1")
    await eventually(lambda: worker._paused, "the pause")
    await crew.engine.workers.drain("worker-1")
    await asyncio.wait_for(running, 60)
    assert await crew.engine.workers.all() == []
    assert await crew.store.scan("pause") == []


async def test_a_worker_that_waits_for_a_place_heeds_a_pause_too() -> None:
    crew = Crew()
    gate = asyncio.Event()

    async def one_by_one() -> None:
        await gate.wait()

    crew.handle(one_by_one)
    await crew.engine.queues.change("default", running=1)
    async with crew.working() as worker:
        first = await crew.until(await crew.submit("one_by_one"), State.EXECUTING)
        second = await crew.submit("one_by_one")
        await eventually(lambda: bool(crew.engine.worker_records._known), "the worker to have joined")
        await crew.engine.workers.pause("worker-1")
        await eventually(lambda: worker._paused, "the pause")
        gate.set()
        await crew.until(first, State.COMPLETED)
        assert (await crew.engine.get(second.id)).state is State.QUEUED
        await crew.engine.workers.resume("worker-1")
        await crew.until(second, State.COMPLETED)


async def test_a_worker_that_is_asked_to_drain_ends_what_it_runs_and_leaves() -> None:
    crew = Crew()
    gate = asyncio.Event()

    async def slow() -> None:
        await gate.wait()

    crew.handle(slow)
    worker = crew.worker(drain_seconds=60.0)
    running = asyncio.create_task(worker.run())
    task = await crew.until(await crew.submit("slow"), State.EXECUTING)
    await crew.engine.workers.drain("worker-1")
    await eventually(worker._leaving.is_set, "the drain")
    gate.set()
    await asyncio.wait_for(running, 60)
    assert (await crew.engine.get(task.id)).state is State.COMPLETED
    assert await crew.engine.workers.all() == []
