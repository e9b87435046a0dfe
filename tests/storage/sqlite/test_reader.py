"""Reading a file that may not be written, in every state in which it may be found."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from fairlead.core.errors import StoreMismatch, StoreReadOnly, StoreUnavailable
from fairlead.storage.sqlite import read
from fairlead.storage.sqlite.database import Connection
from fairlead.storage.sqlite.read_only import Reader, may_write
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.storage.values import Filter
from fairlead.testing.builders import NOW, a_claim, a_task, some_tasks
from fairlead.testing.steps import add, contents
from tests.storage.sqlite.processes import as_ordinary_user

TASKS = 5


def closed(open_file: Path, path: Path) -> None:
    """Everybody has left: there is the file alone."""
    shutil.copy(open_file, path)
    with sqlite3.connect(path) as connection:
        # A copy without the log; what was in it is put into the file.
        shutil.copy(f"{open_file}-wal", f"{path}-wal")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    assert [part.name for part in path.parent.iterdir()] == [path.name]


def left_by_a_crash(open_file: Path, path: Path) -> None:
    for part in ("", "-wal", "-shm"):
        shutil.copy(f"{open_file}{part}", f"{path}{part}")


def copied_without_index(open_file: Path, path: Path) -> None:
    for part in ("", "-wal"):
        shutil.copy(f"{open_file}{part}", f"{path}{part}")


def in_use(open_file: Path, path: Path) -> None:
    """Somebody has it open, here by another name for the folder."""
    path.parent.rmdir()
    open_file.parent.rename(path.parent)
    open_file.parent.symlink_to(path.parent)


def protect(path: Path) -> None:
    for part in path.parent.iterdir():
        part.chmod(0o444)
    path.parent.chmod(0o555)


@pytest.fixture(params=[closed, left_by_a_crash, copied_without_index, in_use])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """A file with five tasks, in a folder of its own, that only root may write."""
    open_file = tmp_path / "open" / "tasks.db"
    path = tmp_path / "protected" / "tasks.db"
    open_file.parent.mkdir()
    path.parent.mkdir()
    store = SqliteStore(open_file, blocking=True)
    asyncio.run(add(store, *some_tasks(TASKS)))
    request.param(open_file, path)
    protect(path)
    yield path
    path.parent.chmod(0o755)
    asyncio.run(store.close())


def as_reader(path: Path, use: Callable[[SqliteStore], Coroutine[Any, Any, Any]], *, blocking: bool = False) -> Any:
    """What somebody finds who may only read the file."""

    async def answer() -> Any:
        store = SqliteStore(path, blocking=blocking)
        try:
            return await use(store)
        finally:
            await store.close()

    return as_ordinary_user(lambda: asyncio.run(answer()))


@pytest.mark.parametrize("blocking", [False, True], ids=["asyncio", "blocking"])
def test_all_can_be_read_and_nothing_is_left_beside_it(path: Path, blocking: bool) -> None:
    before = sorted(part.name for part in path.parent.iterdir())

    async def look(store: SqliteStore) -> tuple[int, ...]:
        tasks = await contents(store)
        found = await store.get([task.id for task in tasks])
        tally = await store.tally()
        due = await store.due(NOW, 10)
        records = await store.scan("queue")
        told = await store.feed(None, 10)
        counted = sum(sum(lane.counts.values()) for lane in tally.lanes)
        return len(tasks), sum(task is not None for task in found), counted, len(due), len(records), len(told)

    assert as_reader(path, look, blocking=blocking) == (TASKS, TASKS, TASKS, 0, 0, 0)
    assert sorted(part.name for part in path.parent.iterdir()) == before


def test_it_is_examined(path: Path) -> None:
    async def look(store: SqliteStore) -> list[tuple[str, str]]:
        return [(finding.what, finding.level.value) for finding in (await store.examine()).findings]

    findings = dict(as_reader(path, look))
    assert findings["access"] == "yellow"
    assert findings["integrity"] == "green"
    assert findings.pop("permissions") == "red", "other users may read it"
    assert "red" not in findings.values()


def test_every_change_is_refused_with_the_remedy(path: Path) -> None:
    async def change(store: SqliteStore) -> list[tuple[bool, str]]:
        errors: list[tuple[bool, str]] = []
        for operation in (
            store.add([a_task()], now=NOW, bounds={}),
            store.claim(a_claim(limit=1)),
            store.extend([], lease=1, grace=1),
            store.apply([]),
            store.put("queue", "default", b"{}"),
            store.drop("queue", "default"),
            store.publish([b"1"], now=NOW, keep=1),
        ):
            try:
                await operation
            except StoreReadOnly as error:
                errors.append((error.lasting, str(error)))
        return errors

    errors = as_reader(path, change)
    assert len(errors) == 7
    assert {lasting for lasting, _ in errors} == {True}
    (message,) = {message for _, message in errors}
    assert message.startswith(f"{path} cannot be written (")
    assert "Make the file and its folder writable for this user, and start this process again" in message


class TestWithoutLocks:
    """A file that was alone when it was opened, read while somebody writes after all."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "tasks.db"
        asyncio.run(self.write(path, TASKS))
        return path

    async def write(self, path: Path, count: int) -> None:
        store = SqliteStore(path, blocking=True)
        await add(store, *some_tasks(count))
        await store.close()

    def a_reader(self, path: Path) -> Reader:
        return Reader(path, blocking=True, synchronous="FULL")

    async def test_what_others_write_is_seen(self, path: Path) -> None:
        reader = self.a_reader(path)
        assert len(await reader.run(all_tasks)) == TASKS
        await self.write(path, 2)
        assert len(await reader.run(all_tasks)) == TASKS + 2
        store = SqliteStore(path, blocking=True)
        await add(store, a_task())
        assert len(await reader.run(all_tasks)) == TASKS + 3
        await store.close()
        assert len(await reader.run(all_tasks)) == TASKS + 3

    async def test_what_is_read_while_others_write_is_read_again(self, path: Path) -> None:
        seen: list[int] = []

        def disturbed(connection: Connection) -> int:
            seen.append(len(all_tasks(connection)))
            if len(seen) == 1:
                with sqlite3.connect(path) as other:
                    other.execute("PRAGMA user_version = 7")
                other.close()
                raise ValueError("half of what was written")
            return seen[-1]

        assert await self.a_reader(path).run(disturbed) == TASKS
        assert seen == [TASKS, TASKS]

    def test_a_file_that_goes_away_is_told(self, path: Path) -> None:
        reader = self.a_reader(path)
        path.unlink()
        with pytest.raises(StoreUnavailable, match=r"tasks\.db cannot be opened"):
            asyncio.run(reader.run(all_tasks))

    def test_a_foreign_file_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "other.db"
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE theirs (x)")
        connection.close()
        with pytest.raises(StoreMismatch, match="of another program"):
            self.a_reader(path)

    def test_an_older_schema_names_who_can_help(self, path: Path) -> None:
        with sqlite3.connect(path) as connection:
            connection.execute("DELETE FROM migration WHERE version > 3")
        connection.close()
        with pytest.raises(StoreReadOnly, match=r"schema version 3 .* as a user who may write"):
            self.a_reader(path)


def all_tasks(connection: Connection) -> list[Any]:
    return read.find(connection, Filter(), 1_000, False, None)


def test_damage_is_passed_over_where_it_cannot_be_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "tasks.db"
    path.parent.mkdir()

    async def keep() -> None:
        store = SqliteStore(path)
        await add(store, *some_tasks(TASKS))
        await store.close()

    asyncio.run(keep())
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE task SET spec = x'ff' WHERE number = (SELECT min(number) FROM task)")
    connection.close()
    protect(path)

    async def look(store: SqliteStore) -> int:
        return len(await contents(store))

    assert as_reader(path, look) == TASKS - 1
    path.parent.chmod(0o755)


def test_what_is_not_there_may_be_made(tmp_path: Path) -> None:
    assert may_write(tmp_path / "tasks.db")
