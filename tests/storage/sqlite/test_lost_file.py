"""The file is deleted, or another one is put in its place, under a store that has it open."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.core.errors import StoreUnavailable
from fairlead.storage.sqlite.database import Connection
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.testing.builders import NOW, a_claim, a_task
from fairlead.testing.steps import add


def delete(path: Path) -> None:
    path.unlink()


def delete_log(path: Path) -> None:
    path.with_name("tasks.db-wal").unlink()


def replace_log(path: Path) -> None:
    log = path.with_name("tasks.db-wal")
    log.rename(path.with_name("old.db-wal"))
    log.write_bytes(b"")


def replace(path: Path) -> None:
    path.rename(path.with_name("old.db"))
    path.write_bytes(b"")


def move_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def replace_with_the_time_of_the_folder_kept(path: Path) -> None:
    """As a program that restores backups does."""
    before = path.parent.stat()
    replace(path)
    os.utime(path.parent, ns=(before.st_atime_ns, before.st_mtime_ns))


async def settle_folder(store: SqliteStore) -> None:
    """Use a store until its folder has not changed for long enough that a look at that is all there is."""
    runners = (store._writer, store._reader)
    connections: list[Connection] = [runner._connection for runner in runners]  # type: ignore[attr-defined]
    while any(connection.folder_state is None for connection in connections):
        await add(store, a_task())
        await store.scan("readiness")


@pytest.mark.parametrize("settled", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("blocking", [False, True], ids=["asyncio", "blocking"])
@pytest.mark.parametrize(
    ("lose", "said"),
    [
        (delete, "was deleted"),
        (replace, "was replaced"),
        (delete_log, "was deleted"),
        (replace_log, "was replaced"),
        (move_folder, "was deleted"),
        (replace_with_the_time_of_the_folder_kept, "was replaced"),
    ],
)
async def test_nothing_is_acknowledged_into_the_void(
    tmp_path: Path, blocking: bool, lose: Callable[[Path], None], said: str, settled: bool
) -> None:
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / "tasks.db"
    store = SqliteStore(path, blocking=blocking)
    await add(store, a_task())
    if settled:
        await settle_folder(store)
    lose(path)
    operations = (
        store.add([a_task()], now=NOW, bounds={}),
        store.add([a_task(key="once"), a_task()], now=NOW, bounds={}),
        store.claim(a_claim(limit=1)),
        store.scan("readiness"),
        store.examine(),
    )
    for operation in operations:
        with pytest.raises(StoreUnavailable, match=rf"tasks\.db(-wal)? {said}.*put the file back"):
            await operation
    await store.close()


@pytest.mark.parametrize("blocking", [False, True], ids=["asyncio", "blocking"])
async def test_a_store_outlives_others_that_had_the_same_file_open(tmp_path: Path, blocking: bool) -> None:
    """What a store looks at to see that its file is there may be another's, and is closed with that."""
    path = tmp_path / "tasks.db"
    stores = [SqliteStore(path, blocking=blocking) for _ in range(3)]
    for _ in range(2):
        for store in stores:
            await add(store, a_task())
    while stores:
        await stores.pop(0).close()
        for store in stores:
            await add(store, a_task())
