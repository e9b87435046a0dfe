"""The table of transitions: which states an event may lead to. Which one it does, `fairlead.core.lifecycle` decides."""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec.structs import replace

from fairlead.core.events import (
    AlarmRang,
    CancelAsked,
    CancelConfirmed,
    Completed,
    Crashed,
    Discarded,
    Failed,
    HandedBack,
    Prioritized,
    Purged,
    Replayed,
    Returned,
    TimedOut,
)
from fairlead.core.instant import Instant
from fairlead.core.task import EXECUTING, Entry, Failure, Reason, State, Task

HISTORY_LIMIT: Final = 32
"""How many lines of history a task keeps; the oldest go first."""


def longer(task: Task, now: Instant, state: State, reason: Reason, cause: Failure | None = None) -> tuple[Entry, ...]:
    """The task's history with one line more: what it came to now, why, and the attempt that this ended."""
    status = task.status
    executing = status.state is EXECUTING
    entry = Entry(
        at=now,
        state=state,
        reason=reason,
        attempt=status.attempts if executing else 0,
        worker=status.lease.worker if status.lease else None,
        started_at=status.started_at if executing else None,
        # The traceback is kept once, in the status: a history of them would dwarf the task.
        failure=replace(cause, traceback=None) if cause else None,
    )
    return (*status.history, entry)[-HISTORY_LIMIT:]


def state_before(task: Task) -> State | None:
    """The state that a task has left for the one that it has just come to; None if it is new.

    It is the same state where nothing but its priority, or that it should be cancelled, has changed.
    """
    status = task.status
    history = status.history
    if status.state is EXECUTING:
        return EXECUTING if status.cancel_asked else State.QUEUED
    if not history:
        return None
    last = history[-1]
    if last.attempt:
        return EXECUTING
    if last.reason is Reason.PRIORITIZED:
        return last.state
    if len(history) > 1:
        # A claim, and what was claimed and returned unseen, leave no line of their own.
        before = history[-2].state
        return State.QUEUED if before is EXECUTING else before
    first_scheduled = task.spec.after is not None or status.ready_at > task.spec.created_at
    return State.SCHEDULED if first_scheduled or last.reason is Reason.DUE else State.QUEUED


REMOVED: Final = None
"""The target of a transition after which the task no longer exists."""

Target: TypeAlias = State | None

_SOFT_END: Final = frozenset[Target]({State.QUEUED, State.SCHEDULED, State.CANCELLED})
_HARD_END: Final = _SOFT_END | {State.FAILED, State.DEAD_LETTER}

TRANSITIONS: Final[dict[tuple[State, str], frozenset[Target]]] = {
    (State.SCHEDULED, AlarmRang.name): _SOFT_END,
    (State.SCHEDULED, CancelAsked.name): frozenset({State.CANCELLED}),
    (State.SCHEDULED, Prioritized.name): frozenset({State.SCHEDULED}),
    (State.SCHEDULED, Purged.name): frozenset({REMOVED}),
    (State.QUEUED, "claim"): frozenset({State.EXECUTING}),
    (State.QUEUED, CancelAsked.name): frozenset({State.CANCELLED}),
    (State.QUEUED, Prioritized.name): frozenset({State.QUEUED}),
    (State.QUEUED, Purged.name): frozenset({REMOVED}),
    (State.EXECUTING, Completed.name): frozenset({State.COMPLETED}),
    (State.EXECUTING, Failed.name): _HARD_END,
    (State.EXECUTING, TimedOut.name): _HARD_END,
    (State.EXECUTING, Crashed.name): _HARD_END - {State.FAILED},
    (State.EXECUTING, HandedBack.name): _SOFT_END,
    (State.EXECUTING, Returned.name): frozenset({State.QUEUED}),
    (State.EXECUTING, CancelConfirmed.name): frozenset({State.CANCELLED}),
    (State.EXECUTING, AlarmRang.name): _HARD_END - {State.FAILED},
    (State.EXECUTING, CancelAsked.name): frozenset({State.EXECUTING}),
    (State.COMPLETED, AlarmRang.name): frozenset({REMOVED}),
    (State.COMPLETED, Discarded.name): frozenset({REMOVED}),
    **{
        transition: targets
        for ended in (State.FAILED, State.DEAD_LETTER, State.CANCELLED)
        for transition, targets in {
            (ended, AlarmRang.name): frozenset({REMOVED}),
            (ended, Discarded.name): frozenset({REMOVED}),
            (ended, Replayed.name): frozenset({State.QUEUED}),
        }.items()
    },
}
"""Every change a stored task can go through: (state, event) to the states it may lead to."""
