"""What a producer asks for, and the task it becomes."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import InvalidSettings, InvalidTask, PayloadTooLarge
from fairlead.core.identity import TaskId, check_name, parse_task_id
from fairlead.core.instant import LATEST, LONGEST, SECOND, Instant, Span
from fairlead.core.retry import Backoff, RetryRules, check_rules, with_rules
from fairlead.core.settings import Settings
from fairlead.core.task import QUEUED, After, OnFailure, Priority, Reason, Spec, State, Status, Task

DEFAULT_QUEUE = "default"
_TEXT_LIMIT = 500
_LIST_LIMIT = 50
_RETRIES_LIMIT = 10_000
AFTER_LIMIT = 10_000
"""How many tasks a task may wait for: each end of one of them rewrites how many are left."""


class Submission(Struct, frozen=True, kw_only=True, gc=False):
    """A producer's wish; what is left None is filled in from the settings."""

    type: str
    parameters: bytes = b"{}"
    """A JSON object."""
    priority: Priority | None = None
    queue: str = DEFAULT_QUEUE
    requires: frozenset[str] = frozenset()
    timeout: Span | None = None
    max_retries: int | None = None
    max_crashes: int | None = None
    backoff: Backoff | None = None
    run_at: Instant | None = None
    delay: Span | None = None
    idempotency_key: str | None = None
    tenant: str | None = None
    tags: tuple[str, ...] = ()
    trace: str | None = None
    retry_rules: RetryRules | None = None
    """What becomes of it by error, where that differs from what is said above."""
    concurrency_key: str | None = None
    after: tuple[TaskId | int, ...] = ()
    """The tasks that must have ended first: by id, or by the position of an earlier one in the same batch."""
    on_failure: OnFailure = OnFailure.CANCEL
    """What becomes of the task when one of those ends other than completed."""


def accept(submission: Submission, task_id: TaskId, now: Instant, settings: Settings) -> Task:
    """The task a submission becomes; raises InvalidTask, naming the field, when it cannot become one."""
    _check(submission, settings)
    priority = settings.defaults.priority if submission.priority is None else submission.priority
    defaults = settings.defaults.of(priority)
    due = now if submission.delay is None and submission.run_at is None else _due(submission, now)
    timeout = defaults.timeout if submission.timeout is None else submission.timeout
    # Python passes more than 15 keywords by way of a dictionary, which takes as long as all the rest of this.
    spec = Spec(
        id=task_id,
        queue=submission.queue,
        type=submission.type,
        parameters=submission.parameters,
        requires=tuple(sorted(submission.requires)) if submission.requires else (),
        created_at=now,
        timeout=timeout,
        max_retries=defaults.max_retries if submission.max_retries is None else submission.max_retries,
        max_crashes=settings.defaults.max_crashes if submission.max_crashes is None else submission.max_crashes,
        backoff=_retry(submission, settings),
        tenant=submission.tenant,
        tags=submission.tags,
        trace=submission.trace,
        concurrency_key=submission.concurrency_key,
    )
    if submission.idempotency_key is not None:
        key_until = now + settings.key_retention
        spec = replace(spec, idempotency_key=submission.idempotency_key, key_until=key_until)
    later = due > now
    if submission.after:
        spec = replace(spec, after=_after(submission))
        # The store counts what is still to wait for, and lets the alarm ring when that is nothing.
        status = Status(
            state=State.SCHEDULED,
            priority=priority,
            ready_at=due if later else now,
            timeout=timeout,
            reason=Reason.DEPENDENT,
        )
        return Task(spec, status)
    status = Status(
        state=State.SCHEDULED if later else QUEUED,
        priority=priority,
        # A moment in the past is an ordinary submit: back-dating must not jump the line.
        ready_at=due if later else now,
        timeout=timeout,
        alarm=due if later else None,
    )
    return Task(spec, status)


def _retry(submission: Submission, settings: Settings) -> Backoff | RetryRules:
    backoff = submission.backoff or settings.defaults.backoff
    return backoff if submission.retry_rules is None else with_rules(backoff, submission.retry_rules)


