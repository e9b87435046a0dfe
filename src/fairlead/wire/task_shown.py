"""Tasks: how they are shown, over HTTP and by `--json` of the command line. Fields are added, never changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from fairlead.core.identity import LeaseToken, TaskId, WorkerId, traceparent_in
from fairlead.core.instant import SECOND, Instant, Span, span
from fairlead.core.queues.order import Table, treated_as
from fairlead.core.retry import Backoff, RetryRules
from fairlead.core.task import (
    Entry,
    Failure,
    Fair,
    Lease,
    OnFailure,
    OwnRetention,
    Priority,
    Progress,
    Reason,
    Spec,
    State,
    Status,
    Task,
    after_of,
)
from fairlead.core.tenancy import key_name
from fairlead.core.transitions import retriable
from fairlead.wire.tasks import (
    RetentionSpans,
    RetryPolicy,
    RetryRule,
    retention_of,
    retention_shown,
    retry_of,
    retry_shown,
)
from fairlead.wire.text import iso, maybe_parse_iso, parse_iso
from fairlead.wire.words import PRIORITY_WORDS, REASON_WORDS, STATE_WORDS, PriorityName, StateName


class TransitionError(Struct, kw_only=True):
    """What went wrong in the attempt that ended there."""

    type: str
    message: str


class Transition(Struct, kw_only=True):
    """One change of a task's status."""

    at: str
    status: StateName
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
        status=STATE_WORDS[state],
        reason=reason,
        attempt=attempt,
        worker_id=worker,
        error=None if failure is None else TransitionError(type=failure.type, message=failure.message),
    )


class TaskError(Struct, kw_only=True):
    """What went wrong in an attempt."""

    type: str
    message: str
    traceback: str | None
    """Shown with the whole task only."""
    retriable: bool | None = None
    """Whether such an error is tried again as long as retries, or crashes, are left. Null if that is not known: cancel
    had been requested, or the server is of an earlier version."""


class TaskProgress(Struct, kw_only=True):
    """The progress that a worker has reported."""

    percent: float
    message: str
    at: str


class TaskBrief(Struct, kw_only=True):
    """A task without what can be large."""

    task_id: str
    task_type: str
    queue: str
    status: StateName
    reason: str
    """Why it came to its status."""
    priority: PriorityName
    effective_priority: PriorityName
    """What it is treated as because of its wait; once it is claimed, what it was treated as then."""
    required_capabilities: list[str]
    tags: list[str]
    created_at: str
    run_at: str | None
    """When it is due, while it is scheduled."""
    queued_at: str | None
    """When its wait began, the last time that it was queued."""
    started_at: str | None
    completed_at: str | None
    """When it ended, in whatever way."""
    attempts: int
    """How often it was claimed."""
    retry_count: int
    max_retries: int
    crash_count: int
    max_crashes: int
    timeout_seconds: float
    """How long the current or next attempt may take."""
    assigned_worker_id: str | None
    lease_until: str | None
    cancel_requested: bool
    idempotency_key: str | None
    tenant: str | None
    trace_id: str | None
    """The trace that it belongs to: the one in its traceparent, the id that its submitter gave, or else its own id."""
    traceparent: str | None
    """The W3C traceparent of its submit, if that was traced."""
    concurrency_key: str | None
    """Tasks of one queue that share it run one at a time, or as many at once as the queue says."""
    progress: TaskProgress | None
    error: TaskError | None
    pending: int = 0
    """How many of the tasks that it waits for have not ended."""
    unmet: int = 0
    """How many of them ended other than completed."""
    on_failure: str | None = None
    """What becomes of it when one of them does: `cancel`, `run_anyway` or `run_only_then`; null if it waits for
    none."""
    expires_at: str | None = None
    """After this moment it is not started any more; null if it does not expire, or waits for others."""
    fair_key: str | None = None
    """Whose turns it takes, in a queue that fair keys share; null if it takes none of its own."""
    turn: int = 0
    """Its turn since it was last queued; of its queue and priority, the least is next."""


