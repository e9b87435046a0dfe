"""Group commit: concurrent calls share a commit, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from pathlib import Path

import pytest

from fairlead.core.errors import StoreUnavailable
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.storage.values import Added
from fairlead.testing.builders import NOW, a_claim, a_task, some_tasks
from fairlead.testing.steps import add, contents, ids
from tests.storage.sqlite.surveying import survey
from tests.storage.sqlite.waiting import until


class Held:
    """A store whose writer is kept busy, so that calls pile up behind it."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._go = threading.Event()
        self.commits = 0

    async def begin(self) -> asyncio.Task[bool]:
        started = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()

        def hold(connection: sqlite3.Connection) -> bool:
            loop.call_soon_threadsafe(started.set_result, None)
            connection.set_trace_callback(self._count)
            return self._go.wait(30)

        task = asyncio.create_task(self._store._writer.run(hold))
        await started
        return task

    def release(self) -> None:
        self._go.set()

    def _count(self, statement: str) -> None:
        self.commits += statement == "COMMIT"


async def test_calls_that_arrive_during_a_commit_share_the_next(store: SqliteStore) -> None:
    held = Held(store)
    first = await held.begin()
    tasks = some_tasks(100)
    calls = [asyncio.create_task(add(store, task)) for task in tasks]
    await asyncio.sleep(0)
    held.release()
    await asyncio.gather(first, *calls)
    assert held.commits == 2
    assert ids(await contents(store)) == ids(tasks)


async def test_a_lone_call_is_committed_at_once(store: SqliteStore, path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        for number in range(10):
            await add(store, a_task())
            assert other.execute("SELECT count(*) FROM task").fetchone() == (number + 1,)


async def test_a_lone_task_that_is_ready_takes_one_statement(store: SqliteStore) -> None:
    await add(store, a_task())
    statements: list[str] = []
    await store._writer.run(lambda connection: connection.set_trace_callback(statements.append))
    statements.clear()
    await add(store, a_task())
    assert len(statements) == 1


async def test_a_faulty_call_does_not_fail_its_neighbours(store: SqliteStore, path: Path) -> None:
    def fault(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM task")
        raise ValueError("a faulty call")

    def wrong(connection: sqlite3.Connection) -> None:
        connection.execute("SELECT * FROM nowhere")

    held = Held(store)
    first = await held.begin()
    tasks = some_tasks(20)
    calls = [asyncio.create_task(add(store, task)) for task in tasks[:10]]
    faulty = asyncio.create_task(store._writer.run(fault))
    misspelt = asyncio.create_task(store._writer.run(wrong))
    calls += [asyncio.create_task(add(store, task)) for task in tasks[10:]]
    await asyncio.sleep(0)
    held.release()
    await asyncio.gather(first, *calls)
    with pytest.raises(ValueError, match="a faulty call"):
        await faulty
    with pytest.raises(StoreUnavailable, match=r"no such table: nowhere; whether the call took effect is unknown"):
        await misspelt
    assert ids(await contents(store)) == ids(tasks)
    assert survey(path) == {"queued": 20}


async def test_the_same_task_added_by_calls_that_share_a_commit_is_added_once(store: SqliteStore) -> None:
    task = a_task(key="only-one")
    held = Held(store)
    first = await held.begin()
    calls = [asyncio.create_task(store.add([task], now=NOW, bounds={})) for _ in range(20)]
    await asyncio.sleep(0)
    held.release()
    await first
    receipts = [receipt for (receipt,) in await asyncio.gather(*calls)]
    assert receipts.count(Added()) == 1


async def test_close_finishes_what_was_asked_for(path: Path) -> None:
    store = SqliteStore(path, patience=60.0)
    held = Held(store)
    first = await held.begin()
    calls = [asyncio.create_task(add(store, task)) for task in some_tasks(700)]
    reads = [asyncio.create_task(contents(store)) for _ in range(5)]
    await asyncio.sleep(0)
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    held.release()
    await asyncio.gather(first, closing, *calls, *reads)
    assert survey(path) == {"queued": 700}


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_call_after_close_is_told_that_the_store_is_closed(path: Path, blocking: bool) -> None:
    store = SqliteStore(path, blocking=blocking)
    await store.close()
    await store.close()
    for call in (add(store, a_task()), contents(store), store.claim(a_claim()), store.tally()):
        with pytest.raises(StoreUnavailable, match=r"tasks\.db was closed; open the store again"):
            await call
    await store.wait(["default"], 0.01)


async def test_a_call_of_another_thread_during_close_is_answered(path: Path) -> None:
    """Whoever calls at that moment gets an answer or an error, and does not wait for ever."""
    for _ in range(20):
        store = SqliteStore(path, synchronous="NORMAL")
        answers: list[BaseException | None] = []

        async def call_on(store: SqliteStore = store, answers: list[BaseException | None] = answers) -> None:
            while not any(answers):
                answers += await asyncio.gather(add(store, a_task()), return_exceptions=True)

        caller = threading.Thread(target=asyncio.run, args=(call_on(),), daemon=True)
        caller.start()
        await until(lambda answers=answers: bool(answers))  # type: ignore[misc]
        await store.close()
        await asyncio.to_thread(caller.join, 30)
        assert not caller.is_alive()
        assert isinstance(answers[-1], StoreUnavailable)
        assert "was closed" in str(answers[-1])
    survey(path)
