"""Why a task ran when it ran, told from what it keeps of its past."""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.core.explain.explanation import Cause, CauseCode
from fairlead.core.identity import WorkerId
from fairlead.core.instant import SECOND, Instant, brief
from fairlead.core.queues.order import Table, effective_priority
from fairlead.core.task import Entry, Failure, Priority, Reason, State, Task

_RETRIED = {
    Reason.FAILED: "failed",
    Reason.TIMED_OUT: "timed out",
    Reason.CRASHED: "crashed",
    Reason.WORKER_LOST: "was lost with its worker",
    Reason.HANDED_BACK: "was handed back by its worker",
}
_ENDED = {
    Reason.COMPLETED: "it completed",
    Reason.REJECTED: "it failed for good: its error is not to be retried",
    Reason.RETRIES_USED_UP: "its retries are used up",
    Reason.CRASH_LOOP: "too many workers crashed while they ran it",
    Reason.CANCELLED: "it was cancelled",
}


def recount(task: Task, table: Table | None, now: Instant) -> tuple[Cause, ...]:
    """Every attempt: how long it had waited and as what, what it came after, and how it ended; the oldest first.

    `table` says how its wait counted; None where every turn is drawn. Of a very long past only the end is kept.
    """
    return tuple(_told(task, table, now))


def retried_after(attempt: int, reason: Reason, failure: Failure | None) -> str:
    """What became of an attempt after which there is another."""
    return f"attempt {attempt} {_RETRIED.get(reason, reason.value)}{_words_of(failure)}"


def _told(task: Task, table: Table | None, now: Instant) -> Iterator[Cause]:
    status = task.status
    history = status.history
    queued_at, because = _first_wait(task)
    told = 0
    for entry in history:
        if entry.started_at is not None and entry.attempt > told:
            told = entry.attempt
            since = status.ready_at if told == status.attempts and status.started_at is not None else queued_at
            yield _began(task, table, told, entry.started_at, since, entry.worker, because)
        if entry.state.waiting and entry.reason is not Reason.PRIORITIZED:
            if entry.attempt:
                yield _attempt_ended(entry)
            queued_at, because = _next_wait(entry, queued_at, because)
    if status.state is State.EXECUTING and status.started_at is not None:
        worker = None if status.lease is None else status.lease.worker
        if status.attempts > told:
            yield _began(task, table, status.attempts, status.started_at, status.ready_at, worker, because)
        yield from _executing(task, now)
    elif status.state.ended:
        yield _ended(task)


def _first_wait(task: Task) -> tuple[Instant | None, str]:
    """When its first wait began, as far as that is kept, and what it waited for before."""
    history = [entry for entry in task.status.history if entry.reason is not Reason.PRIORITIZED]
    if history and history[0].attempt > 1:
        return None, "its earlier history is no longer kept"
    again = any(entry.state.waiting and entry.reason is not Reason.DUE for entry in history)
    if history and history[0].reason is Reason.DUE:
        return (history[0].at if again else task.status.ready_at), "it was submitted to run later"
    return task.spec.created_at, "it was submitted"


def _next_wait(entry: Entry, queued_at: Instant | None, because: str) -> tuple[Instant | None, str]:
    """When the wait began that a decision led to, and why there was one."""
    if entry.reason is Reason.DUE:
        return entry.at, because
    if entry.reason is Reason.REPLAYED:
        return entry.at, "it was replayed"
    what = retried_after(entry.attempt, entry.reason, entry.failure)
    if entry.state is State.SCHEDULED:
        return None, what
    # What is handed back at once keeps the wait that it had.
    return (queued_at if entry.reason is Reason.HANDED_BACK else entry.at), what


def _began(
    task: Task,
    table: Table | None,
    attempt: int,
    at: Instant,
    queued_at: Instant | None,
    worker: WorkerId | None,
    because: str,
) -> Cause:
    priority = task.status.priority
    waited = None if queued_at is None else max(0, at - queued_at)
    served_as = priority if table is None or waited is None else effective_priority(table, priority, waited)
    wait = "" if waited is None else f", {brief(waited)} after it was queued"
    return Cause(
        CauseCode.ATTEMPT_BEGAN,
        f"attempt {attempt} began{wait}{_taken_by(worker)}{_treated(priority, served_as)}, because {because}",
        {
            "attempt": attempt,
            "waited_seconds": None if waited is None else waited / SECOND,
            "worker": worker,
            "served_as": served_as.word,
            "promoted": served_as is not priority,
        },
    )


def _taken_by(worker: WorkerId | None) -> str:
    return "" if worker is None else f", at worker {worker}"


def _treated(priority: Priority, served_as: Priority) -> str:
    if served_as is priority:
        return f", as {priority.word}"
    return f", promoted from {priority.word} to {served_as.word} by its wait"


def _attempt_ended(entry: Entry) -> Cause:
    """How an attempt ended after which there is another."""
    took = None if entry.started_at is None else max(0, entry.at - entry.started_at)
    after = "" if took is None else f" after {brief(took)}"
    then = "scheduled for a retry" if entry.state is State.SCHEDULED else "queued again at once"
    return Cause(
        CauseCode.ATTEMPT_ENDED,
        f"{retried_after(entry.attempt, entry.reason, entry.failure)}{after}, and the task was {then}",
        {
            "attempt": entry.attempt,
            "took_seconds": None if took is None else took / SECOND,
            "reason": entry.reason.value,
            "status": entry.state.value,
            "error": None if entry.failure is None else entry.failure.type,
        },
    )


def _executing(task: Task, now: Instant) -> Iterator[Cause]:
    status = task.status
    started = status.started_at if status.started_at is not None else now
    ran, limit = max(0, now - started), status.timeout / SECOND
    if status.cancel_asked:
        yield Cause(CauseCode.CANCEL_ASKED, "cancel was requested, and its worker has not stopped it yet")
    yield Cause(
        CauseCode.EXECUTING,
        f"attempt {status.attempts} has run for {brief(ran)} of the {limit:g} s of its timeout",
        {"attempt": status.attempts, "ran_seconds": ran / SECOND, "timeout_seconds": limit},
    )


def _ended(task: Task) -> Cause:
    status = task.status
    ended_at = task.spec.created_at if status.ended_at is None else status.ended_at
    total = max(0, ended_at - task.spec.created_at)
    took = None if status.started_at is None else max(0, ended_at - status.started_at)
    if not status.attempts:
        attempts = "before any worker took it"
    elif took is None:
        attempts = f"while it waited after {_attempts(status.attempts)}"
    elif status.attempts == 1:
        attempts = f"after 1 attempt, which took {brief(took)}"
    else:
        attempts = f"after {_attempts(status.attempts)}, of which the last took {brief(took)}"
    return Cause(
        CauseCode.ENDED,
        f"{_ENDED.get(status.reason, status.reason.value)} {attempts}, {brief(total)} after it was submitted"
        f"{_words_of(status.failure)}",
        {
            "reason": status.reason.value,
            "attempts": status.attempts,
            "retries": status.retries,
            "crashes": status.crashes,
            "took_seconds": None if took is None else took / SECOND,
            "total_seconds": total / SECOND,
        },
    )


def _attempts(count: int) -> str:
    return "1 attempt" if count == 1 else f"{count} attempts"


def _words_of(failure: Failure | None) -> str:
    if failure is None:
        return ""
    first_line = failure.message.partition("\n")[0]
    return f" ({failure.type}{f': {first_line[:200]}' if first_line else ''})"
