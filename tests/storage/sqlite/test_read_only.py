"""A file or folder that may not be written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlead.core.errors import StoreError, StoreReadOnly
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.testing.builders import a_task, some_tasks
from fairlead.testing.steps import add, contents
from tests.storage.sqlite.processes import as_ordinary_user
from tests.storage.sqlite.surveying import survey

_REMEDY = "nothing was stored. Make the file and its folder writable for this user"


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A file with five tasks."""
    path = tmp_path / "folder" / "tasks.db"
    path.parent.mkdir()
    asyncio.run(keep(path))
    yield path
    path.parent.chmod(0o755)


async def keep(path: Path) -> None:
    store = SqliteStore(path)
    await add(store, *some_tasks(5))
    await store.close()


def the_error_of_an_add(path: Path) -> tuple[type[StoreError], str] | None:
    """What becomes of it when an ordinary user opens the file and adds a task."""

    async def attempt() -> None:
        store = SqliteStore(path)
        try:
            await add(store, a_task())
        finally:
            await store.close()

    def attempted() -> tuple[type[StoreError], str] | None:
        try:
            asyncio.run(attempt())
        except StoreError as error:
            return type(error), str(error)
        return None

    return as_ordinary_user(attempted)


def make_file_read_only(path: Path) -> None:
    path.chmod(0o444)


def make_folder_read_only(path: Path) -> None:
    path.parent.chmod(0o555)


def make_both_read_only(path: Path) -> None:
    path.chmod(0o444)
    path.parent.chmod(0o555)


def make_folder_read_only_and_empty(path: Path) -> None:
    path.unlink()
    path.parent.chmod(0o555)


def test_an_ordinary_user_may_write_what_is_writable(path: Path) -> None:
    assert the_error_of_an_add(path) is None
    assert survey(path) == {"queued": 6}


@pytest.mark.parametrize(
    "make", [make_file_read_only, make_folder_read_only, make_both_read_only, make_folder_read_only_and_empty]
)
def test_what_may_not_be_written_is_named_with_the_remedy(path: Path, make: Callable[[Path], None]) -> None:
    make(path)
    error = the_error_of_an_add(path)
    assert error is not None
    kind, message = error
    assert kind is StoreReadOnly
    assert message.startswith(f"{path} cannot be written (")
    assert _REMEDY in message


def test_a_read_only_file_loses_nothing_and_works_again_when_it_is_writable(path: Path) -> None:
    make_both_read_only(path)
    assert the_error_of_an_add(path) is not None
    path.parent.chmod(0o755)
    path.chmod(0o644)
    assert the_error_of_an_add(path) is None
    assert survey(path) == {"queued": 6}


async def test_a_file_that_becomes_read_only_while_open_refuses_writes_and_still_reads(path: Path) -> None:
    store = SqliteStore(path, blocking=True)
    connection = store._writer._connection  # type: ignore[attr-defined]
    # What a disk answers that was remounted; which is not in every user's power.
    connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreReadOnly, match=_REMEDY):
        await add(store, a_task())
    assert len(await contents(store)) == 5
    connection.execute("PRAGMA query_only = OFF")
    await add(store, a_task())
    await store.close()
    assert survey(path) == {"queued": 6}
