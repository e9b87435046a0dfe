"""Transitions: the table of states that an event may lead to, and all that must change with the state of a task.

Which of them it is, `fairlead.core.lifecycle` decides. Here is how a task stands when it waits again, and when it has
ended; `settled` is what `Status.settled` is to hold. What a status tells of the attempt before is read here, too.
"""

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
    Expired,
    Failed,
    HandedBack,
    Prioritized,
    Purged,
    Replayed,
    Returned,
    TimedOut,
)
from fairlead.core.instant import LATEST, SECOND, Instant, Span
from fairlead.core.retry import TIMEOUT
from fairlead.core.settings import Rules
from fairlead.core.task import COMPLETED, EXECUTING, Entry, Failure, Reason, State, Status, Task

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
    return (*status.history, entry)[-HISTORY_LIMIT:] if status.history else (entry,)


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
    (State.EXECUTING, Expired.name): frozenset({State.CANCELLED}),
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


LEASE_IN_DOUBT: Final = "LeaseInDoubt"
WORKER_LOST: Final = "WorkerLost"
EXPIRED: Final = "Expired"
NOT_NEEDED: Final = "NotNeeded"


def timed_out(timeout: Span) -> Failure:
    """An attempt was stopped at its timeout."""
    return Failure(type=TIMEOUT, message=f"the attempt was stopped after its timeout of {timeout / SECOND:g} s")


def worker_lost(task: Task) -> Failure:
    """The worker that holds the task has not renewed its lease."""
    worker = task.status.lease.worker if task.status.lease else "unknown"
    message = f"worker {worker} stopped renewing its lease; it crashed, was killed, hung or lost the store"
    return Failure(type=WORKER_LOST, message=message)


def has_crashed(status: Status) -> bool:
    """Whether the last thing that happened to a task is that its process ended within the attempt.

    That its worker is lost is another matter.
    """
    if not status.history:
        return False
    last = status.history[-1]
    if last.reason is Reason.CRASHED:
        return True
    return last.reason is Reason.CRASH_LOOP and last.failure is not None and last.failure.type != WORKER_LOST


def lease_in_doubt(task: Task) -> Failure:
    """The time of the attempt is over by a clock that may have been set since it began."""
    worker = task.status.lease.worker if task.status.lease else "unknown"
    message = f"the time of the attempt on worker {worker} is over by a clock that may have been set meanwhile"
    return Failure(type=LEASE_IN_DOUBT, message=message)


def dependency_failed(task: Task) -> Failure:
    """What the task waited for did not complete."""
    named = () if task.spec.after is None else task.spec.after.tasks
    if len(named) == 1:
        message = f"task {named[0]}, which this one waited for, did not complete"
    else:
        message = f"{task.status.unmet} of the {len(named)} tasks that this one waited for did not complete"
    return Failure(type="DependencyFailed", message=message)


def not_needed(task: Task) -> Failure:
    """All that the task waited for completed, and it was to run only if not."""
    named = () if task.spec.after is None else task.spec.after.tasks
    which = f"task {named[0]}" if len(named) == 1 else f"all {len(named)} tasks"
    return Failure(type=NOT_NEEDED, message=f"{which}, which this one waited for, completed: it was to run only if not")


def waiting_again(
    task: Task,
    settled: str | None,
    now: Instant,
    reason: Reason,
    ready_at: Instant,
    delay: Span,
    cause: Failure | None = None,
) -> Status:
    """The task waits once more: at once, or after a delay. What it last failed with stays readable."""
    status = task.status
    state = State.SCHEDULED if delay > 0 else State.QUEUED
    due = min(ready_at + max(delay, 0), LATEST)
    return replace(
        status,
        state=state,
        ready_at=due,
        version=status.version + 1,
        alarm=due if state is State.SCHEDULED else None,
        lease=None,
        started_at=None,
        ended_at=None,
        cancel_asked=False,
        reason=reason,
        failure=cause or status.failure,
        progress=None,
        settled=settled,
        history=longer(task, now, state, reason, cause),
        # Who is handed back was not served and keeps its turn; else the store gives a new one when it is queued.
        turn=status.turn if reason is Reason.HANDED_BACK and state is State.QUEUED else 0,
    )


