"""Values with defaults: a test names only what it is about.

Every id and token made here is new, and ids sort in the order they were made.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Final

from msgspec import structs

from fairlead.core.events import Event, Outcome
from fairlead.core.identity import NOISE_BYTES, LeaseToken, TaskId, WorkerId, slot_of, task_id, tick_of
from fairlead.core.instant import DAY, MINUTE, SECOND, Instant, Span
from fairlead.core.lifecycle import decide
from fairlead.core.queues.fairness import step_of
from fairlead.core.queues.limits import Limits
from fairlead.core.queues.order import Policy, Strict, share_of
from fairlead.core.retry import Backoff, RetryRules
from fairlead.core.settings import Rules
from fairlead.core.task import Failure, Fair, OnFailure, Priority, Progress, Reason, Spec, State, Status, Task, after_of
from fairlead.storage.values import Beat, Change, Claim, Held, QueueOrder, Seen

NOW: Final[Instant] = 1_800_000_000_000_000
"""The moment at which tests begin: 15 January 2027."""

LEASE: Final[Span] = 30 * SECOND
GRACE: Final[Span] = 10 * SECOND
WORKER: Final = WorkerId("worker-1")

_numbers = itertools.count()


def an_id(queue: str = "default", number: int | None = None) -> TaskId:
    """An id that sorts by its number; the next number if none is given."""
    serial = next(_numbers) if number is None else number
    return task_id(tick_of(NOW) + serial, slot_of(queue), serial.to_bytes(NOISE_BYTES))


def a_token() -> LeaseToken:
    """A token that was never used."""
    return LeaseToken(f"token-{next(_numbers)}")


def a_spec(
    *,
    id: TaskId | None = None,
    queue: str = "default",
    type: str = "work",
    parameters: bytes = b"{}",
    requires: Collection[str] = (),
    created_at: Instant = NOW,
    timeout: Span = 10 * MINUTE,
    max_retries: int = 3,
    max_crashes: int = 3,
    backoff: Backoff | RetryRules | None = None,
    key: str | None = None,
    key_until: Instant | None = None,
    tenant: str | None = None,
    tags: Sequence[str] = (),
    trace: str | None = None,
    concurrency_key: str | None = None,
    fair: Fair | None = None,
) -> Spec:
    """What was asked for; with a key it is held for a day."""
    return Spec(
        id=an_id(queue) if id is None else id,
        queue=queue,
        type=type,
        parameters=parameters,
        requires=tuple(sorted(set(requires))),
        created_at=created_at,
        timeout=timeout,
        max_retries=max_retries,
        max_crashes=max_crashes,
        backoff=backoff or Backoff(),
        idempotency_key=key,
        key_until=NOW + DAY if key is not None and key_until is None else key_until,
        tenant=tenant,
        tags=tuple(tags),
        trace=trace,
        concurrency_key=concurrency_key,
        fair=fair,
    )


def a_status(
    *,
    state: State = State.QUEUED,
    priority: Priority = Priority.MEDIUM,
    ready_at: Instant = NOW,
    timeout: Span = 10 * MINUTE,
    alarm: Instant | None = None,
    reason: Reason = Reason.SUBMITTED,
    failure: Failure | None = None,
    result: bytes | None = None,
) -> Status:
    """How a task stands that no one holds; its alarm suits its state unless given."""
    if alarm is None and state is State.SCHEDULED:
        alarm = ready_at
    if state.ended:
        alarm = NOW + DAY if alarm is None else alarm
    return Status(
        state=state,
        priority=priority,
        ready_at=ready_at,
        timeout=timeout,
        alarm=alarm,
        ended_at=NOW if state.ended else None,
        reason=reason,
        failure=failure,
        result=result,
    )


def a_task(
    *,
    id: TaskId | None = None,
    queue: str = "default",
    type: str = "work",
    parameters: bytes = b"{}",
    requires: Collection[str] = (),
    priority: Priority = Priority.MEDIUM,
    state: State = State.QUEUED,
    ready_at: Instant = NOW,
    alarm: Instant | None = None,
    created_at: Instant = NOW,
    timeout: Span = 10 * MINUTE,
    max_retries: int = 3,
    max_crashes: int = 3,
    key: str | None = None,
    key_until: Instant | None = None,
    tags: Sequence[str] = (),
    concurrency_key: str | None = None,
    fair: str | None = None,
    weight: float = 1,
) -> Task:
    """A task that no one holds: ready now unless told otherwise. `fair` is its fair key, of this weight."""
    if state is State.EXECUTING:
        raise ValueError("a task becomes executing by being claimed; add a queued one and claim it")
    spec = a_spec(
        id=id,
        queue=queue,
        type=type,
        parameters=parameters,
        requires=requires,
        created_at=created_at,
        timeout=timeout,
        max_retries=max_retries,
        max_crashes=max_crashes,
        key=key,
        key_until=key_until,
        tags=tags,
        concurrency_key=concurrency_key,
        fair=None if fair is None else Fair(fair, step_of(weight)),
    )
    return Task(spec, a_status(state=state, priority=priority, ready_at=ready_at, timeout=timeout, alarm=alarm))


def a_dependent(
    *parents: Task | TaskId,
    id: TaskId | None = None,
    queue: str = "default",
    ready_at: Instant = NOW,
    on_failure: OnFailure = OnFailure.CANCEL,
    key: str | None = None,
) -> Task:
    """A task that waits for others."""
    named = tuple(parent.id if isinstance(parent, Task) else parent for parent in parents)
    spec = a_spec(id=id, queue=queue, key=key)
    return Task(
        structs.replace(spec, after=after_of(named, on_failure)),
        Status(
            state=State.SCHEDULED,
            priority=Priority.MEDIUM,
            ready_at=ready_at,
            timeout=spec.timeout,
            reason=Reason.DEPENDENT,
        ),
    )


def some_tasks(count: int, *, queue: str = "default", parameters: bytes = b"{}") -> list[Task]:
    """Ready tasks that are alike but for their ids."""
    return [a_task(queue=queue, parameters=parameters) for _ in range(count)]


def a_claim(
    *queues: str,
    limit: int = 1,
    worker: WorkerId = WORKER,
    token: LeaseToken | None = None,
    now: Instant | None = NOW,
    lease: Span = LEASE,
    grace: Span = GRACE,
    capabilities: Collection[str] = (),
    types: Collection[str] | None = None,
    excluded_types: Collection[str] = (),
    policy: Policy | None = None,
    limits: Limits | None = None,
    passed: int = 0,
) -> Claim:
    """A worker's wish for tasks of the default queue, in strict order, unless told otherwise."""
    order = policy or Strict()
    tables, share = order.tables(limit, lambda: 0.0), share_of(order)
    return Claim(
        queues=tuple(QueueOrder(queue, tables, limits, share, passed) for queue in queues or ("default",)),
        worker=worker,
        token=a_token() if token is None else token,
        now=now,
        lease=lease,
        grace=grace,
        limit=limit,
        capabilities=frozenset(capabilities),
        types=None if types is None else frozenset(types),
        excluded_types=frozenset(excluded_types),
    )


