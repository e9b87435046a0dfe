"""Another process that holds the file: calls wait, but not for ever, and go on when it lets go."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fairlead.core.errors import StoreUnavailable
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.testing.builders import a_claim, a_task, some_tasks
from fairlead.testing.steps import add, contents, ids
from tests.storage.sqlite.surveying import survey

_PATIENCE = 0.2


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """The file, while someone else writes to it and takes their time."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_call_gives_up_when_the_file_stays_locked_and_works_when_it_is_free(path: Path, blocking: bool) -> None:
    store = SqliteStore(path, blocking=blocking, patience=_PATIENCE)
    task = a_task()
    with locked(path):
        start = time.monotonic()
        with pytest.raises(StoreUnavailable) as caught:
            await add(store, task)
        assert time.monotonic() - start >= _PATIENCE
    assert str(caught.value) == (
        f"{path} was locked by another process for 0.2 s; nothing was stored. Repeat the call, and look for a process "
        f"that holds the file"
    )
    await add(store, task)
    await store.close()
    assert survey(path) == {"queued": 1}


async def test_many_calls_give_up_together_and_not_one_after_the_other(path: Path) -> None:
    store = SqliteStore(path, patience=_PATIENCE)
    with locked(path):
        start = time.monotonic()
        calls = [add(store, task) for task in some_tasks(100)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        # Those that came while the first waited wait once more, together; one after the other they took 20 s.
        assert time.monotonic() - start < len(calls) * _PATIENCE / 2
    assert {type(answer) for answer in answers} == {StoreUnavailable}
    assert await contents(store) == []
    await store.close()


async def test_a_faulty_call_among_many_does_not_make_them_wait_one_after_the_other(path: Path) -> None:
    store = SqliteStore(path, patience=_PATIENCE)
    let_go = threading.Event()
    someone: list[sqlite3.Connection] = []

    def fault(connection: sqlite3.Connection) -> None:
        """Fail in the group's transaction; by the time the calls are tried singly, someone else has the lock."""
        if not someone:
            connection.execute("ROLLBACK")
            other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            other.execute("BEGIN IMMEDIATE")
            someone.append(other)
        raise ValueError("a faulty call")

    hold = store._writer.run(lambda _: let_go.wait(10))
    calls = [asyncio.ensure_future(call) for call in (hold, store._writer.run(fault))]
    calls += [asyncio.ensure_future(add(store, task)) for task in some_tasks(100)]
    await asyncio.sleep(0)
    let_go.set()
    start = time.monotonic()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert time.monotonic() - start < len(calls) * _PATIENCE / 2
    assert {type(answer) for answer in answers[2:]} == {StoreUnavailable}
    someone[0].close()
    await add(store, a_task())
    await store.close()
    assert survey(path) == {"queued": 1}


async def test_reads_do_not_wait_for_another_process_that_writes(path: Path) -> None:
    store = SqliteStore(path, patience=60.0)
    tasks = some_tasks(3)
    await add(store, *tasks)
    with locked(path):
        async with asyncio.timeout(10):
            assert ids(await contents(store)) == ids(tasks)
            assert len((await store.tally()).lanes) == 1
    await store.close()


async def test_a_call_that_waits_goes_on_as_soon_as_the_file_is_free(path: Path) -> None:
    store = SqliteStore(path, patience=60.0)
    with locked(path):
        call = asyncio.ensure_future(add(store, a_task()))
        # Long enough for the call to be on its way; were it not, it would only be easier.
        await asyncio.wait([call], timeout=0.3)
        assert not call.done()
        freed = time.monotonic()
    await call
    assert time.monotonic() - freed < 30.0, "half of its patience"
    await store.close()


async def test_a_file_that_is_locked_when_it_is_opened_for_the_first_time_is_waited_for(path: Path) -> None:
    with locked(path), pytest.raises(StoreUnavailable, match=r"locked by another process for 0\.2 s"):
        SqliteStore(path, patience=_PATIENCE)
    store = SqliteStore(path, patience=_PATIENCE)
    assert await store.claim(a_claim()) == []
    await store.close()
