"""Every transition of a task, told from what a task keeps of its past.

A task keeps its decisions; that it was submitted and when it was claimed follows from them.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from fairlead.core.identity import WorkerId
from fairlead.core.instant import Instant
from fairlead.core.task import Entry, Failure, Reason, State, Task
from fairlead.wire.moments import iso


class TransitionError(Struct, kw_only=True):
    """What went wrong in the attempt that ended there."""

    type: str
    message: str


class Transition(Struct, kw_only=True):
    """One change of a task's status."""

    at: str
    status: str
    """The status that it came to."""
    reason: str
    """Why; `claimed` when a worker took it."""
    attempt: int
    """The number of the attempt that began or ended; 0 if none did."""
    worker_id: str | None
    error: TransitionError | None


def transitions(task: Task) -> list[Transition]:
    """Every transition, the oldest first; of a very long past, the latest part and the submit."""
    return list(_told(task))


def _told(task: Task) -> Iterator[Transition]:
    spec, status = task.spec, task.status
    yield _transition(spec.created_at, _first_state(task), Reason.SUBMITTED.value)
    claimed = 0
    for entry in status.history:
        if entry.started_at is not None and entry.attempt > claimed:
            claimed = entry.attempt
            yield _claim(entry.started_at, entry.attempt, entry.worker)
        yield _transition(entry.at, entry.state, entry.reason.value, entry.attempt, entry.worker, entry.failure)
    if status.state is State.EXECUTING and status.started_at is not None and status.attempts > claimed:
        yield _claim(status.started_at, status.attempts, status.lease.worker if status.lease else None)


def _first_state(task: Task) -> State:
    history = task.status.history
    if history and history[0].reason is Reason.DUE:
        return State.SCHEDULED
    if history and history[0].reason is Reason.PRIORITIZED:
        return history[0].state
    waited_for = _never_requeued(history) and task.status.ready_at > task.spec.created_at
    return State.SCHEDULED if waited_for else State.QUEUED


def _never_requeued(history: tuple[Entry, ...]) -> bool:
    return not any(entry.state.waiting for entry in history)


def _claim(at: Instant, attempt: int, worker: WorkerId | None) -> Transition:
    return _transition(at, State.EXECUTING, "claimed", attempt, worker)


def _transition(
    at: Instant,
    state: State,
    reason: str,
    attempt: int = 0,
    worker: WorkerId | None = None,
    failure: Failure | None = None,
) -> Transition:
    return Transition(
        at=iso(at),
        status=state.value,
        reason=reason,
        attempt=attempt,
        worker_id=worker,
        error=None if failure is None else TransitionError(type=failure.type, message=failure.message),
    )
