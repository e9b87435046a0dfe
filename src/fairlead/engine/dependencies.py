"""Tasks that wait for others: how a batch names its own, and what to say of those that cannot be waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from fairlead.core.errors import InvalidTask
from fairlead.core.identity import TaskId
from fairlead.core.submission import Submission
from fairlead.core.task import Task
from fairlead.storage.protocol import Store
from fairlead.storage.values import Apart, Missing


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
