"""Opening: whose file it is, which version, and what is said when it cannot be opened."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fairlead.core.errors import InvalidSettings, StoreMismatch, StoreUnavailable
from fairlead.storage.open import open_store
from fairlead.storage.sqlite.database import _migrations, connect
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.testing.builders import a_task, some_tasks
from fairlead.testing.steps import add, contents, read
from tests.storage.sqlite.processes import spawning
from tests.storage.sqlite.surveying import survey

NEWEST = len(_migrations())


async def test_a_new_file_has_the_newest_version_and_full_durability(path: Path) -> None:
    await SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT max(version) FROM migration").fetchone() == (NEWEST,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with closing(connect(path, synchronous="FULL")) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


async def test_reopening_keeps_every_task(path: Path) -> None:
    task = a_task(key="a", tags=["b"])
    first = SqliteStore(path)
    await add(first, task)
    await first.close()
    second = SqliteStore(path)
    assert await read(second, task) == task
    await second.close()


async def test_a_file_can_be_opened_many_times_by_one_process(path: Path) -> None:
    stores = [SqliteStore(path) for _ in range(10)]
    for store in stores:
        await add(store, a_task())
    assert all([len(await contents(store)) == 10 for store in stores])
    for store in stores:
        await store.close()


@pytest.mark.slow
def test_processes_that_open_a_new_file_at_the_same_moment_all_succeed(tmp_path: Path) -> None:
    # In each other's way at the first file, they stay so to the last.
    paths = [tmp_path / f"{number}.db" for number in range(15)]
    with spawning(4) as processes:
        for versions in processes.map(open_each, [paths] * 4):
            assert versions == [NEWEST] * 15
    for path in paths:
        survey(path)


def open_each(paths: list[Path]) -> list[int]:
    return [open_and_close(path) for path in paths]


def open_and_close(path: Path) -> int:
    with closing(connect(path, synchronous="FULL")) as connection:
        (version,) = connection.execute("SELECT max(version) FROM migration").fetchone()
        return int(version)


@pytest.mark.parametrize("statements", range(20))
def test_someone_else_may_open_a_new_file_between_any_two_statements_of_an_opening(
    path: Path, monkeypatch: pytest.MonkeyPatch, statements: int
) -> None:
    left = [statements]

    class Interrupted(sqlite3.Connection):
        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            cursor = super().execute(*arguments)
            left[0] -= 1
            if left[0] == -1:
                # The one that came between may find the file locked; the one that was interrupted must not fail.
                with contextlib.suppress(StoreUnavailable):
                    connect(path, synchronous="FULL", patience=0.05).close()
            return cursor

    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Interrupted))
    assert open_and_close(path) == NEWEST
    survey(path)


def test_another_programs_database_is_refused_and_left_as_it_is(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE recipe (name TEXT)")
        connection.execute("INSERT INTO recipe VALUES ('bread')")
        connection.commit()
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(StoreMismatch, match=r"tasks\.db is a database of another program; give fairlead a file of"):
        SqliteStore(path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_marked_database_of_another_program_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA application_id = 42")
        connection.execute("VACUUM")
    with pytest.raises(StoreMismatch, match="another program"):
        SqliteStore(path)


@pytest.mark.parametrize("text", ["hello", "hello, world\n" * 1_000])
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(StoreMismatch, match=r"tasks\.db is not a readable SQLite database .*; restore it or use"):
        SqliteStore(path)
    assert path.read_text() == text


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    assert open_and_close(path) == NEWEST


async def test_a_file_of_a_newer_version_is_refused(path: Path) -> None:
    store = SqliteStore(path)
    await add(store, *some_tasks(3))
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO migration VALUES (99)")
        connection.commit()
    with pytest.raises(StoreMismatch, match=f"schema version 99 and this fairlead knows {NEWEST}; upgrade fairlead"):
        SqliteStore(path)
    assert survey(path) == {"queued": 3}


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"there is no folder .*/missing; create it"):
        SqliteStore(tmp_path / "missing" / "tasks.db")
    assert not (tmp_path / "missing").exists()


def test_a_folder_in_the_files_place_is_named(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreUnavailable, match=r"tasks\.db cannot be opened .* check that it is a file"):
        SqliteStore(path)


async def test_the_url_chooses_how_durable_the_store_is(path: Path) -> None:
    await (await open_store(f"sqlite:///{path}?synchronous=normal")).close()
    with pytest.raises(InvalidSettings, match="synchronous='off' is unknown; use one of FULL, NORMAL, EXTRA"):
        await open_store(f"sqlite:///{path}?synchronous=off")
    with pytest.raises(InvalidSettings, match="unknown option 'colour'"):
        await open_store(f"sqlite:///{path}?colour=red")
    with pytest.raises(InvalidSettings, match="names no file"):
        await open_store("sqlite://")
    with pytest.raises(InvalidSettings, match="use memory://"):
        await open_store("sqlite:///:memory:")