def returned(task: Task) -> Status:
    """The task waits as it did before it was claimed: with its wait, its past, and not an attempt more."""
    status = task.status
    return replace(
        status,
        state=State.QUEUED,
        version=status.version + 1,
        attempts=status.attempts - 1,
        alarm=None,
        lease=None,
        started_at=None,
        progress=None,
    )


def ended(
    task: Task,
    settled: str | None,
    now: Instant,
    rules: Rules,
    state: State,
    reason: Reason,
    *,
    result: bytes | None = None,
    cause: Failure | None = None,
) -> Status:
    """Nothing more happens to the task by itself, but for being forgotten when its retention ends."""
    spec, status = task.spec, task.status
    started_at, key_until = status.started_at, spec.key_until
    kept = None if spec.retention is None else spec.retention.of(state)
    forgotten = now + (rules.retention.of(state) if kept is None else kept)
    if key_until is not None:
        forgotten = max(forgotten, key_until)
    return replace(
        status,
        state=state,
        version=status.version + 1,
        alarm=min(forgotten, LATEST),
        lease=None,
        # After a clock went back an attempt may have begun ahead of it; it has not ended before that.
        ended_at=now if started_at is None or started_at <= now else started_at,
        reason=reason,
        failure=None if state is COMPLETED else cause or status.failure,
        result=result,
        settled=settled,
        history=longer(task, now, state, reason, cause),
    )


def is_late(task: Task, now: Instant) -> bool:
    """Whether a task is not to be started any more."""
    expires_at = task.status.expires_at
    return expires_at is not None and now > expires_at


def expiry_of(task: Task, due: Instant) -> Instant | None:
    """Until when a task may be started that is due then; None if there is no such moment."""
    return None if task.spec.expires is None else min(due + task.spec.expires, LATEST)


def expired(task: Task, now: Instant, rules: Rules) -> Status:
    """The task has ended because nobody started it in time; if it was claimed, as if it had never been taken."""
    status = task.status
    if status.state is EXECUTING:
        task = Task(task.spec, returned(task))
    waited = "" if task.spec.expires is None else f" of {task.spec.expires / SECOND:g} s"
    message = f"the task was not started before its expiry{waited} had passed"
    ended_so = cancelled(task, status.settled, now, rules, Failure(type=EXPIRED, message=message))
    return replace(ended_so, version=status.version + 1)


def cancelled(task: Task, settled: str | None, now: Instant, rules: Rules, cause: Failure | None = None) -> Status:
    """The task has ended because someone asked for it."""
    return ended(task, settled, now, rules, State.CANCELLED, Reason.CANCELLED, cause=cause)


_NOT_RETRIED: Final = frozenset({Reason.REJECTED, Reason.REJECTED_BY_RULE, Reason.DEPENDENCY_FAILED})


def retriable(task: Task) -> bool | None:
    """Whether an error such as the task's last one is tried again while there are retries, or crashes, left.

    None if the task has no error, or if nobody said so: of an attempt that ended because cancel was asked.
    """
    status = task.status
    if status.failure is None:
        return None
    # What has happened since, a replay for one, has reasons of its own.
    reason = next((entry.reason for entry in reversed(status.history) if entry.failure is not None), status.reason)
    return None if reason is Reason.CANCELLED else reason not in _NOT_RETRIED


def last_attempt(task: Task, at: Instant) -> Span | None:
    """How long the attempt took that has just ended, at this moment; None if what just happened ended none."""
    history = task.status.history
    started_at = history[-1].started_at if history and task.state is not State.EXECUTING else None
    return None if started_at is None else max(0, at - started_at)


def cancelled_at(task: Task) -> Instant | None:
    """When cancel was asked of a task that stands as that left it; the first time, if it was asked again."""
    asked = (Reason.CANCEL_ASKED, Reason.CANCELLED)
    return next((entry.at for entry in reversed(task.status.history) if entry.reason in asked), None)


def has_heard_of_cancel(asked: Task, task: Task) -> bool:
    """Whether the worker of a task has been told of a cancel since it was asked, given how the task stood then.

    It has, if it said that it stopped the attempt, or if a heartbeat came since, for the answer to that says so.
    """
    lease, status = asked.status.lease, task.status
    if lease is None:
        return False
    confirmed = (status.settled or "").startswith(f"{lease.token}:{CancelConfirmed.name}:")
    return confirmed or (status.attempts == asked.status.attempts and status.beats > asked.status.beats)
