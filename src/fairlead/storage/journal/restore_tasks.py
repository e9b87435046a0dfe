"""Putting tasks back into the hot store that the journal has and the hot store has not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from fairlead.core.identity import TaskId
from fairlead.core.task import State, Task
from fairlead.storage.journal.outbox import HotStore
from fairlead.storage.values import Added, KeyHeld


async def put_back(hot: HotStore, tasks: Sequence[Task], elsewhere: Mapping[TaskId, State]) -> list[Task]:
    """Add tasks that were accepted before, whatever bounds there are; those that were not there.

    `elsewhere` is how those stand that they wait for, as the journal knows.

    A task whose idempotency key another one holds by now goes without its key: both were promised to run.
    """
    if not tasks:
        return []
    receipts = await hot.add(tasks, now=0, bounds={}, elsewhere=elsewhere)
    keyless = [
        Task(replace(task.spec, idempotency_key=None, key_until=None), task.status)
        for task, receipt in zip(tasks, receipts, strict=True)
        if isinstance(receipt, KeyHeld)
    ]
    if keyless:
        await hot.add(keyless, now=0, bounds={}, elsewhere=elsewhere)
    return [task for task, receipt in zip(tasks, receipts, strict=True) if isinstance(receipt, Added | KeyHeld)]
