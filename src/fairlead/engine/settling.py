"""Settling: a lease holder says how its attempt ended."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import LeaseLost, PayloadTooLarge
from fairlead.core.events import Completed, Crashed, Failed, Outcome
from fairlead.core.lifecycle import settlement
from fairlead.core.task import Failure, Lease, Task
from fairlead.engine.ledger import Ledger, changed
from fairlead.engine.observe import Happening
from fairlead.storage.values import Held, Verdict


class Settlement(Struct, frozen=True, gc=False):
    """A lease holder's word on how its attempt ended; the task is as it was claimed."""

    task: Task
    outcome: Outcome


async def settle(ledger: Ledger, settlements: Sequence[Settlement]) -> list[Task | LeaseLost]:
    """How each task stands now, or that its lease is lost. See `Engine.settle`."""
    now = ledger.clock.now()
    answers: list[Task | LeaseLost] = [LeaseLost(said.task.id) for said in settlements]
    outcomes = [_storable(said.outcome, ledger.settings.payload_limit) for said in settlements]
    unsettled = {position: said.task for position, said in enumerate(settlements)}
    while unsettled:
        changes = [
            ledger.decide(task, outcomes[position], now, Held(task.status.version, _lease(task).token))
            for position, task in unsettled.items()
        ]
        unclear: dict[int, Task] = {}
        for (position, task), change, verdict in zip(
            unsettled.items(), changes, await ledger.apply(changes), strict=True
        ):
            match verdict:
                case Verdict.APPLIED:
                    answers[position] = settled = changed(task, change)
                    ledger.tell(settled, now)
                case Verdict.REPEATED | Verdict.STALE:
                    unclear[position] = task
                case Verdict.MISSING:
                    pass
        unsettled = await _look_again(ledger, unclear, outcomes, answers) if unclear else {}
    for said, answer in zip(settlements, answers, strict=True):
        if isinstance(answer, LeaseLost):
            ledger.announce(Happening.REFUSED, now, said.task)
    return answers


async def _look_again(
    ledger: Ledger, unclear: dict[int, Task], outcomes: list[Outcome], answers: list[Task | LeaseLost]
) -> dict[int, Task]:
    """Answer the settles that were made before; of the others, give those whose lease still stands, read anew.

    Asking to cancel an executing task is a decision made while its lease goes on: the holder's word still counts, but
    must be judged in that light.
    """
    held: dict[int, Task] = {}
    fresh = await ledger.store.get([task.id for task in unclear.values()])
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
    match outcome:
        case Completed(result) if result is not None and len(result) > limit:
            error = PayloadTooLarge("result", len(result), limit)
            return Failed(failure=Failure(type="PayloadTooLarge", message=str(error)), retriable=False)
        case Failed(failure=failure) | Crashed(failure):
            return replace(outcome, failure=failure.storable())
        case _:
            return outcome


def _lease(task: Task) -> Lease:
    if task.status.lease is None:
        raise ValueError(f"task {task.id} is {task.state}: only a task as it was claimed can be settled")
    return task.status.lease
