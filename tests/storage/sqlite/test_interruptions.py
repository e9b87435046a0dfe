"""Callers that go away: cancelled, with their loop closed, or forked."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from fairlead.core.errors import StoreUnavailable
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.testing.builders import a_claim, a_task, some_tasks
from fairlead.testing.steps import add, contents
from tests.storage.sqlite.surveying import survey


async def test_a_cancelled_caller_does_not_disturb_the_others(store: SqliteStore, path: Path) -> None:
    for _ in range(20):
        calls = [asyncio.create_task(add(store, task)) for task in some_tasks(10)]
        await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert answers[1::2] == [None] * 5
        assert all(isinstance(answer, asyncio.CancelledError) for answer in answers[::2])
    # A cancelled call is one whose outcome is unknown; here it had reached the store.
    assert len(await contents(store)) == 200
    assert survey(path) == {"queued": 200}


def test_a_loop_closed_while_calls_are_under_way_does_not_disturb_the_store(path: Path) -> None:
    store = SqliteStore(path)
    go = threading.Event()

    async def call_and_leave() -> None:
        asyncio.create_task(store._writer.run(lambda _: go.wait(30)))  # noqa: RUF006
        for task in some_tasks(10):
            asyncio.create_task(add(store, task))  # noqa: RUF006
        await asyncio.sleep(0)

    async def go_on() -> None:
        await add(store, a_task())
        await store.close()

    asyncio.run(call_and_leave())
    go.set()
    asyncio.run(go_on())
    assert survey(path) == {"queued": 11}


def test_loops_that_close_at_any_moment_do_not_disturb_the_store(path: Path) -> None:
    store = SqliteStore(path, synchronous="NORMAL")

    async def call_and_leave(turns: int) -> None:
        calls = [asyncio.create_task(add(store, task)) for task in some_tasks(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        for call in calls:
            call.cancel()

    for number in range(100):
        asyncio.run(call_and_leave(number % 10))
    asyncio.run(asyncio.wait_for(add(store, a_task()), 30))
    asyncio.run(store.close())
    survey(path)


@pytest.mark.parametrize("blocking", [False, True])
def test_a_store_opened_before_a_fork_refuses_to_work_after_it(path: Path, blocking: bool) -> None:
    store = SqliteStore(path, blocking=blocking)
    run(store, add(store, a_task()))
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=use_after_fork, args=(there, store))
    child.start()
    there.close()
    assert here.poll(30), "the forked process hangs"
    assert here.recv() == ["tasks.db was opened before this process was forked; open the store after the fork"] * 3
    child.join()
    here.close()
    run(store, add(store, a_task()))
    run(store, store.close())
    assert survey(path) == {"queued": 2}


def run(store: SqliteStore, call: Any) -> None:
    if store._blocking:
        run_inline(call)
    else:
        asyncio.run(call)


def use_after_fork(line: Connection[Any, Any], store: SqliteStore) -> None:
    async def use() -> list[str]:
        errors = []
        for call in (add(store, a_task()), contents(store), store.claim(a_claim())):
            try:
                await call
            except StoreUnavailable as error:
                errors.append(str(error).split("/")[-1])
        await store.close()
        return errors

    line.send(asyncio.run(use()))
    line.close()
    os._exit(0)
