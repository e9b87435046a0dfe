"""Upgrading: a file of an earlier version keeps every task, as it stands and where it stands in line."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from fairlead.core.events import Completed
from fairlead.core.task import State, Task
from fairlead.storage.sqlite.database import _APPLICATION_ID, _migrations
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.testing.builders import NOW, a_claim, a_task, some_tasks
from fairlead.testing.steps import add, claim_one, contents, ids, settle
from tests.storage.sqlite.surveying import survey

_pack = msgspec.msgpack.Encoder().encode


async def test_a_file_of_the_first_version_keeps_its_tasks(path: Path, tmp_path: Path) -> None:
    model = SqliteStore(tmp_path / "model.db")
    await add(model, *some_tasks(6))
    await settle(model, await claim_one(model), Completed(b"42"))
    await claim_one(model)
    tasks = await contents(model)
    write_first_version(path, tasks)

    store = SqliteStore(path)
    assert await contents(store) == tasks
    assert survey(path) == {"queued": 4, "executing": 1, "completed": 1}
    assert await store.tally() == await model.tally()
    assert await store.due(NOW * 2, 10) == await model.due(NOW * 2, 10)
    assert ids(await store.claim(a_claim(limit=10))) == ids(await model.claim(a_claim(limit=10)))
    assert survey(path) == {"executing": 5, "completed": 1}
    await store.close()
    await model.close()


_HEADS_BEFORE_ARRIVALS = """
    SELECT ready.id, coalesce(status.status, task.status)
    FROM ready CROSS JOIN task ON task.number = ready.number LEFT JOIN status ON status.number = ready.number
"""
"""How a claim read its lanes up to the fifth version."""


async def test_a_process_of_the_version_before_arrivals_fails_rather_than_miss_them(path: Path) -> None:
    await SqliteStore(path).close()
    with (
        closing(sqlite3.connect(path)) as connection,
        pytest.raises(sqlite3.OperationalError, match=r"no such column: task\.status"),
    ):
        connection.execute(_HEADS_BEFORE_ARRIVALS)


async def test_tasks_with_keys_keep_them(path: Path) -> None:
    """Keys came with the fourth version, and their column moved with the sixth."""
    task = a_task(concurrency_key="one")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        upgrade(connection, 5)
        columns = (1, task.lane.queue, task.lane.type, "", int(task.lane.priority), 1)
        lane = "INSERT INTO lane (lane, queue, type, requires, priority, keyed, queued) VALUES (?, ?, ?, ?, ?, ?, 1)"
        connection.execute(lane, columns)
        row = (7, task.id, 1, _pack(task.spec), _pack(task.status), "one")
        connection.execute("INSERT INTO task VALUES (?, ?, ?, ?, ?, ?)", row)
        connection.execute("INSERT INTO ready VALUES (?, ?, ?, ?)", (1, task.status.ready_at, task.id, 7))
        connection.execute("INSERT INTO line VALUES (?, ?, ?, ?, ?)", (1, "one", task.status.ready_at, task.id, 7))
        connection.execute("INSERT INTO look (queue, key, at) VALUES (?, ?, 0)", (task.lane.queue, "one"))

    store = SqliteStore(path)
    assert survey(path) == {"queued": 1}
    await add(store, a_task(concurrency_key="one"))
    assert ids(await store.claim(a_claim(limit=2))) == [task.id]
    assert survey(path) == {"queued": 1, "executing": 1}
    await store.close()


def upgrade(connection: sqlite3.Connection, version: int) -> None:
    """Bring an empty file to a version."""
    for number, script in enumerate(_migrations()[:version], start=1):
        for statement in script.split(";\n"):
            connection.execute(statement)
        connection.execute("INSERT INTO migration (version) VALUES (?)", (number,))
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")


def write_first_version(path: Path, tasks: list[Task]) -> None:
    """A file as the first version would have left it, with these tasks, all of one lane."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        upgrade(connection, 1)
        (lane,) = {task.lane for task in tasks}
        counts = [sum(task.state is state for task in tasks) for state in State]
        row = (1, lane.queue, lane.type, ",".join(lane.requires), int(lane.priority), *counts)
        connection.execute(f"INSERT INTO lane VALUES ({', '.join('?' * len(row))})", row)
        for number, task in enumerate(tasks, start=1):
            status = task.status
            connection.execute("INSERT INTO task VALUES (?, ?)", (number, _pack(task.spec)))
            columns = (number, task.id, 1, status.state.value, status.ready_at, status.alarm, _pack(status))
            connection.execute("INSERT INTO status VALUES (?, ?, ?, ?, ?, ?, ?)", columns)
