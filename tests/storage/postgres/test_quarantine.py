"""Damage in what PostgreSQL keeps of a task in columns of their own."""

from __future__ import annotations

import msgspec
import psycopg
import pytest

from fairlead.core.health.quarantine import QUARANTINE, Quarantined
from fairlead.core.task import State
from fairlead.storage.postgres.rows import COLUMNS, revived
from fairlead.storage.postgres.store import PostgresStore
from fairlead.storage.postgres.url import parse
from fairlead.storage.values import Filter
from fairlead.testing.builders import LEASE, NOW, a_claim, a_task, some_tasks
from fairlead.testing.steps import add, ids


@pytest.mark.parametrize(("column", "value"), [("state", 99), ("priority", 99), ("priority", -9)])
async def test_a_task_of_a_state_or_priority_that_there_is_not_is_set_aside(
    store: PostgresStore, url: str, column: str, value: int
) -> None:
    await add(store, *some_tasks(3))
    bad, good, _ = await store.claim(a_claim(limit=3))
    scheduled = a_task(state=State.SCHEDULED, ready_at=NOW + 1)
    await add(store, scheduled)
    address = parse(url)
    with psycopg.connect(address.conninfo) as connection:
        change = f'UPDATE "{address.schema}".task SET {column} = %s WHERE id = ANY(%s)'
        assert connection.execute(change.encode(), (value, [bad.id, scheduled.id])).rowcount == 2
    assert good.id in ids(await store.due(NOW + 2 * LEASE, 5))
    assert bad.id not in ids(await store.find(Filter(), limit=9))
    assert await store.get(ids([bad, scheduled])) == [None, None]
    assert {each.name for each in await store.scan(QUARANTINE)} == {f"task/{bad.id}", f"task/{scheduled.id}"}


async def test_what_an_earlier_version_set_aside_is_a_task_again(store: PostgresStore, url: str) -> None:
    """It had fewer columns: those that came since are before the id."""
    task = a_task()
    await add(store, task)
    with psycopg.connect(parse(url).conninfo) as connection:
        found = connection.execute(f"SELECT {COLUMNS} FROM fairlead.task AS t".encode()).fetchall()
    *columns, _, task_id = found[0]
    before = [None if at in (0, 1, 13) else value for at, value in enumerate([*columns, task_id])]
    parts = {"spec": columns[0], "rest": columns[1], "columns": msgspec.msgpack.encode(before)}
    (stored,) = await store.get([task.id])
    assert revived(Quarantined(kind="task", name=task.id, parts=parts, error="", found_at=NOW)) == stored
