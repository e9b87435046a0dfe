"""A full disk: a clear error, nothing lost, and all is well again when there is space."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.core.errors import StoreFull
from fairlead.core.events import Completed
from fairlead.core.identity import TaskId
from fairlead.core.task import State
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.testing.builders import a_claim, a_settle, a_task
from fairlead.testing.steps import add, contents, ids
from tests.storage.sqlite.disks import Disk, TinyDisk, TinyFile, tiny_disk
from tests.storage.sqlite.surveying import survey

_PARAMETERS = b'{"text":"' + b"x" * 3_000 + b'"}'


@pytest.fixture(params=["disk", "file"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if request.param == "file":
        yield TinyFile(tmp_path)
        return
    with tiny_disk(tmp_path / "disk") as disk:
        yield disk


async def fill(store: SqliteStore) -> tuple[list[TaskId], StoreFull]:
    """Add tasks until the disk is full: those acknowledged, and the error."""
    acknowledged: list[TaskId] = []
    for _ in range(10_000):
        task = a_task(parameters=_PARAMETERS)
        try:
            await add(store, task)
        except StoreFull as error:
            return acknowledged, error
        acknowledged.append(task.id)
    raise AssertionError("the disk is never full")


async def test_an_add_to_a_full_disk_says_so_and_what_to_do(disk: Disk) -> None:
    store = disk.open()
    _, error = await fill(store)
    assert str(error) == f"the disk of {disk.path} is full; nothing was stored. Free some space and repeat the call"
    await store.close()


async def test_what_was_acknowledged_before_the_disk_was_full_is_there_and_can_be_read(disk: Disk) -> None:
    store = disk.open()
    acknowledged, _ = await fill(store)
    assert len(acknowledged) > 20
    assert ids(await contents(store)) == acknowledged
    assert all(await store.get(acknowledged))
    assert sum(sum(lane.counts.values()) for lane in (await store.tally()).lanes) == len(acknowledged)
    await store.close()
    assert survey(disk.path) == {"queued": len(acknowledged)}


async def test_the_same_store_works_again_when_space_is_freed(disk: Disk) -> None:
    store = disk.open()
    acknowledged, _ = await fill(store)
    for _ in range(3):
        with pytest.raises(StoreFull):
            await add(store, *(a_task(parameters=_PARAMETERS) for _ in range(20)))
    disk.free_some_space()
    more = [a_task(parameters=_PARAMETERS) for _ in range(20)]
    await add(store, *more)
    (claimed,) = await store.claim(a_claim())
    await store.apply([a_settle(claimed, Completed())])
    await store.close()
    assert survey(disk.path) == {"queued": len(acknowledged) + 19, "completed": 1}


async def test_of_calls_that_are_committed_together_those_that_fit_succeed(disk: Disk) -> None:
    store = disk.open()
    small = [a_task() for _ in range(10)]
    large = [[a_task(parameters=_PARAMETERS) for _ in range(500)] for _ in range(3)]
    calls = [[task] for task in small[:5]] + large + [[task] for task in small[5:]]
    answers = await asyncio.gather(*(add(store, *tasks) for tasks in calls), return_exceptions=True)
    assert [type(answer) for answer in answers[5:8]] == [StoreFull] * 3
    assert answers[:5] + answers[8:] == [None] * 10
    assert ids(await contents(store)) == ids(small)
    await store.close()
    assert survey(disk.path) == {"queued": 10}


async def test_a_claim_or_settle_that_does_not_fit_changes_nothing(disk: Disk) -> None:
    store = disk.open()
    await add(store, *(a_task() for _ in range(40)))
    claimed = await store.claim(a_claim(limit=20))
    await fill(store)
    before = await contents(store)
    settles = [a_settle(task, Completed(b'"' + b"x" * 200_000 + b'"')) for task in claimed]
    with pytest.raises(StoreFull):
        await store.apply(settles)
    assert await contents(store) == before
    disk.free_some_space()
    (verdict,) = await store.apply(settles[:1])
    assert verdict == "applied"
    (settled,) = await store.get([claimed[0].id])
    assert settled is not None
    assert settled.state is State.COMPLETED
    await store.close()
    survey(disk.path)


async def test_a_store_on_a_disk_that_is_full_already_can_be_opened_once_there_is_space(tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk") as disk:
        assert isinstance(disk, TinyDisk)
        filler = disk.path.with_name("filler")
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            for _ in range(10_000):
                file.write(bytes(4_096))
        with pytest.raises(StoreFull, match="Free some space"):
            disk.open()
        disk.free_some_space()
        store = disk.open()
        await add(store, a_task())
        await store.close()
        assert survey(disk.path) == {"queued": 1}
