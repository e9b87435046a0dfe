"""What becomes of a task: the one function that decides.

`fairlead.core.transitions` says which states an event may lead to; `decide` says which one it does lead to, and how the
task then stands. A worker's settle, the sweep and every request of a user go through `decide`; no other code knows of
retries, dead letters, lost workers, cancel, replay or retention.
"""

from __future__ import annotations

import zlib
from typing import Final, assert_never

from msgspec.structs import replace

from fairlead.core.errors import LeaseLost, WrongState
from fairlead.core.events import (
    AlarmRang,
    CancelAsked,
    CancelConfirmed,
    Completed,
    Crashed,
    Discarded,
    Event,
    Expired,
    Failed,
    HandedBack,
    Outcome,
    Prioritized,
    Purged,
    Replayed,
    Returned,
    TimedOut,
)
from fairlead.core.identity import LeaseToken, WorkerId, registration_of
from fairlead.core.instant import Instant, Span
from fairlead.core.retry import TIMEOUT, RetryRule, backoff_of, rule_for
from fairlead.core.settings import Rules
from fairlead.core.task import (
    COMPLETED,
    Failure,
    Lease,
    OnFailure,
    Priority,
    Reason,
    State,
    Status,
    Task,
)
from fairlead.core.transitions import (
    LEASE_IN_DOUBT,
    TRANSITIONS,
    cancelled,
    dependency_failed,
    ended,
    expired,
    expiry_of,
    is_late,
    lease_in_doubt,
    longer,
    not_needed,
    returned,
    timed_out,
    waiting_again,
    worker_lost,
)

_COMPLETED: Final = Reason.COMPLETED
"""Named here for every task to come, as in `fairlead.core.task`."""


def decide(task: Task, event: Event, now: Instant, *, rules: Rules, luck: float = 0.0) -> Status | None:
    """How the task stands after the event, or None when it is to be removed.

    Raises WrongState when the event cannot happen to a task in this state. `luck`, from -1.0 to 1.0, moves the backoff.
    """
    status = task.status
    if (status.state, event.name) not in TRANSITIONS:
        allowed = tuple(state for state, name in TRANSITIONS if name == event.name)
        raise WrongState(task.id, status.state, event.name, allowed)
    # What nearly always happens comes before the matching, which is slow.
    if isinstance(event, Completed):
        said = status.settled if status.lease is None else settlement(status.lease, event)
        return ended(task, said, now, rules, COMPLETED, _COMPLETED, result=event.result)
    settled = _settled(status, event)
    match event:
        case Failed():
            return _failed(task, event, settled, now, rules, luck)
        case TimedOut():
            return _timed_out(task, settled, now, rules, luck)
        case Crashed(failure):
            return _crashed(task, settled, now, rules, luck, Reason.CRASHED, failure)
        case HandedBack(after, reset_retries):
            again = _handed_back(task, settled, now, rules, after)
            return _with_all_retries(task, again) if reset_retries and again.state.waiting else again
        case Returned():
            return returned(task)
        case Expired():
            return expired(task, now, rules)
        case CancelConfirmed():
            return cancelled(task, settled, now, rules)
        case CancelAsked():
            return _cancel_asked(task, settled, now, rules)
        case AlarmRang():
            return _alarm_rang(task, event, settled, now, rules, luck)
        case Replayed():
            return _replayed(task, event, settled, now)
        case Prioritized(priority):
            return _prioritized(task, now, priority)
        case Discarded() | Purged():
            return None
        case _:
            assert_never(event)


def rebuilt(task: Task, now: Instant, *, rules: Rules) -> Status:
    """How a task stands that is put back into a store that has lost it.

    What waited or has ended stands as it did. An attempt under way goes on without its store or died with it: its lease
    is void, and the task waits again as if handed back, with the wait it had and no retry spent. Turns are given anew:
    nobody remembers how far they had come.
    """
    status = task.status
    if status.state is State.EXECUTING:
        # Nobody said so: what the last holder said, if anything, must not be taken for this.
        status = _handed_back(task, None, now, rules, 0)
    return replace(status, turn=0) if status.turn else status


