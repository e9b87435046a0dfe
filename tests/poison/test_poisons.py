"""Whatever a handler raises, returns or does, in whatever place: one outcome is stored that tells it.

And the worker lives on, where that is possible: after each poison a good task runs in the same worker.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.app.connection import Connection
from fairlead.core.identity import TaskId
from fairlead.core.submission import Submission
from fairlead.core.task import Reason, State, Task
from tests.e2e.processes import WorkerProcess
from tests.poison.ends import (
    DEADLY,
    HARMLESS,
    HOLDS_UP,
    LOOP,
    LOSES_ITS_WORKER,
    PLACES,
    SPOILS,
    THREAD,
    TIMES_OUT,
)
from tests.poison.poisons import POISONS, SETTINGS
from tests.servers import redis

PATIENCE: Final = 240.0
_LONG: Final = 120_000_000
"""The timeout of what is not to time out, in microseconds: the machine may be busy with other things."""

SLOTS: Final = ("--concurrency", "20", "--thread-concurrency", "20", "--isolated-concurrency", "20")
"""Enough for handlers that never end, wherever they run."""


class Cellar:
    """A store, and workers that take poison from it."""

    def __init__(self, folder: Path, engine: AdminEngine, url: str) -> None:
        self.folder = folder
        self.engine = engine
        self.url = url
        self.workers: list[WorkerProcess] = []

    def hire(self, queue: str, *arguments: str, lease: int = 30) -> WorkerProcess:
        name, given = f"worker-{queue}-{len(self.workers)}", ("--queues", queue, *arguments)
        worker = WorkerProcess(self.folder, self.url, name, *given, app="tests.poison.poisons:app", lease=lease)
        self.workers.append(worker)
        return worker

    async def submit(self, task_type: str, queue: str, timeout: int = _LONG, **parameters: object) -> TaskId:
        wish = Submission(
            type=task_type,
            queue=queue,
            parameters=msgspec.json.encode(parameters),
            timeout=timeout,
            max_retries=0,
            max_crashes=0,
        )
        return (await self.engine.submit(wish)).task.id

    async def until_started(self, task: TaskId, beats: int = 0) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            found = await self.engine.get(task)
            if found.state is State.EXECUTING and found.status.beats >= beats:
                return
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)

    async def ends(self, tasks: Sequence[TaskId]) -> list[Task]:
        """The tasks when all have ended, or as they are when that takes too long."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = [task for task in await self.engine.store.get(tasks) if task is not None]
            if all(task.state.ended for task in found) or time.monotonic() > deadline:
                return found
            await asyncio.sleep(0.05)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[redis.RedisServer]:
    yield from redis.started_single()


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in [name for name in os.environ if name.startswith("FAIRLEAD_")]:
        monkeypatch.delenv(name)
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'poison.db'}"
        return
    server: redis.RedisServer = request.getfixturevalue("redis_server")
    yield server.url()
    server.ask("FLUSHALL")


@asynccontextmanager
async def opened(folder: Path, url: str) -> AsyncIterator[Cellar]:
    connection = Connection(url, SETTINGS)
    cellar = Cellar(folder, await connection.engine(), url)
    try:
        yield cellar
    finally:
        for worker in cellar.workers:
            worker.end()
        await connection.close()


def test_every_poison_is_taken_somewhere() -> None:
    everywhere = {(place, name) for place in PLACES for name in POISONS}
    # In other places than this it would write into the store's own file, or over its connections.
    left_out = {(place, "writes_to_every_descriptor") for place in (LOOP, THREAD)}
    # There it would have to be noticed that the worker stands still, as where somebody else has stopped it.
    left_out |= {(place, "stops_itself") for place in (LOOP, THREAD)}
    # Where there are more threads such a child may wait for ever for one that it does not have.
    left_out |= {(place, "forks_past_python") for place in (LOOP, THREAD)}
    assert HARMLESS.keys() | DEADLY.keys() | {(LOOP, name) for name in HOLDS_UP} == everywhere - left_out


def timeout_of(place: str, name: str) -> int:
    return 1_000_000 if HARMLESS[place, name] == TIMES_OUT else _LONG


def wrong_of(ends: Mapping[tuple[str, str], Task]) -> dict[tuple[str, str], object]:
    """What has ended otherwise than it should."""
    return {
        key: (end.status.state, end.status.reason, end.status.failure, end.status.result and end.status.result[:99])
        for key, end in ends.items()
        if not HARMLESS[key].matches(end)
    }


@pytest.mark.slow
async def test_what_a_worker_survives_has_an_outcome_that_tells_it(tmp_path: Path, url: str) -> None:
    async with opened(tmp_path, url) as cellar:
        taken: dict[tuple[str, str], TaskId] = {}
        good: list[TaskId] = []
        for number, (place, name) in enumerate(key for key in HARMLESS if key[1] not in SPOILS):
            taken[place, name] = await cellar.submit(place, place, timeout_of(place, name), poison=name)
            good.append(await cellar.submit(f"good_{place}", place, number=number))
        workers = [cellar.hire(place, "--concurrency", "4") for place in PLACES]
        ends = dict(zip(taken, await cellar.ends([*taken.values()]), strict=True))
        fine = await cellar.ends(good)

        assert wrong_of(ends) == {}, [worker.log[-5_000:] for worker in workers]
        assert [task.status.result for task in fine] == [b"%d" % number for number in range(len(good))]
        assert all(task.status.attempts == 1 for task in fine)
        for worker in workers:
            worker.send(signal.SIGTERM)
        assert [await asyncio.to_thread(worker.wait) for worker in workers] == [0, 0, 0]


