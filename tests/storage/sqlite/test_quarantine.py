"""What a file holds of a task or a record need not even be bytes: one wrong bit in a row's head says another type."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.service import Keyring
from fairlead.core.errors import StoreMismatch
from fairlead.core.events import Completed, Failed, HandedBack
from fairlead.core.health.quarantine import QUARANTINE, SEAL
from fairlead.core.task import Failure, State
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.storage.values import Filter
from fairlead.testing.builders import LEASE, NOW, a_claim, a_settle, a_task, some_tasks
from fairlead.testing.steps import add, ids
from fairlead.testing.vandalism import assert_tallied

BOOM = Failure(type="Boom", message="it went boom", traceback="")
OTHERWISE = pytest.mark.parametrize("value", ["CAST(x'ff00fe' AS TEXT)", "'text'", "7", "-0.5", "9223372036854775807"])


def damage(path: Path, table: str, column: str, value: str, where: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        change = f"UPDATE {table} SET {column} = {value} WHERE {where}"
        assert connection.execute(change).rowcount == 1


@OTHERWISE
@pytest.mark.parametrize("column", ["spec", "added"])
async def test_a_waiting_task_of_another_type_is_set_aside(
    store: SqliteStore, path: Path, column: str, value: str
) -> None:
    first, bad, last, listed = *some_tasks(3), a_task(state=State.FAILED)
    await add(store, first, bad, last, listed)
    for task in (bad, listed):
        damage(path, "task", column, value, f"id = '{task.id}'")
    if column == "added":
        damage(path, "status", "status", value, f"id = '{listed.id}'")
    assert ids(await store.claim(a_claim(limit=5))) == ids([first, last])
    assert await store.find(Filter(states=frozenset({State.FAILED})), limit=5) == []
    assert await store.get(ids([bad, listed])) == [None, None]
    assert {each.name for each in await store.scan(QUARANTINE)} == {f"task/{bad.id}", f"task/{listed.id}"}
    await assert_tallied(store)


@OTHERWISE
async def test_an_executing_task_of_another_type_is_in_nobodys_way(store: SqliteStore, path: Path, value: str) -> None:
    await add(store, *some_tasks(3))
    bad, settled, swept = await store.claim(a_claim(limit=3))
    damage(path, "status", "status", value, f"id = '{bad.id}'")
    await store.apply([a_settle(bad, Completed()), a_settle(settled, Completed())])
    assert ids(await store.due(NOW + 2 * LEASE, 5)) == [swept.id]
    assert await store.get([bad.id]) == [None]
    assert [each.name for each in await store.scan(QUARANTINE)] == [f"task/{bad.id}"]
    await assert_tallied(store)


@OTHERWISE
async def test_a_key_of_another_type_is_set_aside_and_still_counts(store: SqliteStore, path: Path, value: str) -> None:
    engine = AdminEngine(store)
    await store.put("key", "one", b"\x80")
    damage(path, "record", "value", value, "kind = 'key'")
    damage(path, "record", "version", "'?'", "kind = 'key'")
    assert await Keyring(engine).read() == ([], ["one"])
    assert [record.value for record in await store.scan("key")] == [SEAL]
    assert [record.name for record in await store.scan(QUARANTINE)] == ["key/one"]


async def test_a_damaged_index_is_an_error_of_the_store(store: SqliteStore, path: Path) -> None:
    """Whoever works with a store goes on after each of these, and after no other."""
    await add(store, a_task())
    damage(path, "lane", "priority", "'?'", "TRUE")
    with pytest.raises(StoreMismatch, match="is damaged beside its tasks and records: ValueError"):
        await store.tally()
    with pytest.raises(StoreMismatch, match="is damaged beside its tasks and records: ValueError"):
        await store.claim(a_claim())


@pytest.mark.parametrize(
    ("table", "column", "value", "meet"),
    [
        ("directory", "id", "CAST(id AS BLOB)", ["add"]),
        ("filed", "number", "'?'", ["add", "apply"]),
        ("lane", "lane", "9999", ["apply"]),
        ("lane", "priority", "'?'", ["apply"]),
        ("record", "version", "'?'", []),
        ("feed_end", "position", "'?'", ["publish"]),
        ("feed_end", "published", "x'00'", ["publish"]),
    ],
)
async def test_what_writes_into_a_damaged_file_does_it_or_says_that_the_file_is_damaged(
    store: SqliteStore, path: Path, table: str, column: str, value: str, meet: list[str]
) -> None:
    """Whoever works with a store goes on after our errors, and after no other; not all of them meet each damage."""
    await add(store, *some_tasks(3))
    held, other = await store.claim(a_claim(limit=2))
    await store.put("queue", "default", b"1")
    await store.publish([b"1"], now=NOW, keep=9)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(f"UPDATE {table} SET {column} = {value}")
    met = []
    writes: dict[str, Callable[[], Awaitable[object]]] = {
        "add": lambda: store.add([a_task(queue="next"), a_task()], now=NOW, bounds={"default": 99}),
        "apply": lambda: store.apply([a_settle(held, HandedBack()), a_settle(other, Completed())]),
        "put": lambda: store.put("queue", "default", b"2"),
        "publish": lambda: store.publish([b"2"], now=NOW, keep=9),
    }
    for name, write in writes.items():
        try:
            await write()
        except StoreMismatch as error:
            assert "is damaged beside its tasks and records" in str(error)
            met.append(name)
    assert met == meet


async def test_what_a_caller_gives_that_cannot_be_stored_is_no_damage_of_the_file(store: SqliteStore) -> None:
    await add(store, a_task())
    (held,) = await store.claim(a_claim())
    said = a_settle(held, Failed(failure=replace(BOOM, message="half a pair: \ud800")))
    with pytest.raises(UnicodeEncodeError):
        await store.apply([said])
    with pytest.raises(UnicodeEncodeError):
        await store.add([a_task(queue="half a pair: \ud800")], now=NOW, bounds={})
    with pytest.raises(TypeError):
        await store.publish([b"1"], now="now", keep=9)  # type: ignore[arg-type]
    assert await store.get([held.id]) == [held]


async def test_bytes_that_are_called_text_are_read_all_the_same(store: SqliteStore, path: Path) -> None:
    task = a_task()
    await add(store, task)
    damage(path, "task", "spec", "CAST(spec AS TEXT)", "TRUE")
    assert await store.get([task.id]) == [task]
