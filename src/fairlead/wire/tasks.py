"""Tasks: how they are submitted, one or many, and how they are retried."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import replace

from fairlead.core import retry
from fairlead.core.errors import InvalidTask
from fairlead.core.explain.explanation import Explanation
from fairlead.core.identity import TaskId
from fairlead.core.instant import LONGEST, LONGEST_DELAY, SECOND
from fairlead.core.retry import ANY_ERROR, LARGEST_FACTOR, MOST_RETRIES, Backoff, RetryRules, with_rules
from fairlead.core.submission import AFTER_LIMIT, DEFAULT_QUEUE, NO_CAPABILITIES, Submission
from fairlead.core.task import OnFailure, OwnRetention, Priority, PriorityWord, Task
from fairlead.core.validation import span_of
from fairlead.wire.aliases import NUMBERS
from fairlead.wire.endpoint import Problem
from fairlead.wire.explanations import CauseShown
from fairlead.wire.text import instant_of, iso, maybe_iso
from fairlead.wire.words import PRIORITY_WORDS, STATE_WORDS, PriorityName, StateName

_YEAR: Final = LONGEST // SECOND


class RetryPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long to wait before a retry: `initial_seconds * factor^n`, at most `max_seconds`, give or take `jitter`."""

    initial_seconds: Annotated[float, Meta(ge=0, le=_YEAR)] = 1.0
    factor: Annotated[float, Meta(ge=1, le=LARGEST_FACTOR)] = 2.0
    max_seconds: Annotated[float, Meta(ge=0, le=_YEAR)] = 300.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """How far chance may move the wait, as a share of it."""


class RetryRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What to do after one kind of error; what is left out is as for all errors."""

    error: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 200})]
    """The error's type: `TimeoutError` in any module, `requests.HTTPError` in that module or below it, or `*` for any
    error. `Timeout` is an attempt that was stopped at its timeout."""
    max_retries: Annotated[int, Meta(ge=0, le=MOST_RETRIES)] | None = None
    """The task is tried again after this error only if it has spent fewer retries than this, on whatever errors."""
    retry_policy: RetryPolicy | None = None
    """How long to wait after this error."""
    reject: bool = False
    """Whether this error is never retried; if so, leave out the other fields."""


Rules: TypeAlias = Annotated[tuple[RetryRule, ...], Meta(extra_json_schema={"maxItems": 50})]


def backoff_of(policy: RetryPolicy | None) -> Backoff | None:
    """The backoff that a policy describes."""
    return None if policy is None else _backoff(policy)


def _backoff(policy: RetryPolicy) -> Backoff:
    return Backoff(
        initial=span_of("initial_seconds", policy.initial_seconds),
        factor=policy.factor,
        ceiling=span_of("max_seconds", policy.max_seconds),
        jitter=policy.jitter,
    )


def policy_of(backoff: Backoff | None) -> RetryPolicy | None:
    """A backoff in seconds."""
    return None if backoff is None else _policy(backoff)


@functools.lru_cache(maxsize=256)
def _policy(backoff: Backoff) -> RetryPolicy:
    """Most tasks have one of a few; each task that is shown tells its own."""
    return RetryPolicy(
        initial_seconds=backoff.initial / SECOND,
        factor=backoff.factor,
        max_seconds=backoff.ceiling / SECOND,
        jitter=backoff.jitter,
    )


def rules_of(shapes: Sequence[RetryRule]) -> RetryRules | None:
    """The rules that a request names, in its order; None if it names none."""
    rules: RetryRules = {}
    for shape in shapes:
        if shape.error in rules:
            raise InvalidTask("retry_rules", f"there are two retry rules for {shape.error!r}; keep one of them")
        rules[shape.error] = retry.RetryRule(
            max_retries=shape.max_retries, backoff=backoff_of(shape.retry_policy), reject=shape.reject
        )
    return rules or None


def rules_shown(rules: RetryRules | None) -> tuple[RetryRule, ...]:
    """Rules as a request would name them."""
    return tuple(
        RetryRule(error=error, max_retries=rule.max_retries, retry_policy=policy_of(rule.backoff), reject=rule.reject)
        for error, rule in (rules or {}).items()
    )


def retry_shown(kept: Backoff | RetryRules) -> tuple[RetryPolicy, tuple[RetryRule, ...]]:
    """How a task is retried, as a request would say it: its policy for all errors, and its rules for single ones."""
    if isinstance(kept, Backoff):
        return _policy(kept), ()
    backoff, rules = retry.backoff_of(kept), dict(kept)
    # The rule for any error carries the task's own policy; what else it says was said in a rule.
    last = replace(rules.pop(ANY_ERROR, retry.RetryRule()), backoff=None)
    if last != retry.RetryRule():
        rules[ANY_ERROR] = last
    return _policy(backoff), rules_shown(rules)


def retry_of(policy: RetryPolicy, rules: Sequence[RetryRule]) -> Backoff | RetryRules:
    """How a task is retried that is shown with these."""
    return with_rules(_backoff(policy), rules_of(rules) or {})


BATCH_LIMIT: Final = 1_000
"""The most tasks of one batch. A stream of lines may have any number."""

HTTP_NAMES: Final[Mapping[str, str]] = {
    "type": "task_type",
    "requires": "required_capabilities",
    "timeout": "timeout_seconds",
    "delay": "delay_seconds",
    "trace": "trace_id",
    "backoff": "retry_policy",
    "expires": "expires_seconds",
}
"""What fields of a submission are called over HTTP and in JSON, by their names in Python; all others have one name."""

_CANCEL: Final = OnFailure.CANCEL
_iso: Final = functools.lru_cache(maxsize=1)(iso)
"""Tasks that are submitted together share their moment."""

_CENTURY: Final = LONGEST_DELAY // SECOND

# What the core checks with better words is only described here; what could overflow on the way to it is checked.
PriorityGiven: TypeAlias = Annotated[
    PriorityWord, Meta(extra_json_schema={"enum": [*get_args(PriorityWord), *map(int, NUMBERS)]})
]
"""A priority in a body, where a number does, too."""
Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
Name: TypeAlias = Annotated[str, Meta(extra_json_schema={"pattern": "^[A-Za-z0-9_.:-]{1,200}$"})]
Names: TypeAlias = Annotated[tuple[Name, ...], Meta(extra_json_schema={"maxItems": 50})]
Text: TypeAlias = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 500})]
JsonObject: TypeAlias = Annotated[Raw, Meta(extra_json_schema={"type": "object"})]


Awaited: TypeAlias = Annotated[tuple[str | int, ...], Meta(extra_json_schema={"maxItems": AFTER_LIMIT})]
OnFailureWord: TypeAlias = Literal["cancel", "run_anyway", "run_only_then"]


class RetentionSpans(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How long a task is kept once it has ended, by its status; what is left out is as the settings of the server."""

    completed_seconds: Annotated[float, Meta(ge=0, le=_YEAR)] | None = None
    cancelled_seconds: Annotated[float, Meta(ge=0, le=_YEAR)] | None = None
    failed_seconds: Annotated[float, Meta(ge=0, le=_YEAR)] | None = None
    dead_letter_seconds: Annotated[float, Meta(ge=0, le=_YEAR)] | None = None


def retention_of(spans: RetentionSpans | None) -> OwnRetention | None:
    """How long a task is kept that says so like this."""
    if spans is None:
        return None
    said = {name: getattr(spans, f"{name}_seconds") for name in OwnRetention.__struct_fields__}
    return OwnRetention(
        **{name: span_of(f"{name}_seconds", value) for name, value in said.items() if value is not None}
    )


def retention_shown(kept: OwnRetention | None) -> RetentionSpans | None:
    """The same in seconds."""
    if kept is None:
        return None
    spans = {name: getattr(kept, name) for name in OwnRetention.__struct_fields__}
    return RetentionSpans(**{f"{name}_seconds": _seconds(value) for name, value in spans.items()})


class SubmitRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False, rename=HTTP_NAMES):
    """A task to submit. What is left out is as workers have published its type, or as the settings of the server."""

    type: Name
    """The name of what it does: workers have handlers by this name."""
    priority: PriorityGiven | None = None
    """How urgent it is; by default as its queue says, which is `medium` unless it was changed. `normal` is another word
    for `medium`, and numbers from 1 (`low`) to 4 (`critical`) are accepted, too."""
    parameters: JsonObject = Raw(b"{}")
    """The arguments of its handler; stored and passed on exactly as written, to the digit."""
    requires: Names = ()
    """What a worker must be able to do to take it."""
    timeout: Annotated[float, Meta(gt=0, le=_YEAR)] | None = None
    """How long an attempt may take; at most a year."""
    max_retries: Annotated[int, Meta(ge=0, le=MOST_RETRIES)] | None = None
    """How often a failure is tried again."""
    max_crashes: Annotated[int, Meta(ge=0, le=MOST_RETRIES)] | None = None
    """How many workers it may lose before it is a dead letter."""
    backoff: RetryPolicy | None = None
    retry_rules: Rules = ()
    """What to do after particular errors; the first rule that fits an error counts."""
    queue: Annotated[Name, Meta(min_length=1)] | UnsetType = UNSET
    """The queue that it waits in; by default as its type's declaration says, or `default`."""
    run_at: Moment | None = None
    """When it is due, with its time zone; a moment in the past means now. Not together with `delay_seconds`."""
    delay: Annotated[float, Meta(ge=0, le=_CENTURY)] | None = None
    """How long until it is due."""
    idempotency_key: Text | None = None
    """For deduplication: a second submit with the same key, queue and tenant stores nothing and is answered with the
    first one's task."""
    tenant: Text | None = None
    """On whose behalf it runs; with a key that is bound to a tenant it may be left out, and can be no other."""
    tags: Names = ()
    """Words to find it by."""
    trace: Text | None = None
    """The trace that it belongs to: a W3C traceparent, or an id of your own. Without it, the traceparent of the request
    counts, if there is one in the header of that name."""
    concurrency_key: Text | None = None
    """Tasks of one queue that share it run one at a time, or as many at once as the queue says."""
    after: Awaited = ()
    """The tasks that must have ended before it may run, by id; in a batch also by the position of an earlier one, from
    0. At most 10,000."""
    on_failure: OnFailureWord = "cancel"
    """What becomes of it when one of those ends other than completed: `cancel` it, or `run_anyway`. With
    `run_only_then` it runs only if one of them does, and is cancelled when all have completed."""
    expires: Annotated[float, Meta(gt=0, le=_YEAR)] | None = None
    """How long after it is due it may still be started; after that it is cancelled, with the error `Expired`."""
    retention: RetentionSpans | None = None
    """How long it is kept once it has ended."""
    fair_key: Text | None = None
    """Whose turns it takes, in a queue that fair keys share; by default what the queue says, such as its tenant. A key
    that is bound to a tenant cannot choose it."""


