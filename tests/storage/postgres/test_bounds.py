"""Claims begin at bounds: they stay as quick without any vacuum, and miss nothing that is committed late."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import psycopg
import pytest

from fairlead.core.events import HandedBack
from fairlead.core.identity import TaskId
from fairlead.core.instant import SECOND
from fairlead.core.task import Task
from fairlead.storage.postgres.store import PostgresStore, open_postgres
from fairlead.storage.postgres.transactional import ParameterStyle, addition
from fairlead.testing.builders import NOW, a_claim, a_settle, a_task
from fairlead.testing.steps import add, ids
from tests.storage.postgres.steps import Counting

_EARLY = NOW - 3_600 * SECOND


def _tasks(number: int, *, type: str = "work", begin: int = NOW - 60 * SECOND) -> list[Task]:
    return [a_task(type=type, ready_at=begin + at) for at in range(number)]


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    """A store whose bounds move after a thousand tasks."""
    store = await open_postgres(url)
    store._claimer._bounds.move_after = 1_000
    yield store
    await store.close()


async def _take(store: PostgresStore, number: int, **wish: Any) -> list[Task]:
    """Have so many tasks claimed, in claims of a hundred."""
    taken: list[Task] = []
    while len(taken) < number:
        found = await store.claim(a_claim(limit=min(100, number - len(taken)), **wish))
        assert found
        taken += found
    return taken


def _bounds(url: str) -> list[tuple[int, list[int]]]:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT type_set, ready_at FROM fairlead.bound ORDER BY type_set").fetchall()


async def _pages(store: PostgresStore, url: str, limit: int, **wish: Any) -> int:
    inner = store._connections
    counting = Counting.within(store, url)
    await counting.steps(store.claim(a_claim(limit=limit, **wish)))
    counting.stop()
    for part in (store, store._adder, store._claimer, store._claimer._bounds, store._changer):
        part._connections = inner
    return counting.pages


@pytest.mark.parametrize("excluded", [(), ("paused",)])
async def test_claims_read_no_more_pages_after_many_without_vacuum(own_url: str, excluded: Sequence[str]) -> None:
    with psycopg.connect(own_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE fairlead.task SET (autovacuum_enabled = false)")
    store = await open_postgres(own_url)
    store._claimer._bounds.move_after = 1_000
    await add(store, *_tasks(200, type="paused", begin=_EARLY))
    for at in range(8):
        await add(store, *_tasks(1_000, begin=NOW - (60 - at) * SECOND))
    wish = {"excluded_types": excluded} if excluded else {"types": ["work"]}
    await _take(store, 10, **wish)
    first = [await _pages(store, own_url, limit, **wish) for limit in (1, 100)]
    await _take(store, 6_500, **wish)
    later = [await _pages(store, own_url, limit, **wish) for limit in (1, 100)]
    await store.close()
    # A bound is moved after a thousand tasks: without one, the last claims would pass over sixty pages more.
    assert later[0] <= first[0] + 20
    assert later[1] <= first[1] * 1.2


async def test_a_task_committed_late_is_found_before_a_bound_that_was_moved_meanwhile(
    store: PostgresStore, url: str
) -> None:
    late = a_task(type="late", ready_at=NOW - 59 * SECOND)
    added = addition(url, [late], now=NOW, style=ParameterStyle.FORMAT)
    for at in range(4):
        await add(store, *_tasks(1_000, begin=NOW - (50 - at) * SECOND))
    with psycopg.connect(url) as other:
        for written in (added.routes, added.tasks):
            other.execute(written.text.encode(), written.parameters)
        await _take(store, 3_500)
        ((_, ready_ats),) = _bounds(url)
        assert min(ready_ats) > late.status.ready_at, "the bound waits for nobody's transaction"
        other.commit()
    assert ids(await store.claim(a_claim())) == [late.id]


async def test_no_bound_passes_a_writer_that_may_not_have_seen_the_ceiling(store: PostgresStore, url: str) -> None:
    for at in range(4):
        await add(store, *_tasks(1_000, begin=NOW - (50 - at) * SECOND))
    with psycopg.connect(url) as other:
        # As any process adds tasks that is stopped just before its commit.
        other.execute(
            "INSERT INTO fairlead.task (id, ready_at, timeout, created_at, version, beats, attempts, route, priority, "
            "state, cancel_asked, rest, spec, lane_group) SELECT '018f0000-0000-7000-8000-000000000000', %s, timeout, "
            "created_at, version, beats, attempts, route, priority, state, cancel_asked, rest, "
            "overlay(spec PLACING convert_to('018f0000000070008000000000000000', 'UTF8') FROM 6), lane_group "
            "FROM fairlead.task LIMIT 1",
            (NOW - 59 * SECOND,),
        )
        await _take(store, 3_500)
        assert _bounds(url) == []
        other.commit()
    assert ids(await store.claim(a_claim())) == [TaskId("018f0000000070008000000000000000")]
    await _take(store, 400)
    assert len(_bounds(url)) == 1


async def test_a_hand_back_before_the_bound_is_found(store: PostgresStore, url: str) -> None:
    for at in range(4):
        await add(store, *_tasks(1_000, begin=NOW - (50 - at) * SECOND))
    first, *_ = await _take(store, 3_500)
    assert min(_bounds(url)[0][1]) > first.status.ready_at
    await store.apply([a_settle(first, HandedBack())])
    assert ids(await store.claim(a_claim())) == [first.id]


async def test_a_task_added_before_the_bound_is_found(store: PostgresStore) -> None:
    for at in range(4):
        await add(store, *_tasks(1_000, begin=NOW - (50 - at) * SECOND))
    await _take(store, 3_500)
    one, *many = _tasks(3, begin=_EARLY)
    await add(store, one)
    await add(store, *many)
    assert ids(await store.claim(a_claim(limit=3))) == ids([one, *many])


async def test_a_clock_that_went_back_after_a_bound_moved_hides_nothing(store: PostgresStore, url: str) -> None:
    ahead = NOW + 3_600 * SECOND
    for at in range(4):
        await add(store, *_tasks(1_000, begin=ahead - (50 - at) * SECOND))
    await _take(store, 4_000, now=ahead)
    assert min(_bounds(url)[0][1]) > NOW + 1_800 * SECOND
    # The clock is back where it was: all that comes now is an hour below the bound.
    later = _tasks(3_000)
    for at in range(0, 3_000, 1_000):
        await add(store, *later[at : at + 1_000])
    assert ids(await _take(store, 2_000)) == ids(later[:2_000])
    assert min(_bounds(url)[0][1]) <= NOW
    assert ids(await _take(store, 1_000)) == ids(later[2_000:])


async def test_bounds_that_move_while_the_clock_steps_to_and_fro_hide_nothing(store: PostgresStore) -> None:
    added, taken = set[TaskId](), set[TaskId]()
    for at in range(12):
        now = NOW + (at % 3 - 1) * 7_200 * SECOND
        tasks = _tasks(400, begin=now - 60 * SECOND)
        await add(store, *tasks)
        added |= set(ids(tasks))
        taken |= set(ids(await _take(store, 350, now=now)))
    while found := await store.claim(a_claim(limit=100, now=NOW + 7_200 * SECOND)):
        taken |= set(ids(found))
    assert taken == added
