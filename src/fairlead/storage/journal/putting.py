"""Putting tasks back into the hot store that the journal has and the hot store has not."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from fairlead.core.task import Task
from fairlead.storage.protocol import Store
from fairlead.storage.values import Added, KeyHeld


async def put_back(hot: Store, tasks: Sequence[Task]) -> list[Task]:
    """Add tasks that were accepted before, whatever bounds there are; those that were not there.

    A task whose idempotency key another one holds by now goes without its key: both were promised to run.
    """
    if not tasks:
        return []
    receipts = await hot.add(tasks, now=0, bounds={})
    keyless = [
        Task(replace(task.spec, idempotency_key=None, key_until=None), task.status)
        for task, receipt in zip(tasks, receipts, strict=True)
        if isinstance(receipt, KeyHeld)
    ]
    if keyless:
        await hot.add(keyless, now=0, bounds={})
    return [task for task, receipt in zip(tasks, receipts, strict=True) if isinstance(receipt, Added | KeyHeld)]