def a_beat(task: Task, *, token: LeaseToken | None = None, progress: Progress | None = None) -> Beat:
    """A heartbeat of the task's holder."""
    return Beat(task.id, held(task).token if token is None else token, progress)


def held(task: Task) -> Held:
    """The guard of the task's holder."""
    if task.status.lease is None:
        raise ValueError(f"task {task.id} is {task.state}: no one holds it")
    return Held(task.status.version, task.status.lease.token)


def seen(task: Task) -> Seen:
    """The guard of someone who read the task as it is given."""
    return Seen(task.status.version, task.status.beats)


def a_settle(task: Task, outcome: Outcome, now: Instant = NOW) -> Change:
    """The holder's word on how its attempt ended."""
    return Change(task.id, held(task), decide(task, outcome, now, rules=Rules()))


def a_decision(task: Task, event: Event, now: Instant = NOW) -> Change:
    """What someone else decides who read the task as it is given."""
    return Change(task.id, seen(task), decide(task, event, now, rules=Rules()))


def a_removal(task: Task) -> Change:
    """The removal of the task by someone who read it as it is given."""
    return Change(task.id, seen(task), None)


def after(task: Task, change: Change) -> Task:
    """The task as the change leaves it."""
    if change.status is None:
        raise ValueError(f"the change removes task {task.id}: nothing is left of it")
    return Task(task.spec, change.status)


def a_failure(message: str = "it broke", type: str = "ValueError") -> Failure:
    """What went wrong."""
    return Failure(type=type, message=message)