def settlement(lease: Lease, outcome: Outcome) -> str:
    """What `Status.settled` holds once this outcome is accepted: equal again when the same is said again."""
    said = (outcome.result or b"") if isinstance(outcome, Completed) else _said(outcome)
    # As bytes and then as digits, which takes half the time of formatting a number: every settle comes by here.
    return f"{lease.token}:{outcome.name}:{zlib.crc32(said).to_bytes(4, 'big').hex()}"


def implied_token(task: Task, worker: WorkerId, registration: str) -> LeaseToken:
    """The token that a worker means which names a task and no lease; raises LeaseLost if that cannot be told.

    Its id stands for the lease if the lease names this registration of the worker, and if the worker was never given
    the task before: or what it says late of its first attempt would be taken for what became of its second. Of the two
    questions neither is one of clocks. A settle that is said again is known again, too.
    """
    status = task.status
    lease = status.lease
    if not registration:
        raise LeaseLost(
            task.id, "the call does not say which registration of the worker it comes from", "register again"
        )
    if lease is not None and is_held_by(lease, worker, registration):
        if _was_given(status, worker):
            raise LeaseLost(
                task.id,
                "the worker was given the task before, so without a lease it is unknown which attempt is meant",
                "send the lease that came with the task, or register as a new worker after an attempt that failed",
            )
        return lease.token
    said = LeaseToken((status.settled or "").partition(":")[0])
    if registration_of(said) != registration:
        raise LeaseLost(task.id, "it ended, the task was taken over, or the worker has registered again since")
    return said


def is_held_by(lease: Lease, worker: WorkerId, registration: str) -> bool:
    """Whether a lease names a worker and this registration of it, which a lease of no registration never does."""
    return bool(registration) and lease.worker == worker and registration_of(lease.token) == registration


def _was_given(status: Status, worker: WorkerId) -> bool:
    """Whether an attempt before the current one was the worker's, or may have been: old lines of a history go."""
    holders = {entry.attempt: entry.worker for entry in status.history}
    return any(holders.get(attempt, worker) == worker for attempt in range(1, status.attempts))


def _said(outcome: Failed | TimedOut | Crashed | HandedBack | CancelConfirmed) -> bytes:
    match outcome:
        case Failed(failure=failure, retriable=retriable, after=after):
            return _bytes(f"{failure.type}:{failure.message}:{retriable}:{after}")
        case Crashed(failure):
            return _bytes(f"{failure.type}:{failure.message}")
        case HandedBack(after, reset_retries):
            return b"%d reset" % after if reset_retries else b"%d" % after
        case TimedOut() | CancelConfirmed():
            return b""
        case _:
            assert_never(outcome)


