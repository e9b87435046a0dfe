"""Upgrading: tasks of the schema before lane groups are found, and so is what processes of then go on adding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

import msgspec
import psycopg
import pytest

from fairlead.core.identity import TaskId
from fairlead.core.task import Priority, State, Task
from fairlead.storage.postgres import schema
from fairlead.storage.postgres.columns import packed_rest
from fairlead.storage.postgres.rows import CODES
from fairlead.storage.postgres.store import PostgresStore, open_postgres
from fairlead.testing.builders import NOW, a_claim, a_task
from fairlead.testing.steps import add, ids
from tests.servers.postgres import PostgresServer

_BEFORE: Final = 4
"""The version of the schema before lane groups."""

_ADD_ROUTE: Final = """
INSERT INTO fairlead.route (name, queue, type, requires, keyed) VALUES (%s, %s, %s, %s, false)
ON CONFLICT (name) DO NOTHING
"""
_ADD_TASK: Final = """
INSERT INTO fairlead.task (
    id, ready_at, timeout, alarm, created_at, version, beats, attempts, route, priority, state, cancel_asked, rest, spec
)
SELECT %s, %s, %s, %s, %s, 1, 0, 0, r.id, %s, %s, false, %s, %s FROM fairlead.route AS r WHERE r.name = %s
"""
_MAKE_READY: Final = "UPDATE fairlead.task SET state = 1, alarm = NULL, ready_at = %s WHERE id = %s"
"""What processes of that version do, without what does not matter to groups."""


@pytest.fixture
def old_url(server: PostgresServer) -> Iterator[str]:
    """A database with the schema of that version."""
    database = server.create_database()
    url = server.url(database)
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA fairlead")
        connection.execute(
            "CREATE TABLE fairlead.migration (version int PRIMARY KEY, name text NOT NULL, "
            "applied_at timestamptz NOT NULL DEFAULT now())"
        )
        for number, (name, text) in enumerate(schema.migrations()[:_BEFORE], start=1):
            connection.execute(text.replace("{schema}", "fairlead").encode())
            connection.execute("INSERT INTO fairlead.migration (version, name) VALUES (%s, %s)", (number, name))
    yield url
    server.drop_database(database)


def _add_as_before(connection: psycopg.Connection[Any], *tasks: Task) -> None:
    for task in tasks:
        spec, status = task.spec, task.status
        name = f'["{spec.queue}","{spec.type}",[]]'
        connection.execute(_ADD_ROUTE, (name, spec.queue, spec.type, []))
        columns = (UUID(spec.id), status.ready_at, status.timeout, status.alarm, spec.created_at, int(status.priority))
        packed = (CODES[status.state], packed_rest(status), msgspec.msgpack.encode(spec), name)
        connection.execute(_ADD_TASK, (*columns, *packed))
        connection.execute(
            "INSERT INTO fairlead.tally SELECT r.id, %s, %s, 1 FROM fairlead.route AS r WHERE r.name = %s",
            (int(status.priority), CODES[status.state], name),
        )


async def _claimed(store: PostgresStore, limit: int = 100) -> list[TaskId]:
    return ids(await store.claim(a_claim(limit=limit)))


async def test_a_store_of_the_version_before_keeps_its_tasks(old_url: str) -> None:
    tasks = [a_task(type=f"type-{number % 30}", priority=Priority(number % 4)) for number in range(60)]
    with psycopg.connect(old_url) as connection:
        _add_as_before(connection, *tasks)
    assert schema.migrate(old_url) == ["0005_lane_groups", "0006_turns"]
    store = await open_postgres(old_url)
    in_order = sorted(tasks, key=lambda task: (task.status.priority, task.status.ready_at, task.id))
    assert await _claimed(store) == ids(in_order)
    await store.close()


async def test_what_a_process_of_the_version_before_adds_is_found_at_once(old_url: str) -> None:
    schema.migrate(old_url)
    store = await open_postgres(old_url)
    store._claimer._bounds.move_after = 10
    await add(store, *[a_task(ready_at=NOW - 100 + number) for number in range(60)])
    while await _claimed(store, 20):
        pass
    early = [a_task(type=f"type-{number}", ready_at=NOW - 5_000 + number) for number in range(30)]
    with psycopg.connect(old_url) as connection:
        assert connection.execute("SELECT count(*) FROM fairlead.bound").fetchall() == [(1,)]
        _add_as_before(connection, *early)
    assert await _claimed(store) == ids(early)
    await store.close()


async def test_what_a_process_of_the_version_before_makes_ready_is_found_at_once(old_url: str) -> None:
    waiting, ended = a_task(state=State.SCHEDULED), a_task(state=State.DEAD_LETTER)
    with psycopg.connect(old_url) as connection:
        _add_as_before(connection, waiting, ended)
    schema.migrate(old_url)
    store = await open_postgres(old_url)
    store._claimer._bounds.move_after = 10
    await add(store, *[a_task(ready_at=NOW - 100 + number) for number in range(60)])
    while await _claimed(store, 20):
        pass
    with psycopg.connect(old_url) as connection:
        connection.execute(_MAKE_READY, (NOW - 2_000, UUID(waiting.id)))
        connection.execute(_MAKE_READY, (NOW - 1_000, UUID(ended.id)))
    assert await _claimed(store) == [waiting.id, ended.id]
    await store.close()
