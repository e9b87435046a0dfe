"""Upgrading: a file of an earlier version keeps every task, as it stands and where it stands in line."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from fairlead.core.events import Completed
from fairlead.core.task import State, Task
from fairlead.storage.sqlite.database import _APPLICATION_ID, _migrations
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.testing.builders import NOW, a_claim, some_tasks
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


def write_first_version(path: Path, tasks: list[Task]) -> None:
    """A file as the first version would have left it, with these tasks, all of one lane."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in _migrations()[0].split(";\n"):
            connection.execute(statement)
        connection.execute("INSERT INTO migration (version) VALUES (1)")
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        (lane,) = {task.lane for task in tasks}
        counts = [sum(task.state is state for task in tasks) for state in State]
        row = (1, lane.queue, lane.type, ",".join(lane.requires), int(lane.priority), *counts)
        connection.execute(f"INSERT INTO lane VALUES ({', '.join('?' * len(row))})", row)
        for number, task in enumerate(tasks, start=1):
            status = task.status
            connection.execute("INSERT INTO task VALUES (?, ?)", (number, _pack(task.spec)))
            columns = (number, task.id, 1, status.state.value, status.ready_at, status.alarm, _pack(status))
            connection.execute("INSERT INTO status VALUES (?, ?, ?, ?, ?, ?, ?)", columns)
