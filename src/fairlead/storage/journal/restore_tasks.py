"""Putting tasks back into the hot store that the journal has and the hot store has not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from fairlead.core.identity import TaskId
from fairlead.core.task import State, Task
from fairlead.storage.journal.outbox import HotStore
from fairlead.storage.values import Added, KeyHeld


async def put_back(
    hot: HotStore, tasks: Sequence[Task], elsewhere: Mapping[TaskId, State]
) -> tuple[list[Task], list[TaskId]]:
    """Add tasks that were accepted before, whatever bounds there are.

    The answer is those that were not there, and the ids of those whose submit can never have been answered.
    `elsewhere` is how those stand that they wait for, as the journal knows.

    A task whose idempotency key another one holds by now goes without its key: both were promised to run. But one that
    was submitted while an older one held the key was written down and cut off before it could be refused.
    """
    if not tasks:
        return [], []
    receipts = await hot.add(tasks, now=0, bounds={}, elsewhere=elsewhere)
    held = [(task, receipt) for task, receipt in zip(tasks, receipts, strict=True) if isinstance(receipt, KeyHeld)]
    holders = await hot.get([receipt.holder for _, receipt in held]) if held else []
    unanswered = {
        task.id for (task, _), holder in zip(held, holders, strict=True) if holder is not None and _late(task, holder)
    }
    keyless = [
        Task(replace(task.spec, idempotency_key=None, key_until=None), task.status)
        for task, _ in held
        if task.id not in unanswered
    ]
    if keyless:
        await hot.add(keyless, now=0, bounds={}, elsewhere=elsewhere)
    back = [
        task
        for task, receipt in zip(tasks, receipts, strict=True)
        if isinstance(receipt, Added | KeyHeld) and task.id not in unanswered
    ]
    return back, sorted(unanswered)


def _late(task: Task, holder: Task) -> bool:
    """Whether a task that nothing was decided about was submitted while another held its key."""
    until = holder.spec.key_until
    return task.status.version == 1 and holder.id < task.id and until is not None and task.spec.created_at < until