class TaskListed(TaskBrief, kw_only=True):
    """A task in a list, with what it was submitted with if that is asked for."""

    parameters: Raw | UnsetType = UNSET
    """As its submitter wrote them."""
    after: list[str] | UnsetType = UNSET
    """The tasks that must have ended before it may run."""
    retry_policy: RetryPolicy | UnsetType = UNSET
    """How long it waits before a retry."""
    retry_rules: list[RetryRule] | UnsetType = UNSET
    """What to do after particular errors."""
    expires_seconds: float | UnsetType | None = UNSET
    """How long after it is due it may still be started."""
    retention: RetentionSpans | UnsetType | None = UNSET
    """How long it is kept once it has ended, where it says so itself."""


class TaskWhole(TaskBrief, kw_only=True):
    """A task with everything."""

    parameters: Raw
    """As its submitter wrote them."""
    result: Raw
    """As its worker wrote it; null if there is none."""
    after: list[str] = []
    """The tasks that must have ended before it may run."""
    retry_policy: RetryPolicy = RetryPolicy()
    """How long it waits before a retry."""
    retry_rules: list[RetryRule] = []
    """What to do after particular errors."""
    expires_seconds: float | None = None
    """How long after it is due it may still be started."""
    retention: RetentionSpans | None = None
    """How long it is kept once it has ended, where it says so itself."""
    history: list[Transition] | UnsetType = UNSET
    """Every transition, the oldest first. Over HTTP, only if it is asked for."""
    state_history: list[Transition] | UnsetType = UNSET
    """The same by another name."""


def brief(task: Task, table: Table, now: Instant) -> TaskBrief:
    """A task without what can be large, in an order of service with this table."""
    return TaskBrief(**_fields(task, table, now), error=_error(task, whole=False))


def listed(task: Task, table: Table, now: Instant, *, parameters: bool = True) -> TaskListed:
    """A task in a list; with `parameters`, it has all that a submit takes."""
    submitted = _submitted(task) if parameters else {}
    return TaskListed(**_fields(task, table, now), **submitted, error=_error(task, whole=False))


def whole(task: Task, table: Table, now: Instant, *, history: bool = True) -> TaskWhole:
    """A task with everything."""
    told = transitions(task) if history else UNSET
    return TaskWhole(
        **_fields(task, table, now),
        **_submitted(task),
        error=_error(task, whole=True),
        result=Raw(b"null" if task.status.result is None else task.status.result),
        history=told,
        state_history=told,
    )


def with_field(shape: TaskBrief, **more: Any) -> dict[str, Any]:
    """A shape with a field more."""
    return {**msgspec.structs.asdict(shape), **more}


def _fields(task: Task, table: Table, now: Instant) -> dict[str, Any]:
    # Lists are made of this: what is mostly not there is not asked for, and no enum tells its own word.
    spec, status = task.spec, task.status
    scheduled = status.state is State.SCHEDULED
    return {
        "task_id": spec.id,
        "task_type": spec.type,
        "queue": spec.queue,
        "status": STATE_WORDS[status.state],
        "reason": REASON_WORDS[status.reason],
        "priority": PRIORITY_WORDS[status.priority],
        "effective_priority": PRIORITY_WORDS[treated_as(table, task, now)],
        "required_capabilities": list(spec.requires),
        "tags": list(spec.tags),
        "created_at": iso(spec.created_at),
        "run_at": iso(status.ready_at) if scheduled else None,
        "queued_at": None if scheduled else iso(status.ready_at),
        "started_at": None if status.started_at is None else iso(status.started_at),
        "completed_at": None if status.ended_at is None else iso(status.ended_at),
        "attempts": status.attempts,
        "retry_count": status.retries,
        "max_retries": spec.max_retries,
        "crash_count": status.crashes,
        "max_crashes": spec.max_crashes,
        "timeout_seconds": status.timeout / SECOND,
        "assigned_worker_id": status.lease.worker if status.lease else None,
        "lease_until": iso(status.lease.until) if status.lease else None,
        "cancel_requested": status.cancel_asked,
        "idempotency_key": None if spec.idempotency_key is None else spec.key,
        "tenant": spec.tenant,
        "trace_id": spec.id if spec.trace is None else spec.trace_id,
        "traceparent": None if spec.trace is None else traceparent_in(spec.trace),
        "concurrency_key": spec.concurrency_key,
        "progress": None if status.progress is None else _progress(status.progress),
        "pending": status.pending,
        "unmet": status.unmet,
        "on_failure": None if spec.after is None else spec.after.rule.value,
        "expires_at": None if status.expires_at is None else iso(status.expires_at),
        "fair_key": spec.fair_key,
        "turn": status.turn,
    }


