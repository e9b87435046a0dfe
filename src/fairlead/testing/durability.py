"""Clause A6: what was answered Added is still there when the process that added it is not.

A store's test file subclasses `DurabilityContract` and supplies a fixture `url` that leads to an empty store. Power
cuts and failovers are beyond these tests: each store's documentation says what it survives.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
from multiprocessing.connection import Connection

from fairlead.core.identity import TaskId
from fairlead.core.task import Task
from fairlead.storage.protocol import Store
from fairlead.storage.values import Added, Known
from fairlead.testing.builders import NOW, a_claim
from fairlead.testing.jobs import a_numbered_task, number_of
from fairlead.testing.reference import expected_standing, standing
from fairlead.testing.steps import add, contents, ids, opened

ENOUGH = 50
"""How many batches are acknowledged before the process is killed."""
BATCH = 3
"""How many tasks are added at once. The next batch is asked for when this one was acknowledged."""
PATIENCE = 60.0


class DurabilityContract:
    """What survives."""

    def test_acknowledged_tasks_survive_the_death_of_their_process(self, url: str) -> None:
        """A6: killed without warning, in the middle of an add."""
        acknowledged = _add_until_killed(url)
        assert len(acknowledged) >= ENOUGH
        asyncio.run(_assert_intact(url, acknowledged))

    def test_tasks_survive_closing_and_opening(self, url: str) -> None:
        """A6: and so does all that was done to them."""

        async def close_and_open() -> None:
            tasks = [a_numbered_task(number, key=f"key-{number}") for number in range(20)]
            async with opened(url) as store:
                await add(store, *tasks)
                claimed = await store.claim(a_claim(limit=5))
                await store.put("schedule", "nightly", b"one")
                before = await contents(store)
            async with opened(url) as store:
                assert await contents(store) == before
                assert [record.value for record in await store.scan("schedule")] == [b"one"]
                assert standing(await store.tally()) == expected_standing(before)
                assert ids(await store.claim(a_claim(limit=50))) == ids(tasks[len(claimed) :])

        asyncio.run(close_and_open())


async def _assert_intact(url: str, acknowledged: list[TaskId]) -> None:
    async with opened(url) as store:
        # A server may still be at work on what the killed process asked for last, and for as long as it likes. Whoever
        # asks for the same has it stored either way, and nothing more can come.
        last = _batch(len(acknowledged) // BATCH)
        receipts = await store.add(last, now=NOW, bounds={})
        assert all(isinstance(receipt, Added | Known) for receipt in receipts), receipts
        stored = {task.id: task for task in await contents(store)}
        assert set(acknowledged) <= set(stored), "an acknowledged task is lost"
        assert set(stored) == {*acknowledged, *ids(last)}
        assert all(task == a_numbered_task(number_of(task)) for task in stored.values()), "a task is damaged"
        assert standing(await store.tally()) == expected_standing(stored.values())
        assert sorted(ids(await store.claim(a_claim(limit=len(stored) + 1)))) == sorted(stored)


def _add_until_killed(url: str) -> list[TaskId]:
    """The ids that a process was told are stored before it was killed."""
    context = multiprocessing.get_context("spawn")
    line, far_end = context.Pipe(duplex=False)
    process = context.Process(target=_add_for_ever, args=(url, far_end), daemon=True)
    process.start()
    far_end.close()
    acknowledged: list[TaskId] = []
    try:
        for _ in range(ENOUGH):
            assert line.poll(PATIENCE), f"nothing was acknowledged for {PATIENCE:g} s"
            acknowledged += line.recv()
        process.kill()
        # What was acknowledged before the kill counts too; a message cut short by it does not.
        try:
            while line.poll(PATIENCE):
                acknowledged += line.recv()
        except (EOFError, OSError):
            pass
    finally:
        process.kill()
        process.join()
        process.close()
        line.close()
    return acknowledged


def _add_for_ever(url: str, line: Connection[list[TaskId], None]) -> None:
    asyncio.run(_add(url, line))


async def _add(url: str, line: Connection[list[TaskId], None]) -> None:
    async with opened(url) as store:
        for batch in itertools.count():
            line.send(await _add_batch(store, _batch(batch)))


def _batch(number: int) -> list[Task]:
    return [a_numbered_task(number * BATCH + at) for at in range(BATCH)]


async def _add_batch(store: Store, tasks: list[Task]) -> list[TaskId]:
    receipts = await store.add(tasks, now=NOW, bounds={})
    assert receipts == [Added()] * len(tasks)
    return ids(tasks)