def _bytes(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


def _settled(status: Status, event: Event) -> str | None:
    if status.lease is not None and isinstance(event, Outcome):
        return settlement(status.lease, event)
    return status.settled


def _failed(task: Task, event: Failed, settled: str | None, now: Instant, rules: Rules, luck: float) -> Status:
    if task.status.cancel_asked:
        return cancelled(task, settled, now, rules, event.failure)
    if not event.retriable:
        return ended(task, settled, now, rules, State.FAILED, Reason.REJECTED, cause=event.failure)
    rule = rule_for(task.spec.backoff, (event.failure.type, *event.names))
    return _retried(task, settled, now, rules, luck, Reason.FAILED, event.failure, rule, event.after)


def _timed_out(task: Task, settled: str | None, now: Instant, rules: Rules, luck: float) -> Status:
    failure = timed_out(task.status.timeout)
    if task.status.cancel_asked:
        return cancelled(task, settled, now, rules, failure)
    rule = rule_for(task.spec.backoff, (TIMEOUT,))
    return _retried(task, settled, now, rules, luck, Reason.TIMED_OUT, failure, rule)


def _next_timeout(timeout: Span, reason: Reason, rules: Rules) -> Span:
    """How long the attempt may take that follows one which failed for this reason."""
    if reason is not Reason.TIMED_OUT and not rules.timeout_growth_after_failure:
        return timeout
    return max(timeout, min(round(timeout * rules.timeout_growth), rules.timeout_ceiling))


def _delay(task: Task, spent: int, luck: float, rules: Rules, rule: RetryRule | None = None) -> Span:
    """How long the task waits after a failure, by its backoff and by what is the most at its priority."""
    return backoff_of(task.spec.backoff, rule).delay(spent, luck, rules.delay_ceilings.of(task.status.priority))


def _retried(
    task: Task,
    settled: str | None,
    now: Instant,
    rules: Rules,
    luck: float,
    reason: Reason,
    failure: Failure,
    rule: RetryRule,
    after: Span | None = None,
) -> Status:
    """The task is tried again, unless the rule for its error rejects it or its retries are used up."""
    status, spec = task.status, task.spec
    if rule.reject:
        return ended(task, settled, now, rules, State.FAILED, Reason.REJECTED_BY_RULE, cause=failure)
    if status.retries >= (spec.max_retries if rule.max_retries is None else rule.max_retries):
        used_up = Reason.RETRIES_USED_UP if rule.max_retries is None else Reason.RULE_USED_UP
        return ended(task, settled, now, rules, State.DEAD_LETTER, used_up, cause=failure)
    delay = _delay(task, status.retries, luck, rules, rule) if after is None else after
    again = waiting_again(task, settled, now, reason, now, delay, failure)
    return replace(again, retries=status.retries + 1, timeout=_next_timeout(status.timeout, reason, rules))


def _handed_back(
    task: Task, settled: str | None, now: Instant, rules: Rules, after: Span, cause: Failure | None = None
) -> Status:
    if task.status.cancel_asked:
        return cancelled(task, settled, now, rules)
    # A task that is handed back was not served, so it keeps the wait it had: a deploy must not send it to the end.
    ready_at = task.status.ready_at if after == 0 else now
    return waiting_again(task, settled, now, Reason.HANDED_BACK, ready_at, after, cause)


def _with_all_retries(task: Task, status: Status) -> Status:
    """A task that waits again as if none of its attempts had failed."""
    return replace(status, retries=0, timeout=task.spec.timeout, failure=None)


def _cancel_asked(task: Task, settled: str | None, now: Instant, rules: Rules) -> Status:
    status = task.status
    if status.state is not State.EXECUTING:
        return cancelled(task, settled, now, rules)
    if status.cancel_asked:
        return replace(status, version=status.version + 1)
    return replace(
        status,
        version=status.version + 1,
        cancel_asked=True,
        history=longer(task, now, State.EXECUTING, Reason.CANCEL_ASKED),
    )


def _alarm_rang(
    task: Task, event: AlarmRang, settled: str | None, now: Instant, rules: Rules, luck: float
) -> Status | None:
    status = task.status
    match status.state:
        case State.SCHEDULED if status.reason is Reason.DEPENDENT:
            return _released(task, settled, now, rules)
        case State.SCHEDULED if is_late(task, now):
            return expired(task, now, rules)
        case State.SCHEDULED:
            # The wait began when the task was due, not when a sweep noticed.
            return replace(
                status,
                state=State.QUEUED,
                version=status.version + 1,
                alarm=None,
                reason=Reason.DUE,
                history=longer(task, now, State.QUEUED, Reason.DUE),
            )
        case State.EXECUTING if _is_in_doubt(status, event.watched_from):
            return _handed_back(task, settled, now, rules, 0, lease_in_doubt(task))
        case State.EXECUTING:
            return _crashed(task, settled, now, rules, luck, Reason.WORKER_LOST, worker_lost(task))
        case State.COMPLETED | State.FAILED | State.DEAD_LETTER | State.CANCELLED:
            return None
        case State.QUEUED:
            raise WrongState(task.id, status.state, AlarmRang.name, ())
        case _:
            assert_never(status.state)


def _is_in_doubt(status: Status, watched_from: Instant) -> bool:
    """Whether a lease may have ended because the clock was set, though its holder renewed it all the while.

    Who has watched the clock long enough knows that a holder who has not renewed is gone. But a lease that is renewed
    ends with the time of its attempt, too, and whether that is over is not known of an attempt that began before. Such
    an end is not held against a task twice in a row: then it is counted, or a task that hangs would never be given up.
    """
    if status.lease is None or status.started_at is None or status.beats == 0:
        return False
    out_of_time = status.lease.until >= status.started_at + status.timeout
    doubted = status.failure is not None and status.failure.type == LEASE_IN_DOUBT
    return status.started_at < watched_from and out_of_time and not (doubted and status.reason is Reason.HANDED_BACK)


def _released(task: Task, settled: str | None, now: Instant, rules: Rules) -> Status:
    """All that the task waited for has ended: it is its turn, unless it was not to run after a failure."""
    status, after = task.status, task.spec.after
    rule = OnFailure.CANCEL if after is None else after.rule
    if status.unmet and rule is OnFailure.CANCEL:
        failure = dependency_failed(task)
        return ended(task, settled, now, rules, State.CANCELLED, Reason.DEPENDENCY_FAILED, cause=failure)
    if not status.unmet and rule is OnFailure.RUN_ONLY_THEN:
        return cancelled(task, settled, now, rules, not_needed(task))
    # It was no one's turn to be served while it waited for others: its wait in the line begins now.
    again = waiting_again(task, settled, now, Reason.RELEASED, now, status.ready_at - now)
    return again if task.spec.expires is None else replace(again, expires_at=expiry_of(task, again.ready_at))


def _crashed(
    task: Task, settled: str | None, now: Instant, rules: Rules, luck: float, reason: Reason, failure: Failure
) -> Status:
    """Crashes have a budget of their own: a deploy or an OOM kill must not spend the task's retries."""
    status = task.status
    if status.cancel_asked:
        return cancelled(task, settled, now, rules, failure)
    if status.crashes >= task.spec.max_crashes:
        crashed = ended(task, settled, now, rules, State.DEAD_LETTER, Reason.CRASH_LOOP, cause=failure)
        return replace(crashed, crashes=status.crashes + 1)
    again = waiting_again(task, settled, now, reason, now, _delay(task, status.crashes, luck, rules), failure)
    timeout = _next_timeout(status.timeout, reason, rules)
    return replace(again, crashes=status.crashes + 1, timeout=timeout)


def _replayed(task: Task, event: Replayed, settled: str | None, now: Instant) -> Status:
    status = task.status
    again = waiting_again(task, settled, now, Reason.REPLAYED, now, 0)
    return replace(
        again,
        priority=status.priority if event.priority is None else event.priority,
        # A replay is someone's decision that the cause is mended: old crashes must not condemn it at once.
        crashes=0,
        retries=0 if event.reset_retries else status.retries,
        timeout=task.spec.timeout if event.reset_retries else status.timeout,
        result=None,
        # Nor does it wait for others again: they have had their time.
        pending=0,
        unmet=0,
        # Nor is it late already: it is asked for now.
        expires_at=expiry_of(task, now),
    )


def _prioritized(task: Task, now: Instant, priority: Priority) -> Status:
    """It waits on as it did, from the same moment and for the same reason, in another lane."""
    status = task.status
    return replace(
        status,
        priority=priority,
        version=status.version + 1,
        history=longer(task, now, status.state, Reason.PRIORITIZED),
        # In the line that it comes to it has yet to be given one.
        turn=0,
    )
