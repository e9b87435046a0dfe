"""From what the API shows of tasks and queues back to the engine's own values.

What a server does not show is left at its default: versions, lease tokens, the backoff.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from datetime import datetime
from typing import Final, cast

from msgspec import UNSET, Raw

from fairlead.core.identity import LeaseToken, TaskId, WorkerId
from fairlead.core.instant import Instant, span
from fairlead.core.submission import Submission
from fairlead.core.task import (
    After,
    Entry,
    Failure,
    Lease,
    OnFailure,
    Priority,
    Progress,
    Reason,
    Spec,
    State,
    Status,
    Task,
)
from fairlead.engine.metering import Throughput
from fairlead.engine.stats import LineStats, QueueStats, Stats, WorkerStats
from fairlead.wire.circuits import circuit_of
from fairlead.wire.history import Transition
from fairlead.wire.moments import iso, parse_iso
from fairlead.wire.retrying import policy_of, rules_shown
from fairlead.wire.shown import TaskBrief, TaskWhole
from fairlead.wire.stats import PriorityStanding, QueueStanding, Standing
from fairlead.wire.tasks import PriorityWord, SubmitRequest, TaskCreated

_CLAIMED = "claimed"
_parse_iso: Final = functools.lru_cache(maxsize=1)(parse_iso)
"""Tasks that are submitted together share their moment."""


class Request(SubmitRequest, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A task as the API takes it; what is not said is not sent, and filled in by the server."""


def request_of(submission: Submission) -> Request:
    """What a submission asks of a server."""
    run_at = submission.run_at
    return Request(
        task_type=submission.type,
        priority=None if submission.priority is None else cast(PriorityWord, submission.priority.word),
        parameters=Raw(submission.parameters),
        required_capabilities=tuple(sorted(submission.requires)) if submission.requires else (),
        timeout_seconds=_seconds(submission.timeout),
        max_retries=submission.max_retries,
        max_crashes=submission.max_crashes,
        retry_policy=policy_of(submission.backoff),
        retry_rules=rules_shown(submission.retry_rules) if submission.retry_rules else (),
        queue=submission.queue,
        run_at=None if run_at is None else datetime.fromisoformat(iso(run_at)),
        delay_seconds=_seconds(submission.delay),
        idempotency_key=submission.idempotency_key,
        tenant=submission.tenant,
        tags=submission.tags,
        trace_id=submission.trace,
        concurrency_key=submission.concurrency_key,
        after=submission.after,
        on_failure=submission.on_failure.value,
    )


def submitted_task(created: TaskCreated, submission: Submission) -> Task:
    """The task that a submit was answered with."""
    at = _parse_iso(created.created_at)
    timeout = submission.timeout or 0
    spec = Spec(
        id=TaskId(created.task_id),
        queue=created.queue,
        type=created.task_type,
        parameters=submission.parameters,
        requires=tuple(sorted(submission.requires)),
        created_at=at,
        timeout=timeout,
        max_retries=submission.max_retries or 0,
        max_crashes=submission.max_crashes or 0,
        idempotency_key=submission.idempotency_key,
        tenant=submission.tenant,
        tags=submission.tags,
        trace=submission.trace,
        concurrency_key=submission.concurrency_key,
        after=After(
            tasks=tuple(one for one in submission.after if not isinstance(one, int)), on_failure=submission.on_failure
        )
        if submission.after
        else None,
    )
    ready_at = submission.run_at or at + (submission.delay or 0)
    status = Status(
        state=State(created.status),
        priority=Priority.parse(created.priority),
        ready_at=max(at, ready_at),
        timeout=timeout,
    )
    return Task(spec, status)


