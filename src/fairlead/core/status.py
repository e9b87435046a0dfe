"""How a task stands when it waits again, and when it has ended: all that must change with its state, in one place.

Which of the two it is, `fairlead.core.lifecycle` decides. `settled` is what `Status.settled` is to hold.
"""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.core.history import longer
from fairlead.core.instant import LATEST, Instant, Span
from fairlead.core.settings import Rules
from fairlead.core.task import COMPLETED, Failure, Reason, State, Status, Task


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
    status = task.status
    forgotten, key_until = now + rules.retention.of(state), task.spec.key_until
    if key_until is not None:
        forgotten = max(forgotten, key_until)
    return replace(
        status,
        state=state,
        version=status.version + 1,
        alarm=min(forgotten, LATEST),
        lease=None,
        ended_at=now,
        reason=reason,
        failure=None if state is COMPLETED else cause or status.failure,
        result=result,
        settled=settled,
        history=longer(task, now, state, reason, cause),
    )


def cancelled(task: Task, settled: str | None, now: Instant, rules: Rules, cause: Failure | None = None) -> Status:
    """The task has ended because someone asked for it."""
    return ended(task, settled, now, rules, State.CANCELLED, Reason.CANCELLED, cause=cause)