@pytest.mark.slow
async def test_a_worker_goes_on_and_leaves_well_whatever_was_spoilt_in_it(tmp_path: Path, url: str) -> None:
    async with opened(tmp_path, url) as cellar:
        workers = [cellar.hire(place, *SLOTS) for place in PLACES]
        for name in SPOILS:
            taken = [await cellar.submit(place, place, timeout_of(place, name), poison=name) for place in PLACES]
            ends = {(end.spec.type, name): end for end in await cellar.ends(taken)}
            assert wrong_of(ends) == {}, [worker.log[-5_000:] for worker in workers]
            good = [await cellar.submit(f"good_{kind}", place, number=7) for place in PLACES for kind in PLACES]
            fine = await cellar.ends(good)
            assert [(task.status.result, task.status.attempts) for task in fine] == [(b"7", 1)] * len(good), name
        for worker in workers:
            worker.send(signal.SIGTERM)
        assert [await asyncio.to_thread(worker.wait) for worker in workers] == [0, 0, 0]


@pytest.mark.slow
async def test_what_is_the_end_of_a_worker_is_told_as_that(tmp_path: Path, url: str) -> None:
    async with opened(tmp_path, url) as cellar:
        doomed: dict[tuple[str, str], WorkerProcess] = {}
        taken: list[TaskId] = []
        for place, name in DEADLY:
            queue = f"{place}-{name}"
            taken.append(await cellar.submit(place, queue, poison=name))
            doomed[place, name] = cellar.hire(queue, "--concurrency", "1", lease=2)
        codes = {key: await asyncio.to_thread(worker.wait) for key, worker in doomed.items()}
        # Someone who sweeps.
        cellar.hire("default", lease=2)
        ends = await cellar.ends(taken)

    assert codes == {key: code for key, (code, _) in DEADLY.items()}, [worker.log for worker in doomed.values()]
    for key, (_, word) in DEADLY.items():
        assert word in doomed[key].log
    assert [task.status.failure for task in ends if not LOSES_ITS_WORKER.matches(task)] == []


@pytest.mark.slow
async def test_what_holds_up_the_event_loop_past_the_timeout_has_timed_out(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What holds it up ends, and its keeper is to say it before that.
    monkeypatch.setenv("POISON_GRACE", "4")
    async with opened(tmp_path, url) as cellar:
        taken = [await cellar.submit(LOOP, f"{LOOP}-{name}", 1_000_000, poison=name) for name in HOLDS_UP]
        workers = [cellar.hire(f"{LOOP}-{name}") for name in HOLDS_UP]
        good = await cellar.submit("good_on_loop", f"{LOOP}-blocks", number=1)
        ends = await cellar.ends(taken)
        (fine,) = await cellar.ends([good])
        assert [task.status for task in ends if not TIMES_OUT.matches(task)] == []
        assert fine.status.result == b"1"
        assert all(worker.running for worker in workers)


@pytest.mark.slow
async def test_what_swallows_its_cancel_is_handed_back_when_its_worker_leaves(tmp_path: Path, url: str) -> None:
    async with opened(tmp_path, url) as cellar:
        taken = await cellar.submit(LOOP, LOOP, poison="swallows_cancel")
        # Long enough for the store to answer the claim that is under way.
        worker = cellar.hire(LOOP, "--drain-seconds", "3")
        await cellar.until_started(taken)
        worker.send(signal.SIGTERM)
        assert await asyncio.to_thread(worker.wait) == 0, worker.log
        task = await cellar.engine.get(taken)
        assert (task.state, task.status.reason, task.status.crashes) == (State.QUEUED, Reason.HANDED_BACK, 0)
        assert "its handler ignores the request to stop (hand back); leaving it running" in worker.log


@pytest.mark.slow
async def test_what_can_neither_be_settled_nor_handed_back_is_said_by_exit_code_and_log(
    tmp_path: Path, url: str, redis_server: redis.RedisServer
) -> None:
    """Though its handler keeps the event loop from being closed."""
    async with opened(tmp_path, url) as cellar:
        taken = await cellar.submit(LOOP, LOOP, poison="swallows_cancel")
        worker = cellar.hire(LOOP, "--drain-seconds", "0.1")
        # A heartbeat came: the worker knows that it has the task.
        await cellar.until_started(taken, beats=1)
        with out_of_order(cellar, redis_server):
            worker.send(signal.SIGTERM)
            code = await asyncio.to_thread(worker.wait)
        assert code == 1, worker.log
        assert "1 tasks were neither settled nor handed back when the worker left" in worker.log


@contextmanager
def out_of_order(cellar: Cellar, server: redis.RedisServer) -> Iterator[None]:
    """Nobody can write to the store meanwhile."""
    if cellar.url.startswith("redis"):
        server.pause()
        try:
            yield
        finally:
            server.resume()
        return
    with closing(sqlite3.connect(cellar.url.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
