"""A task that arrives alone is one row until it is filed with others, and nobody can tell the difference."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from fairlead.core.instant import SECOND
from fairlead.core.queues.promotion import Place
from fairlead.core.task import State, Task
from fairlead.storage.sqlite.arrivals import UNFILED
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.storage.values import Added, Filter, Full, KeyHeld, Known, Stretch
from fairlead.testing.builders import NOW, a_claim, a_removal, a_task, some_tasks
from fairlead.testing.steps import add, contents, ids, read
from tests.storage.sqlite.surveying import log_size, survey

_FRAME = 24 + 4096
"""What a page takes in the log."""


@pytest.fixture(params=[False, True], ids=["threads", "inline"])
async def store(path: Path, request: pytest.FixtureRequest) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, blocking=request.param)
    yield store
    await store.close()


@pytest.fixture
async def model(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """Another file, to which tasks are added many at a time."""
    model = SqliteStore(tmp_path / "model.db")
    yield model
    await model.close()


async def add_singly(store: SqliteStore, *tasks: Task) -> None:
    for task in tasks:
        assert await store.add([task], now=NOW, bounds={}) == [Added()]


def unfiled(path: Path) -> int:
    """How many tasks have arrived and are not filed."""
    with closing(sqlite3.connect(path)) as connection:
        (tasks,) = connection.execute("SELECT count(*) FROM task WHERE number > (SELECT number FROM filed)").fetchone()
        return int(tasks)


async def test_a_task_that_arrives_alone_is_one_page_of_the_log(store: SqliteStore, path: Path) -> None:
    await add_singly(store, a_task())
    before = log_size(path)
    await add_singly(store, a_task())
    assert log_size(path) - before == _FRAME


async def test_a_batch_is_filed_at_once(store: SqliteStore, path: Path) -> None:
    await add(store, *some_tasks(2))
    assert unfiled(path) == 0


async def test_what_is_not_filed_is_read_like_the_rest(store: SqliteStore, model: SqliteStore, path: Path) -> None:
    tasks = some_tasks(6)
    await add(model, *tasks)
    await add_singly(store, *tasks[:3])
    first = a_claim()
    assert await store.claim(first) == await model.claim(first)
    await add_singly(store, *tasks[3:])
    assert unfiled(path) == 3
    assert await contents(store) == await contents(model)
    assert await store.get(ids(tasks)) == await model.get(ids(tasks))
    assert await store.tally() == await model.tally()
    for matching in (Filter(), Filter(states=frozenset({State.QUEUED})), Filter(type="another")):
        for newest_first in (True, False):
            found = await store.find(matching, limit=4, newest_first=newest_first)
            assert found == await model.find(matching, limit=4, newest_first=newest_first)
            further = await store.find(matching, limit=4, newest_first=newest_first, after=tasks[3].id)
            assert further == await model.find(matching, limit=4, newest_first=newest_first, after=tasks[3].id)
    all_of_it = Stretch(tasks[0].lane, Place(0, ids(tasks)[0]), Place(NOW * 2, ids(tasks)[0]))
    assert await store.count([all_of_it]) == await model.count([all_of_it]) == [5]
    assert unfiled(path) == 3
    assert survey(path) == {"queued": 5, "executing": 1}
    assert ids(await store.claim(a_claim(limit=10))) == ids(await model.claim(a_claim(limit=10)))
    assert survey(path) == {"executing": 6}


async def test_a_tally_knows_the_oldest_of_what_is_not_filed(store: SqliteStore) -> None:
    older, newer = a_task(ready_at=NOW - SECOND), a_task(ready_at=NOW)
    await add(store, newer, a_task(ready_at=NOW))
    await add_singly(store, older)
    (lane,) = (await store.tally()).lanes
    assert (lane.counts, lane.oldest_ready) == ({State.QUEUED: 3}, NOW - SECOND)


async def test_an_id_is_taken_whether_it_is_filed_or_not(store: SqliteStore, path: Path) -> None:
    first, second, third = some_tasks(3)
    await add_singly(store, first, third)
    assert await store.add([third], now=NOW, bounds={}) == [Known()]
    assert unfiled(path) == 0
    await add_singly(store, second)
    assert unfiled(path) == 1
    for task in (first, second, third):
        assert await store.add([task], now=NOW, bounds={}) == [Known()]
    assert ids(await store.claim(a_claim(limit=10))) == ids([first, second, third])


async def test_bounds_and_keys_count_what_is_not_filed(store: SqliteStore, path: Path) -> None:
    await add_singly(store, *some_tasks(3))
    assert unfiled(path) == 2
    assert await store.add([a_task()], now=NOW, bounds={"default": 3}) == [Full(3, 3)]
    holder, late = (a_task(key="once", key_until=NOW * 2) for _ in range(2))
    await add_singly(store, holder)
    assert await store.add([late], now=NOW, bounds={}) == [KeyHeld(holder.id)]
    assert survey(path) == {"queued": 4}


async def test_no_more_arrive_than_may_be_looked_at(store: SqliteStore, path: Path) -> None:
    most = 0
    for task in some_tasks(2 * UNFILED + 10):
        await add_singly(store, task)
        most = max(most, unfiled(path))
    assert most == UNFILED
    assert survey(path) == {"queued": 2 * UNFILED + 10}


async def test_a_task_that_arrives_after_others_were_removed_is_not_taken_for_filed(
    store: SqliteStore, path: Path
) -> None:
    kept, *tasks = some_tasks(5)
    await add_singly(store, kept, *tasks)
    await store.apply([a_removal(task) for task in tasks])
    late, later = some_tasks(2)
    await add_singly(store, late, later)
    assert unfiled(path) == 1
    assert [await read(store, task) for task in (late, later)] == [late, later]
    assert ids(await store.claim(a_claim(limit=10))) == ids([kept, late, later])
    assert survey(path) == {"executing": 3}


async def test_a_lane_stays_as_long_as_a_task_has_arrived_in_it(store: SqliteStore, path: Path) -> None:
    first, second = some_tasks(2)
    await add_singly(store, first, second)
    await store.apply([a_removal(first)])
    assert survey(path) == {"queued": 1}
    await store.apply([a_removal(second)])
    assert survey(path) == {}
    assert (await store.tally()).lanes == []
    await add_singly(store, a_task())
    assert survey(path) == {"queued": 1}
