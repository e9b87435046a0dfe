"""The doorbell: a submit wakes one idle waiter, in whichever process it waits."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from fairlead.storage.sqlite.file_permissions import bells_of
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.storage.sqlite.wait import Doorbell
from fairlead.testing.builders import a_task, some_tasks
from fairlead.testing.steps import add
from tests.storage.sqlite.waiting import until

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes on this system")

_LONG = 60.0
_SHORT = 4.0
_QUEUES = ["default"]


def open_files() -> int:
    """How many descriptors this process has open."""
    return sum(1 for _ in Path("/dev/fd").iterdir())


def wait_in_a_process(line: Connection[Any, Any], path: Path, timeout: float) -> None:
    """Wait, and tell whether something was heard before the time was over."""

    async def wait() -> bool:
        store = SqliteStore(path)
        await store.wait(_QUEUES, 0)
        line.send("listening")
        began = time.monotonic()
        await store.wait(_QUEUES, timeout)
        heard = time.monotonic() - began < timeout
        await store.close()
        return heard

    line.send(asyncio.run(wait()))


@contextmanager
def waiting_processes(count: int, path: Path, timeout: float) -> Iterator[list[Connection[Any, Any]]]:
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        lines = []
        for _ in range(count):
            here, there = context.Pipe()
            process = context.Process(target=wait_in_a_process, args=(there, path, timeout), daemon=True)
            process.start()
            stack.callback(process.join)
            stack.callback(process.kill)
            stack.callback(here.close)
            there.close()
            lines.append(here)
        for line in lines:
            assert line.poll(_LONG)
            assert line.recv() == "listening"
        yield lines


@pytest.mark.slow
async def test_a_submit_wakes_a_waiter_in_another_process(store: SqliteStore, path: Path) -> None:
    with waiting_processes(1, path, _LONG) as (line,):
        await add(store, a_task())
        assert await asyncio.to_thread(line.recv)


@pytest.mark.slow
async def test_a_submit_wakes_one_of_several_processes(store: SqliteStore, path: Path) -> None:
    with waiting_processes(3, path, _SHORT) as lines:
        await add(store, a_task())
        assert sorted([line.recv() for line in lines]) == [False, False, True]


async def test_a_submit_wakes_one_of_several_waiters_of_an_event_loop(store: SqliteStore) -> None:
    waiters = [asyncio.create_task(store.wait(_QUEUES, _LONG)) for _ in range(8)]
    await asyncio.sleep(0)
    for number in range(1, 9):
        await add(store, a_task())
        await until(lambda woken=number: sum(waiter.done() for waiter in waiters) >= woken)  # type: ignore[misc]
        # The others have had the same occasion to take the ring.
        await asyncio.sleep(0.01)
        assert sum(waiter.done() for waiter in waiters) == number


async def test_a_submit_wakes_one_of_several_threads(path: Path) -> None:
    bell = Doorbell(path)
    bell.wait_blocking(_QUEUES, 0)

    def wait(_: int) -> float:
        start = time.monotonic()
        bell.wait_blocking(_QUEUES, _SHORT)
        return time.monotonic() - start

    with ThreadPoolExecutor(6) as threads:
        waits = threads.map(wait, range(6))
        bell.ring({"default": 1})
        assert sum(seconds >= _SHORT for seconds in waits) == 5
    bell.close()


async def test_the_first_waiter_of_a_file_in_long_use_is_woken(path: Path) -> None:
    """Who has found that nobody has ever waited looks again when somebody may."""
    submitter = SqliteStore(path)
    while submitter._bell._silent is None:
        await add(submitter, a_task())
    waiting = SqliteStore(path)
    waiter = asyncio.create_task(waiting.wait(_QUEUES, _LONG))
    await until(lambda: bells_of(path).exists())
    start = time.monotonic()
    while not waiter.done() and time.monotonic() - start < _LONG / 2:
        await add(submitter, a_task())
    assert waiter.done()
    for store in (submitter, waiting):
        await store.close()


async def test_a_submit_of_many_wakes_as_many(store: SqliteStore) -> None:
    waiters = [asyncio.create_task(store.wait(_QUEUES, _LONG)) for _ in range(8)]
    await asyncio.sleep(0)
    await add(store, *some_tasks(5))
    await until(lambda: sum(waiter.done() for waiter in waiters) == 5)
    await add(store, *some_tasks(3))
    await asyncio.gather(*waiters)


async def test_a_submit_between_two_waits_is_not_missed(store: SqliteStore) -> None:
    await store.wait(_QUEUES, 0)
    await add(store, a_task())
    start = time.monotonic()
    await store.wait(_QUEUES, _LONG)
    assert time.monotonic() - start < _LONG / 2


async def test_a_busy_time_leaves_few_rings_behind(path: Path) -> None:
    """An idle worker looks in vain for each of them."""
    bell = Doorbell(path)
    await bell.wait(_QUEUES, 0)
    for _ in range(10_000):
        bell.ring({"default": 1})
    in_vain = 0
    while True:
        start = time.monotonic()
        await bell.wait(_QUEUES, 0.2)
        if time.monotonic() - start >= 0.2:
            break
        in_vain += 1
    bell.close()
    assert 0 < in_vain <= 64


async def test_a_waiter_cancelled_when_it_was_just_woken_gives_the_ring_to_another(store: SqliteStore) -> None:
    await store.wait(_QUEUES, 0)
    cancelled = 0
    # So many turns of the loop after the ring, the waiter has not heard it yet, has just heard it, or has returned.
    for turns in range(6):
        waiter = asyncio.create_task(store.wait(_QUEUES, _LONG))
        await asyncio.sleep(0)
        store._bell.ring({"default": 1})
        for _ in range(turns):
            await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.wait([waiter])
        if waiter.cancelled():
            cancelled += 1
            async with asyncio.timeout(_LONG / 2):
                await store.wait(_QUEUES, _LONG)
    assert cancelled > 1


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_thousand_waits_leave_no_descriptor_open(path: Path, blocking: bool) -> None:
    store = SqliteStore(path, blocking=blocking)
    queues = ["a", "b", "c"]
    await store.wait(queues, 0)
    await add(store, a_task(queue="a"))
    await store.wait(queues, 0.01)
    before = open_files()
    for _ in range(1_000):
        await store.wait(queues, 0)
    waits = [asyncio.create_task(store.wait(queues, _LONG)) for _ in range(0 if blocking else 100)]
    await asyncio.sleep(0)
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
    assert open_files() == before
    await store.close()


async def test_a_closed_store_leaves_no_descriptor_open(path: Path) -> None:
    await SqliteStore(path).close()
    before = open_files()
    for _ in range(20):
        store = SqliteStore(path)
        await store.wait(_QUEUES, 0)
        await add(store, a_task())
        await store.close()
    assert open_files() == before


def test_a_thread_can_wait_in_a_process_with_very_many_files_open(path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2_048:
        pytest.skip(f"this user may open only {hard} files")
    bell = Doorbell(path)
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        for _ in range(1_100):
            stack.callback(os.close, os.open("/dev/null", os.O_RDONLY))
        bell.wait_blocking(_QUEUES, 0)
        bell.ring({"default": 1})
        start = time.monotonic()
        bell.wait_blocking(_QUEUES, _LONG)
        assert time.monotonic() - start < _LONG / 2
    bell.close()


def a_file_in_its_place(folder: Path) -> None:
    folder.write_text("no folder")


def a_folder_without_pipes(folder: Path) -> None:
    (folder / "default.bell").mkdir(parents=True)


def a_dangling_link(folder: Path) -> None:
    folder.symlink_to(folder / "nowhere")


@pytest.mark.parametrize("hindrance", [a_file_in_its_place, a_folder_without_pipes, a_dangling_link])
async def test_without_a_doorbell_waiters_look_often(path: Path, hindrance: Callable[[Path], None]) -> None:
    hindrance(path.with_name(path.name + "-bells"))
    store = SqliteStore(path)
    for _ in range(3):
        start = time.monotonic()
        await store.wait(_QUEUES, _LONG)
        store._bell.wait_blocking(_QUEUES, _LONG)
        assert time.monotonic() - start < _LONG / 2
        await add(store, a_task())
    await store.close()


@pytest.mark.parametrize("queue", [".", "..", "a:b", "x" * 200])
async def test_every_queue_name_has_a_doorbell(store: SqliteStore, queue: str) -> None:
    await store.wait([queue], 0)
    await add(store, a_task(queue=queue))
    start = time.monotonic()
    await store.wait([queue], _LONG)
    assert time.monotonic() - start < _LONG / 2
    assert store._bell._listen([queue]) != []
