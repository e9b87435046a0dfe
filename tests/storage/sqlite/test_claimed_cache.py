"""What a connection remembers of the tasks that it has claimed is never more than a shortcut."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.core.events import Completed
from fairlead.core.task import State, Task
from fairlead.storage.sqlite.claim import claim
from fairlead.storage.sqlite.database import Connection
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.storage.values import Change, Pulse, Verdict
from fairlead.testing.builders import LEASE, NOW, a_beat, a_claim, a_settle, a_task, held, some_tasks
from fairlead.testing.steps import add, ask_to_cancel, claim_one, read, settle
from tests.storage.sqlite.surveying import survey


@pytest.fixture
async def other(path: Path, store: SqliteStore) -> AsyncIterator[SqliteStore]:
    """The same file, as another process has it open."""
    other = SqliteStore(path)
    yield other
    await other.close()


async def reads(store: SqliteStore, *changes: Change) -> tuple[list[Verdict], int]:
    """What becomes of changes, and how often the store looked up how tasks stand."""
    statements: list[str] = []

    def trace(connection: Connection) -> None:
        connection.set_trace_callback(statements.append)

    await store._writer.run(trace)
    verdicts = await store.apply(changes)
    return verdicts, sum("FROM json_each" in statement for statement in statements)


async def test_a_settle_does_not_read_what_its_connection_has_claimed(store: SqliteStore, path: Path) -> None:
    await add(store, *some_tasks(3))
    tasks = await store.claim(a_claim(limit=3))
    assert await reads(store, *(a_settle(task, Completed()) for task in tasks)) == ([Verdict.APPLIED] * 3, 0)
    assert survey(path) == {"completed": 3}


async def test_what_another_process_decides_counts(store: SqliteStore, other: SqliteStore) -> None:
    await add(store, a_task())
    task = await claim_one(store)
    asked = await ask_to_cancel(other, task)
    assert await reads(store, a_settle(task, Completed())) == ([Verdict.STALE], 1)
    assert await read(store, task) == asked


async def test_a_settle_after_another_process_has_written_is_applied(store: SqliteStore, other: SqliteStore) -> None:
    await add(store, a_task())
    task = await claim_one(store)
    await add(other, a_task())
    assert await reads(store, a_settle(task, Completed())) == ([Verdict.APPLIED], 1)


async def test_of_many_tasks_those_are_read_that_stand_otherwise(
    store: SqliteStore, other: SqliteStore, path: Path
) -> None:
    await add(store, *some_tasks(111))
    tasks = await store.claim(a_claim(limit=111))
    await ask_to_cancel(other, tasks[50])
    verdicts, looks = await reads(store, *(a_settle(task, Completed()) for task in tasks))
    assert [number for number, verdict in enumerate(verdicts) if verdict is not Verdict.APPLIED] == [50]
    assert looks == 1
    assert survey(path) == {"completed": 110, "executing": 1}


async def test_a_heartbeat_counts(store: SqliteStore) -> None:
    await add(store, a_task())
    task = await claim_one(store)
    assert await store.extend([a_beat(task)], lease=LEASE, now=NOW, grace=0) == [Pulse.HELD]
    beaten = await read(store, task)
    assert beaten is not None
    assert beaten.status.beats == 1
    assert await store.apply([Change(task.id, held(task), beaten.status)]) == [Verdict.APPLIED]


async def test_a_second_settle_is_known_as_a_repetition(store: SqliteStore) -> None:
    await add(store, a_task())
    task = await claim_one(store)
    await settle(store, task, Completed())
    assert await store.apply([a_settle(task, Completed())]) == [Verdict.REPEATED]


async def test_a_claim_that_was_rolled_back_is_forgotten(store: SqliteStore, path: Path) -> None:
    await add(store, a_task())
    claimed: list[Task] = []

    def fault(connection: Connection) -> None:
        claimed.extend(claim(connection, a_claim()))
        raise ValueError("after the claim")

    with pytest.raises(ValueError, match="after the claim"):
        await store._writer.run(fault)
    (task,) = claimed
    assert await store.apply([a_settle(task, Completed())]) == [Verdict.STALE]
    assert survey(path) == {State.QUEUED: 1}


async def test_tasks_with_concurrency_keys_free_their_place(store: SqliteStore) -> None:
    await add(store, a_task(concurrency_key="one"), a_task(concurrency_key="one"))
    first = await claim_one(store)
    assert await store.claim(a_claim()) == []
    await settle(store, first, Completed())
    assert await store.claim(a_claim()) != []