def task_of(shown: TaskBrief) -> Task:
    """A task as it is shown, brief or whole."""
    whole = shown if isinstance(shown, TaskWhole) else None
    timeout = span(shown.timeout_seconds)
    spec = Spec(
        id=TaskId(shown.task_id),
        queue=shown.queue,
        type=shown.task_type,
        parameters=b"{}" if whole is None else bytes(whole.parameters),
        requires=tuple(shown.required_capabilities),
        created_at=parse_iso(shown.created_at),
        timeout=timeout,
        max_retries=shown.max_retries,
        max_crashes=shown.max_crashes,
        idempotency_key=shown.idempotency_key,
        tenant=shown.tenant,
        tags=tuple(shown.tags),
        trace=shown.traceparent or shown.trace_id,
        concurrency_key=shown.concurrency_key,
        after=None
        if shown.on_failure is None
        else After(
            tasks=() if whole is None else tuple(map(TaskId, whole.after)), on_failure=OnFailure(shown.on_failure)
        ),
    )
    result = b"null" if whole is None else bytes(whole.result)
    status = Status(
        state=State(shown.status),
        priority=Priority.parse(shown.priority),
        ready_at=parse_iso(shown.run_at or shown.queued_at or shown.created_at),
        timeout=timeout,
        attempts=shown.attempts,
        retries=shown.retry_count,
        crashes=shown.crash_count,
        lease=_lease(shown),
        started_at=_maybe(shown.started_at),
        ended_at=_maybe(shown.completed_at),
        cancel_asked=shown.cancel_requested,
        reason=Reason(shown.reason),
        failure=None
        if shown.error is None
        else Failure(type=shown.error.type, message=shown.error.message, traceback=shown.error.traceback),
        result=None if result == b"null" else result,
        progress=None
        if shown.progress is None
        else Progress(percent=shown.progress.percent, message=shown.progress.message, at=parse_iso(shown.progress.at)),
        history=() if whole is None or whole.history is UNSET else _history(whole.history),
        pending=shown.pending,
        unmet=shown.unmet,
    )
    return Task(spec, status)


def stats_of(standing: Standing) -> Stats:
    """How the queues stand, as a server shows it."""
    return Stats(
        queues={name: _queue(each) for name, each in standing.by_queue.items()},
        states=_states(standing.states),
        next_alarm=_maybe(standing.next_alarm),
        workers=WorkerStats(
            active=standing.workers.active,
            draining=standing.workers.draining,
            dead=standing.workers.dead,
            total_capacity=standing.workers.total_capacity,
            used_capacity=standing.workers.used_capacity,
        ),
        throughput=Throughput(
            completed=standing.throughput.completed_last_minute, failed=standing.throughput.failed_last_minute
        ),
        promoted_today=standing.promoted_today,
        journal_behind=standing.journal_behind,
        paused_types=tuple(standing.paused_types),
        circuits={shown.task_type: circuit_of(shown) for shown in standing.circuits},
    )


def _queue(standing: QueueStanding) -> QueueStats:
    return QueueStats(
        lines={priority: _line(standing.priorities.get(priority.word)) for priority in Priority},
        states=_states(standing.states),
        types=standing.types,
        paused=standing.paused,
    )


def _line(standing: PriorityStanding | None) -> LineStats:
    if standing is None:
        return LineStats()
    return LineStats(depth=standing.depth, oldest_age=span(standing.oldest_age_seconds))


def _states(counts: dict[str, int]) -> dict[State, int]:
    return {state: counts.get(state.value, 0) for state in State}


def _lease(shown: TaskBrief) -> Lease | None:
    if shown.assigned_worker_id is None or shown.lease_until is None:
        return None
    until = parse_iso(shown.lease_until)
    return Lease(token=LeaseToken(""), worker=WorkerId(shown.assigned_worker_id), until=until)


def _history(transitions: Iterable[Transition]) -> tuple[Entry, ...]:
    """The decisions among the transitions: that it was submitted and claimed is told of them, not kept with them."""
    entries: list[Entry] = []
    claims: dict[int, Instant] = {}
    for position, told in enumerate(transitions):
        at = parse_iso(told.at)
        if told.reason == _CLAIMED:
            claims[told.attempt] = at
        elif position > 0 or told.reason != Reason.SUBMITTED:
            entries.append(
                Entry(
                    at=at,
                    state=State(told.status),
                    reason=Reason(told.reason),
                    attempt=told.attempt,
                    worker=None if told.worker_id is None else WorkerId(told.worker_id),
                    started_at=claims.get(told.attempt),
                    failure=None if told.error is None else Failure(type=told.error.type, message=told.error.message),
                )
            )
    return tuple(entries)


def _maybe(text: str | None) -> Instant | None:
    return None if text is None else parse_iso(text)


def _seconds(of: int | None) -> float | None:
    return None if of is None else of / 1e6
