"""What is gone is forgotten: routes, lane groups, type sets, and that there were concurrency keys."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from fairlead.core.events import Completed
from fairlead.storage.postgres.store import PostgresStore
from fairlead.storage.postgres.transactional import ParameterStyle, addition
from fairlead.testing.builders import NOW, a_claim, a_removal, a_settle, a_task
from fairlead.testing.steps import add, ids
from tests.storage.postgres.steps import Counting


def _rows(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute(statement.encode()).fetchall()


def _an_hour_passes(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE fairlead.route SET hidden_at = hidden_at - interval '61 minutes'")


async def _run_and_purge(store: PostgresStore, types: int) -> None:
    await add(store, *[a_task(type=f"type-{number}") for number in range(types)])
    while taken := await store.claim(a_claim(limit=100)):
        await store.apply([a_settle(task, Completed(None)) for task in taken])
        await store.apply([a_removal(task) for task in await store.get([task.id for task in taken]) if task])


async def test_routes_and_groups_without_tasks_are_forgotten(store: PostgresStore, url: str) -> None:
    await _run_and_purge(store, 300)
    for _ in range(2):
        await store._forget()
    _an_hour_passes(url)
    await store._forget()
    assert _rows(url, "SELECT count(*) FROM fairlead.route") == [(0,)]
    assert _rows(url, "SELECT count(*) FROM fairlead.lane_group") == [(0,)]
    task = a_task(type="type-7")
    await add(store, task)
    assert ids(await store.claim(a_claim())) == [task.id]


async def test_a_route_that_has_a_task_in_any_state_stays(store: PostgresStore, url: str) -> None:
    task = a_task()
    await add(store, task)
    (taken,) = await store.claim(a_claim())
    await store.apply([a_settle(taken, Completed(None))])
    for _ in range(3):
        await store._forget()
        _an_hour_passes(url)
    assert _rows(url, "SELECT hidden_at FROM fairlead.route") == [(None,)]


async def test_a_task_that_comes_to_a_route_just_hidden_is_found_and_counted(store: PostgresStore, url: str) -> None:
    await _run_and_purge(store, 1)
    for _ in range(2):
        await store._forget()
    first, second = a_task(type="type-0"), a_task(type="type-0")
    await add(store, first)  # It finds no route, and makes another.
    await add(store, second)
    with psycopg.connect(url) as connection:
        # As by a statement that had found the route before.
        hidden = "(SELECT id FROM fairlead.route WHERE hidden_at IS NOT NULL)"
        moved = f"UPDATE fairlead.task SET route = {hidden} WHERE id = %s"
        connection.execute(moved.encode(), (second.id,))
        last = "(SELECT ctid FROM fairlead.tally ORDER BY ctid DESC LIMIT 1)"
        connection.execute(f"UPDATE fairlead.tally SET route = {hidden} WHERE ctid = {last}".encode())
    _an_hour_passes(url)
    await store._forget()
    (lane,) = (await store.tally()).lanes
    assert sum(lane.counts.values()) == 2
    assert ids(await store.claim(a_claim(limit=2))) == ids([first, second])


async def test_nothing_is_hidden_while_a_transactional_submit_may_rely_on_it(store: PostgresStore, url: str) -> None:
    await _run_and_purge(store, 1)
    await store._forget()
    task = a_task(type="type-0")
    added = addition(url, [task], now=NOW, style=ParameterStyle.FORMAT)
    with psycopg.connect(url) as other:
        other.execute(added.routes.text.encode(), added.routes.parameters)
        await store._forget()
        other.execute(added.tasks.text.encode(), added.tasks.parameters)
    assert ids(await store.claim(a_claim())) == [task.id]


async def test_a_transaction_that_still_sees_a_forgotten_route_is_told_so(store: PostgresStore, url: str) -> None:
    await _run_and_purge(store, 1)
    task = a_task(type="type-0")
    added = addition(url, [task], now=NOW, style=ParameterStyle.FORMAT)
    with psycopg.connect(url) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("SELECT count(*) FROM fairlead.migration")
        for _ in range(2):
            await store._forget()
        _an_hour_passes(url)
        await store._forget()
        other.execute(added.routes.text.encode(), added.routes.parameters)
        with pytest.raises(psycopg.errors.SerializationFailure):
            other.execute(added.tasks.text.encode(), added.tasks.parameters)
    await add(store, task)
    assert ids(await store.claim(a_claim())) == [task.id]


async def test_claims_do_without_turns_again_when_no_keyed_task_waits(store: PostgresStore, url: str) -> None:
    now = 0.0
    store._claimer._bounds._monotonic = lambda: now
    await add(store, a_task(concurrency_key="one"), *[a_task() for _ in range(5)])
    keyed = [task for task in await store.claim(a_claim(limit=3)) if task.spec.concurrency_key]
    await store.apply([a_settle(task, Completed(None)) for task in keyed])
    now = 2.0
    await store.claim(a_claim())
    counting = Counting.within(store, url)
    await counting.steps(store.claim(a_claim()))
    counting.stop()
    assert len(counting.plans) == 1


async def test_a_type_set_that_was_not_used_for_a_day_is_forgotten(store: PostgresStore, url: str) -> None:
    await add(store, a_task(type="a"), a_task(type="b"))
    await store.claim(a_claim(types=["a"]))
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE fairlead.type_set SET used_at = now() - interval '25 hours'")
    now = 2.0 + store._claimer._bounds._monotonic()
    store._claimer._bounds._monotonic = lambda: now
    for _ in range(2):
        store._claimer._bounds.forget()
        await store.claim(a_claim(types=["b"]))
    assert _rows(url, "SELECT type FROM fairlead.type_set_member") == [("b",)]
