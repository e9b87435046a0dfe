"""Tasks that wait for others: how a batch names its own, what is refused, and when dependents are released."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec.structs import replace

from fairlead.core.errors import InvalidTask
from fairlead.core.identity import TaskId
from fairlead.core.instant import AT_ONCE, Instant
from fairlead.core.submission import Submission
from fairlead.core.task import Failure, Task
from fairlead.storage.protocol import Store
from fairlead.storage.values import Apart, Missing

_BATCH: Final = 1_000
_ROUNDS: Final = 100
"""How far one call follows a chain whose tasks end one after the other by being cancelled. The sweep does the rest."""


def named(submission: Submission, position: int, ids: Sequence[TaskId]) -> Submission:
    """The submission at this position of a batch, with the ids of those that it names by their position."""
    after = [
        ids[one] if isinstance(one, int) and 0 <= one < position else one  # What is wrong is left for `accept` to name.
        for one in submission.after
    ]
    return replace(submission, after=tuple(after))


def refusal(receipt: Missing | Apart, ids: Sequence[TaskId]) -> InvalidTask:
    """Why a task of the batch with these ids cannot wait for what it names."""
    one = receipt.named
    if isinstance(receipt, Apart):
        return InvalidTask(
            "after",
            f"after names task {one}, whose queue is in another slot of the Redis Cluster, where both cannot be "
            f"counted together; use the same queue",
        )
    if one in ids:
        return InvalidTask("after", f"after names task {ids.index(one)} of the same batch, which was not stored")
    return unknown_parent(one)


def unknown_parent(named: TaskId | int) -> InvalidTask:
    """The refusal of a task that is to wait for one that is not there."""
    return InvalidTask(
        "after", f"after names task {named}, which is not stored; the id is wrong, or its retention has passed"
    )


def again(
    submissions: Mapping[int, Submission], ids: Sequence[TaskId], stored: Mapping[int, TaskId]
) -> list[Submission]:
    """Submissions, by their position in a batch, as a batch of their own; `stored` is what came of the others."""
    places = {position: place for place, position in enumerate(submissions)}
    positions = {task_id: position for position, task_id in enumerate(ids)}

    def renamed(one: TaskId | int) -> TaskId | int:
        position = one if isinstance(one, int) else positions.get(one)
        if position is None:
            return one
        return places[position] if position in places else stored.get(position, one)

    return [replace(said, after=tuple(map(renamed, said.after))) for said in submissions.values()]


async def unended(store: Store, task: Task) -> list[Task]:
    """Those of the tasks that this one waits for that have not ended."""
    if task.spec.after is None or not task.status.waits:
        return []
    found = await store.get(task.spec.after.tasks)
    return [parent for parent in found if parent is not None and not parent.state.ended]


async def shown_to(store: Store, tasks: Sequence[Task], tenant: str | None) -> list[Task]:
    """The tasks as they are shown to a tenant: without the ids of others' tasks that somebody made them wait for."""
    waiting = [] if tenant is None else [task.spec.after for task in tasks if task.spec.after is not None]
    if not waiting:
        return list(tasks)
    found = await store.get(sorted({one for after in waiting for one in after.tasks}))
    hidden = {task.id for task in found if task is not None and task.spec.tenant != tenant}
    return [_without(task, hidden) for task in tasks] if hidden else list(tasks)


def _without(task: Task, hidden: AbstractSet[TaskId]) -> Task:
    after, status = task.spec.after, task.status
    if after is None or hidden.isdisjoint(after.tasks):
        return task
    spec = replace(task.spec, after=replace(after, tasks=tuple(one for one in after.tasks if one not in hidden)))
    history = tuple(replace(entry, failure=_unnamed(entry.failure, hidden)) for entry in status.history)
    return Task(spec, replace(status, failure=_unnamed(status.failure, hidden), history=history))


def _unnamed(failure: Failure | None, hidden: AbstractSet[TaskId]) -> Failure | None:
    """The failure, which does not name these tasks."""
    if failure is None:
        return None
    message = functools.reduce(lambda text, one: text.replace(one, "of another tenant"), hidden, failure.message)
    return replace(failure, message=message)


async def release(store: Store, ring: Callable[[Sequence[Task]], Awaitable[Sequence[object]]]) -> None:
    """Answer the alarms of tasks that have nothing left to wait for; if we die first, any sweep does.

    `ring` answers the alarms of tasks, and says which of them no one else answered meanwhile.
    """
    for _ in range(_ROUNDS):
        tasks = await store.due(AT_ONCE, _BATCH)
        if not tasks or not await ring(tasks):
            return


async def released_at(store: Store, task: Task) -> Instant:
    """When the last of those that a task has waited for ended, as far as they are still there."""
    parents = [] if task.spec.after is None else await store.get(task.spec.after.tasks)
    ends = [parent.status.ended_at for parent in parents if parent is not None and parent.status.ended_at is not None]
    return max(task.spec.created_at, *ends)  # What was submitted after their ends has never waited.
