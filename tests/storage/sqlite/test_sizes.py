"""Large things: payloads, batches, and a log that must not become one."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.core.events import Completed
from fairlead.core.submission import Submission
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.storage.values import Verdict
from fairlead.testing.builders import NOW, a_beat, a_claim, a_removal, a_settle, a_task, some_tasks
from fairlead.testing.steps import add, contents, ids, read
from tests.storage.sqlite.surveying import log_size, survey

_MEGABYTE = 1_000_000


async def test_the_largest_payload_comes_back_byte_for_byte(store: SqliteStore, path: Path) -> None:
    engine = AdminEngine(store)
    parameters = b'{"text":"' + b"x" * (engine.settings.payload_limit - 11) + b'"}'
    assert len(parameters) == 256 * 1024
    submitted = await engine.submit(Submission(type="large", parameters=parameters))
    assert (await engine.get(submitted.task.id)).spec.parameters == parameters
    (claimed,) = await store.claim(a_claim(now=engine.clock.now()))
    await store.apply([a_settle(claimed, Completed(parameters))])
    settled = await engine.get(submitted.task.id)
    assert (settled.spec.parameters, settled.status.result) == (parameters, parameters)
    assert survey(path) == {"completed": 1}


@pytest.mark.slow
async def test_a_batch_of_ten_thousand_goes_through_every_operation(store: SqliteStore, path: Path) -> None:
    tasks = some_tasks(10_000)
    await add(store, *tasks)
    assert len(await store.get(ids(tasks))) == 10_000
    claimed = await store.claim(a_claim(limit=10_000))
    assert ids(claimed) == ids(tasks)
    pulses = await store.extend([a_beat(task) for task in claimed], lease=0, now=NOW, grace=0)
    assert set(pulses) == {"held"}
    verdicts = await store.apply([a_settle(task, Completed()) for task in claimed])
    assert verdicts == [Verdict.APPLIED] * 10_000
    assert survey(path) == {"completed": 10_000}
    verdicts = await store.apply([a_removal(task) for task in await contents(store)])
    assert verdicts == [Verdict.APPLIED] * 10_000
    assert survey(path) == {}
    assert (await store.tally()).lanes == []


@pytest.mark.slow
async def test_the_log_stays_small_while_others_read_all_the_time(store: SqliteStore, path: Path) -> None:
    readers = [SqliteStore(path) for _ in range(2)]
    busy = True

    async def read_on(reader: SqliteStore) -> None:
        while busy:
            await reader.tally()

    reading = [asyncio.create_task(read_on(reader)) for reader in readers]
    longest = 0
    for _ in range(300):
        await add(store, *(a_task(parameters=b'{"text":"' + b"x" * 1_000 + b'"}') for _ in range(100)))
        longest = max(longest, log_size(path))
    busy = False
    await asyncio.gather(*reading)
    for reader in readers:
        await reader.close()
    print(f"log at most {longest / _MEGABYTE:.1f} MB")
    assert longest < 16 * _MEGABYTE


async def test_a_reader_that_stays_for_long_makes_the_log_grow_only_as_long_as_it_stays(
    store: SqliteStore, path: Path
) -> None:
    first = a_task()
    await add(store, first)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM task").fetchone() == (1,)
        for _ in range(20):
            await add(store, *(a_task(parameters=b'{"text":"' + b"x" * 5_000 + b'"}') for _ in range(100)))
        grown = log_size(path)
        assert grown > 8 * _MEGABYTE
        assert reader.execute("SELECT count(*) FROM task").fetchone() == (1,)
    for _ in range(20):
        await add(store, *(a_task(parameters=b'{"text":"' + b"x" * 5_000 + b'"}') for _ in range(100)))
    # The file keeps its size and is written again from its start, up to a limit at which it is cut.
    assert log_size(path) <= grown + 8 * _MEGABYTE
    assert await read(store, first) == first
    await store.close()
    assert log_size(path) == 0
    assert survey(path) == {"queued": 4_001}