def _after(submission: Submission) -> After:
    named = submission.after
    if len(named) > AFTER_LIMIT:
        raise InvalidTask(
            "after", f"after names {len(named):,} tasks; {AFTER_LIMIT:,} is the most, so let some of them wait in turn"
        )
    ids: list[TaskId] = []
    for one in named:
        if isinstance(one, int):
            raise InvalidTask("after", f"after names position {one}, which is not of an earlier task in this batch")
        try:
            ids.append(parse_task_id(one))
        except InvalidTask as error:
            raise InvalidTask("after", f"after: {error}") from None
    return After(tasks=tuple(dict.fromkeys(ids)), on_failure=submission.on_failure)


def _due(submission: Submission, now: Instant) -> Instant:
    if submission.run_at is not None and submission.delay is not None:
        raise InvalidTask("delay", "run_at and delay are both given; a task is due at one moment, so give only one")
    if submission.delay is not None:
        if not 0 <= submission.delay <= LATEST - now:
            raise InvalidTask("delay", f"delay {submission.delay / SECOND:g} s is out of range; use 0 or more, to 2255")
        return now + submission.delay
    if submission.run_at is not None and not 0 <= submission.run_at <= LATEST:
        raise InvalidTask("run_at", f"run_at {submission.run_at} µs is outside the years 1970 to 2255")
    return now if submission.run_at is None else submission.run_at


def _check(submission: Submission, settings: Settings) -> None:
    check_name("type", submission.type)
    check_name("queue", submission.queue)
    if submission.requires:
        _check_names("requires", submission.requires)
    if submission.tags:
        _check_names("tags", submission.tags)
    if submission.timeout is not None and not 0 < submission.timeout <= LONGEST:
        raise InvalidTask("timeout", f"timeout {submission.timeout / SECOND:g} s: use more than 0 and at most a year")
    if submission.max_retries is not None:
        _check_count("max_retries", submission.max_retries)
    if submission.max_crashes is not None:
        _check_count("max_crashes", submission.max_crashes)
    if submission.retry_rules is not None:
        _check_rules(submission.retry_rules)
    if submission.idempotency_key is not None:
        _check_text("idempotency_key", submission.idempotency_key)
    if submission.concurrency_key is not None:
        _check_text("concurrency_key", submission.concurrency_key)
    if submission.tenant is not None:
        _check_text("tenant", submission.tenant)
    if submission.trace is not None:
        _check_text("trace", submission.trace)
    _check_parameters(submission.parameters, settings.payload_limit)


def _check_names(field: str, names: Collection[str]) -> None:
    if len(names) > _LIST_LIMIT:
        raise InvalidTask(field, f"{field} has {len(names)} entries; {_LIST_LIMIT} is the most")
    for name in names:
        check_name(field, name)


def _check_count(field: str, count: int) -> None:
    if not 0 <= count <= _RETRIES_LIMIT:
        raise InvalidTask(field, f"{field} {count} is out of range; use 0 to {_RETRIES_LIMIT:,}")


def _check_rules(rules: RetryRules) -> None:
    try:
        check_rules(rules)
    except InvalidSettings as error:
        raise InvalidTask("retry_rules", str(error)) from None


def _check_text(field: str, text: str) -> None:
    if not 1 <= len(text) <= _TEXT_LIMIT:
        raise InvalidTask(field, f"{field} has {len(text)} characters; use 1 to {_TEXT_LIMIT}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidTask(field, f"{field} {text!r} is not valid Unicode; remove its lone surrogates") from None


def _check_parameters(parameters: bytes, limit: int) -> None:
    if len(parameters) > limit:
        raise PayloadTooLarge("parameters", len(parameters), limit)
    try:
        _DECODE_OBJECT(parameters)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidTask("parameters", f"parameters is not a JSON object: {error}") from None
    except RecursionError:
        raise InvalidTask("parameters", "parameters is nested too deeply; flatten it") from None


_DECODE_OBJECT = msgspec.json.Decoder(dict[str, object]).decode