class PartialRequest(SubmitRequest, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A task to submit, as a client sends it: what is not said is left out, and filled in by the server."""


class TaskCreated(Struct, frozen=True, kw_only=True, gc=False):
    """The answer to a submit."""

    task_id: str
    task_type: str
    status: StateName
    priority: PriorityName
    queue: str
    queue_position: int | None
    """Roughly its place in the queue, from 1: the ready tasks of its own and of more urgent priorities, itself
    included, by counts at most about a second old. Null for a task that is not queued or was stored before."""
    created_at: str
    existing: bool = False
    """Whether its idempotency key was known and this is the task that it first named."""
    warnings: list[CauseShown] | UnsetType = UNSET
    """Why no live worker could run it, as of a few seconds ago; left out if one could."""
    position_in_queue: int | UnsetType | None = UNSET
    """With `estimate`, its number in the line of its queue, from 1, as `explain` counts it: those before it are served
    first. Null if it is not queued, or could not be counted in time."""
    estimated_start_time: str | UnsetType | None = UNSET
    """With `estimate`, when a worker is expected to take it, on the assumptions that `explain` names. Null if nobody
    can tell: it is not queued, something holds it up, or the workers that could take it are busy and ended no task
    within the last minute. `explain` says which."""
    estimated_wait_seconds: float | UnsetType | None = UNSET
    """How long until then; null if that is."""


class BatchRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tasks to submit at once, at most 1,000; an array of them alone means the same."""

    tasks: list[SubmitRequest]


class BatchResult(Struct, frozen=True, kw_only=True, gc=False):
    """What became of one task of a batch: `task`, or the `problem` with it."""

    index: int
    """Its place in the batch, from 0; in a stream of lines, its line, from 0."""
    status: int
    """As a submit of its own would have been answered: 201, 200 for a known idempotency key, 4xx or 5xx."""
    task: TaskCreated | UnsetType = UNSET
    problem: Problem | UnsetType = UNSET


class BatchAnswer(Struct, frozen=True, kw_only=True):
    """What became of the tasks of a batch, in their order."""

    results: list[BatchResult]
    accepted: int
    """How many are stored, or were before."""
    rejected: int


def submission_of(request: SubmitRequest, tenant: str | None, traceparent: str | None = None) -> Submission:
    """What a request asks of the engine, on behalf of this tenant; and in this trace, unless it says otherwise."""
    # In the order of its fields, which a struct takes a quarter faster.
    return Submission(
        type=request.type,
        parameters=bytes(request.parameters),
        priority=None if request.priority is None else Priority.parse(request.priority),
        queue="" if request.queue is UNSET else request.queue,
        requires=frozenset(request.requires) if request.requires else NO_CAPABILITIES,
        timeout=None if request.timeout is None else span_of("timeout", request.timeout),
        max_retries=request.max_retries,
        max_crashes=request.max_crashes,
        backoff=None if request.backoff is None else backoff_of(request.backoff),
        run_at=None if request.run_at is None else instant_of(request.run_at),
        delay=None if request.delay is None else span_of("delay", request.delay),
        idempotency_key=request.idempotency_key,
        tenant=tenant,
        tags=request.tags,
        trace=traceparent if request.trace is None else request.trace,
        retry_rules=rules_of(request.retry_rules) if request.retry_rules else None,
        concurrency_key=request.concurrency_key,
        after=tuple(one if isinstance(one, int) else TaskId(one) for one in request.after) if request.after else (),
        on_failure=_CANCEL if request.on_failure == "cancel" else OnFailure(request.on_failure),
        expires=None if request.expires is None else span_of("expires", request.expires),
        retention=None if request.retention is None else retention_of(request.retention),
        fair_key=request.fair_key,
        by_name=True,
    )


def declared_of(request: SubmitRequest) -> Submission:
    """The options of a type, as `request_of` tells them."""
    submission = submission_of(request, request.tenant)
    return replace(
        submission, parameters=b"{}", queue=DEFAULT_QUEUE if request.queue is UNSET else request.queue, by_name=False
    )


def request_of(submission: Submission) -> PartialRequest:
    """What a client sends to submit this."""
    run_at = submission.run_at
    return PartialRequest(
        **template_of(submission),
        run_at=None if run_at is None else datetime.fromisoformat(iso(run_at)),
        delay=_seconds(submission.delay),
        idempotency_key=submission.idempotency_key,
        after=submission.after,
        on_failure=submission.on_failure.value,
    )


def template_of(submission: Submission) -> dict[str, Any]:
    """The fields of a request that submits this, except those of one task alone: when it is due, its key, its order."""
    return {
        "type": submission.type,
        "priority": None if submission.priority is None else submission.priority.word,
        "parameters": Raw(submission.parameters),
        "requires": tuple(sorted(submission.requires)) if submission.requires else (),
        "timeout": _seconds(submission.timeout),
        "max_retries": submission.max_retries,
        "max_crashes": submission.max_crashes,
        "backoff": policy_of(submission.backoff),
        "retry_rules": rules_shown(submission.retry_rules) if submission.retry_rules else (),
        "queue": submission.queue or UNSET,
        "tenant": submission.tenant,
        "tags": submission.tags,
        "trace": submission.trace,
        "concurrency_key": submission.concurrency_key,
        "expires": _seconds(submission.expires),
        "retention": retention_shown(submission.retention),
        "fair_key": submission.fair_key,
    }


def _seconds(span: int | None) -> float | None:
    return None if span is None else span / SECOND


def created(task: Task, position: int | None, *, existing: bool, warnings: Sequence[CauseShown] = ()) -> TaskCreated:
    """The answer to a submit."""
    spec, status = task.spec, task.status
    return TaskCreated(
        task_id=spec.id,
        task_type=spec.type,
        status=STATE_WORDS[status.state],
        priority=PRIORITY_WORDS[status.priority],
        queue=spec.queue,
        queue_position=position,
        created_at=_iso(spec.created_at),
        existing=existing,
        warnings=list(warnings) if warnings else UNSET,
    )


def estimated(told: TaskCreated, explanation: Explanation | None) -> TaskCreated:
    """The answer to a submit with what an explanation foretells; None if there was no time for one."""
    line = None if explanation is None else explanation.line
    forecast = None if explanation is None else explanation.forecast
    start = None if forecast is None else forecast.estimated_start
    return replace(
        told,
        position_in_queue=None if line is None else line.position,
        estimated_start_time=maybe_iso(start),
        estimated_wait_seconds=None
        if explanation is None or start is None
        else max(0, start - explanation.at) / SECOND,
    )
