"""A task that was set aside goes back as the core says, once; an engine says what its store sets aside."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.core.errors import RestoreRefused
from fairlead.core.health.quarantine import QUARANTINE, Quarantined
from fairlead.core.identity import WorkerId
from fairlead.core.instant import Instant
from fairlead.core.submission import Submission
from fairlead.core.task import State, Task
from fairlead.engine.events.types import Watcher
from fairlead.engine.runtime.clock import ManualClock
from fairlead.storage.memory import MemoryStore
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.storage.values import Receipt
from fairlead.testing.builders import NOW, a_task


class Told(Watcher):
    def __init__(self) -> None:
        self.found: list[Quarantined] = []

    def set_aside(self, found: Quarantined) -> None:
        self.found.append(found)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
async def engine(path: Path, told: Told) -> AsyncIterator[AdminEngine]:
    engine = AdminEngine(SqliteStore(path), clock=ManualClock(NOW), observers=[told])
    yield engine
    await engine.close()


class RelapsingStore(MemoryStore):
    """A task that is put back into it is damaged and set aside anew at once."""

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        receipts = await super().add(tasks, now=now, bounds=bounds)
        for task in tasks:
            await self.put(QUARANTINE, f"task/{task.id}", b"set aside anew")
        return receipts


def damage(path: Path, table: str, column: str) -> dict[str, bytes]:
    """Empty a column of the one row that there is; what was in it."""
    with closing(sqlite3.connect(path)) as connection, connection:
        (was,) = connection.execute(f"SELECT {column} FROM {table}").fetchone()
        connection.execute(f"UPDATE {table} SET {column} = x''")
        return {column: was}


async def test_an_executing_task_that_is_put_back_waits_again(engine: AdminEngine, path: Path, told: Told) -> None:
    task = (await engine.submit(Submission(type="work", parameters=b"{}"))).task
    await engine.claim(WorkerId("w"), ["default"], limit=1)
    was = damage(path, "status", "status")
    with pytest.raises(LookupError):
        await engine.get(task.id)
    (found,) = told.found
    assert (found.key, found.queue) == (f"task/{task.id}", "default")
    with pytest.raises(RestoreRefused, match="its bytes still cannot be decoded"):
        await engine.quarantine.restore(found.key)
    await engine.quarantine.restore(found.key, {**found.parts, **was})
    again = await engine.get(task.id)
    assert (again.state, again.status.attempts, again.status.retries) == (State.QUEUED, 1, 0)
    assert again.status.lease is None
    assert await engine.quarantine.all() == []


async def test_what_is_set_aside_anew_while_it_is_put_back_is_kept() -> None:
    task = a_task()
    parts = {"spec": msgspec.msgpack.encode(task.spec), "status": msgspec.msgpack.encode(task.status)}
    found = Quarantined(kind="task", name=task.id, parts=parts, error="?", found_at=NOW)
    store = RelapsingStore()
    await store.put(QUARANTINE, found.key, msgspec.msgpack.encode(found))
    await AdminEngine(store, clock=ManualClock(NOW)).quarantine.restore(found.key)
    assert [record.value for record in await store.scan(QUARANTINE)] == [b"set aside anew"]


async def test_a_task_whose_key_another_has_by_now_is_not_put_back(engine: AdminEngine, path: Path, told: Told) -> None:
    submission = Submission(type="work", parameters=b"{}", idempotency_key="one")
    await engine.submit(submission)
    was = damage(path, "task", "spec")
    assert await engine.find() == []
    other = (await engine.submit(submission)).task
    (found,) = told.found
    with pytest.raises(RestoreRefused, match=f"its idempotency key names task {other.id} by now"):
        await engine.quarantine.restore(found.key, {**found.parts, **was})
    assert [each.key for each in await engine.quarantine.all()] == [found.key]
