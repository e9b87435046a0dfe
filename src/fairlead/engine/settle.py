"""Settling: a lease holder says how its attempt ended."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import LeaseLost, PayloadTooLarge
from fairlead.core.events import Completed, Crashed, Failed, Outcome
from fairlead.core.instant import Instant
from fairlead.core.lifecycle import settlement
from fairlead.core.task import Failure, Lease, Task
from fairlead.engine.changes import TaskChanges, changed
from fairlead.engine.events.types import Happening
from fairlead.storage.values import APPLIED, Held, Verdict


class Settlement(Struct, frozen=True, gc=False):
    """A lease holder's word on how its attempt ended; the task is as it was claimed."""

    task: Task
    outcome: Outcome


async def settle(task_changes: TaskChanges, settlements: Sequence[Settlement]) -> list[Task | LeaseLost]:
    """How each task stands now, or that its lease is lost. See `Engine.settle`."""
    now = task_changes.clock.now()
    answers: list[Task | None] = [None] * len(settlements)
    outcomes = [_storable(said.outcome, task_changes.settings.payload_limit) for said in settlements]
    unsettled = {position: said.task for position, said in enumerate(settlements)}
    watching = task_changes.breakers.watching
    while unsettled:
        changes = [
            task_changes.decide(task, outcomes[position], now, Held(task.status.version, _lease(task).token))
            for position, task in unsettled.items()
        ]
        unclear: dict[int, Task] = {}
        applied: list[Task] = []
        for (position, task), change, verdict in zip(
            unsettled.items(), changes, await task_changes.apply(changes), strict=True
        ):
            if verdict is APPLIED:
                answers[position] = settled = changed(task, change)
                applied.append(settled)
                if watching:
                    task_changes.breakers.count(task, settled.status)
            elif verdict is not Verdict.MISSING:
                unclear[position] = task
        task_changes.tell_settled(applied, now)
        unsettled = await _look_again(task_changes, unclear, outcomes, answers) if unclear else {}
    return [answer or _refuse(task_changes, said.task, now) for said, answer in zip(settlements, answers, strict=True)]


def _refuse(task_changes: TaskChanges, task: Task, now: Instant) -> LeaseLost:
    task_changes.note(Happening.REFUSED, now, task)
    return LeaseLost(task.id)


async def _look_again(
    task_changes: TaskChanges, unclear: dict[int, Task], outcomes: list[Outcome], answers: list[Task | None]
) -> dict[int, Task]:
    """Answer the settles that were made before; of the others, give those whose lease still stands, read anew.

    Asking to cancel an executing task is a decision made while its lease goes on: the holder's word still counts, but
    must be judged in that light.
    """
    held: dict[int, Task] = {}
    fresh = await task_changes.store.get([task.id for task in unclear.values()])
    for (position, task), stored in zip(unclear.items(), fresh, strict=True):
        if stored is None:
            continue
        lease = _lease(task)
        if stored.status.lease is not None and stored.status.lease.token == lease.token:
            held[position] = stored
        elif stored.status.settled == settlement(lease, outcomes[position]):
            answers[position] = stored
    return held


def _storable(outcome: Outcome, limit: int) -> Outcome:
    """An outcome that fits into the store: of bounded size, and in valid Unicode."""
    if isinstance(outcome, Completed):
        if outcome.result is None or len(outcome.result) <= limit:
            return outcome
        error = PayloadTooLarge("result", len(outcome.result), limit)
        return Failed(failure=Failure(type="PayloadTooLarge", message=str(error)), retriable=False)
    if isinstance(outcome, Failed | Crashed):
        return replace(outcome, failure=outcome.failure.storable())
    return outcome


def _lease(task: Task) -> Lease:
    if task.status.lease is None:
        raise ValueError(f"task {task.id} is {task.state}: only a task as it was claimed can be settled")
    return task.status.lease