def _submitted(task: Task) -> dict[str, Any]:
    """What a task was submitted with and a brief leaves out, because it can be large."""
    policy, rules = retry_shown(task.spec.backoff)
    return {
        "parameters": Raw(task.spec.parameters),
        "after": [] if task.spec.after is None else list(task.spec.after.tasks),
        "retry_policy": policy,
        "retry_rules": list(rules),
        "expires_seconds": None if task.spec.expires is None else task.spec.expires / SECOND,
        "retention": retention_shown(task.spec.retention),
    }


def _error(task: Task, *, whole: bool) -> TaskError | None:
    failure = task.status.failure
    if failure is None:
        return None
    return TaskError(
        type=failure.type,
        message=failure.message,
        traceback=failure.traceback if whole else None,
        retriable=retriable(task),
    )


def _progress(progress: Progress) -> TaskProgress:
    return TaskProgress(percent=progress.percent, message=progress.message, at=iso(progress.at))


_CLAIMED: Final = "claimed"


def task_of(shown: TaskBrief) -> Task:
    """A task as it is shown, brief or whole."""
    whole = shown if isinstance(shown, TaskWhole) else None
    parameters, after, backoff = _shown_submitted(shown)
    timeout = span(shown.timeout_seconds)
    spec = Spec(
        id=TaskId(shown.task_id),
        queue=shown.queue,
        type=shown.task_type,
        parameters=parameters,
        requires=tuple(shown.required_capabilities),
        created_at=parse_iso(shown.created_at),
        timeout=timeout,
        max_retries=shown.max_retries,
        max_crashes=shown.max_crashes,
        backoff=backoff,
        idempotency_key=None if shown.idempotency_key is None else key_name(shown.idempotency_key, None),
        tenant=shown.tenant,
        tags=tuple(shown.tags),
        trace=shown.traceparent or (None if shown.trace_id == shown.task_id else shown.trace_id),
        concurrency_key=shown.concurrency_key,
        after=None if shown.on_failure is None else after_of(tuple(map(TaskId, after)), OnFailure(shown.on_failure)),
        expires=_expires(shown),
        retention=_retention(shown),
        fair=None if shown.fair_key is None else Fair(shown.fair_key),
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
        started_at=maybe_parse_iso(shown.started_at),
        ended_at=maybe_parse_iso(shown.completed_at),
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
        expires_at=maybe_parse_iso(shown.expires_at),
        turn=shown.turn,
    )
    return Task(spec, status)


def _expires(shown: TaskBrief) -> Span | None:
    seconds = shown.expires_seconds if isinstance(shown, TaskListed | TaskWhole) else None
    return span(seconds) if isinstance(seconds, float | int) else None


def _retention(shown: TaskBrief) -> OwnRetention | None:
    kept = shown.retention if isinstance(shown, TaskListed | TaskWhole) else None
    return retention_of(kept) if isinstance(kept, RetentionSpans) else None


def _shown_submitted(shown: TaskBrief) -> tuple[bytes, Sequence[str], Backoff | RetryRules]:
    """The parameters of a task, what it waits for and how it is retried, as far as they are shown."""
    match shown:
        case (
            TaskWhole(parameters=Raw() as parameters, after=list() as after, retry_policy=RetryPolicy() as policy)
            | TaskListed(parameters=Raw() as parameters, after=list() as after, retry_policy=RetryPolicy() as policy)
        ):
            return bytes(parameters), after, retry_of(policy, shown.retry_rules or ())
        case _:
            return b"{}", (), Backoff()


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
