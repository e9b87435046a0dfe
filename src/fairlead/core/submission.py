"""What a producer asks for, and the task it becomes."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import Forbidden, InvalidTask, PayloadTooLarge
from fairlead.core.identity import TaskId, check_name, known_name, parse_task_id
from fairlead.core.instant import LATEST, LONGEST, LONGEST_DELAY, Instant, Span
from fairlead.core.queues.fairness import FairRule
from fairlead.core.retry import MOST_RETRIES, Backoff, RetryRules, check_backoff, check_rules, with_rules
from fairlead.core.settings import Settings
from fairlead.core.task import (
    QUEUED,
    After,
    OnFailure,
    OwnRetention,
    Priority,
    Reason,
    Spec,
    State,
    Status,
    Task,
    after_of,
)
from fairlead.core.validation import (
    check_count,
    check_instant,
    check_several,
    check_span,
    check_text,
    check_type,
    shown,
    shown_span,
)

DEFAULT_QUEUE = "default"
_LIST_LIMIT: Final = 50
_TIMEOUTS: Final = range(1, LONGEST + 1)
_COUNTS: Final = range(MOST_RETRIES + 1)
_PRIORITIES: Final = ", ".join(priority.word for priority in Priority)
_CANCEL: Final = OnFailure.CANCEL
NO_CAPABILITIES: Final[frozenset[str]] = frozenset()
"""What a task requires of its worker that requires nothing; whoever says so by this is not looked at any further."""
_NO_TAGS: Final[tuple[str, ...]] = ()
_NO_TASKS: Final[tuple[TaskId | int, ...]] = ()
AFTER_LIMIT = 10_000
"""How many tasks a task may wait for: each end of one of them rewrites how many are left."""
BATCH_AFTER_LIMIT: Final = 20_000
"""How many tasks those of one batch may wait for, counted as often as they are named: a store takes them in at once."""


class Submission(Struct, frozen=True, kw_only=True, gc=False):
    """A producer's wish; what is left None is filled in from the settings.

    Spans and instants are whole microseconds here, not seconds: a timeout of a minute is 60_000_000.
    """

    type: str
    parameters: bytes = b"{}"
    """A JSON object."""
    priority: Priority | None = None
    queue: str = DEFAULT_QUEUE
    requires: frozenset[str] = NO_CAPABILITIES
    timeout: Span | None = None
    max_retries: int | None = None
    max_crashes: int | None = None
    backoff: Backoff | None = None
    run_at: Instant | None = None
    delay: Span | None = None
    idempotency_key: str | None = None
    tenant: str | None = None
    tags: tuple[str, ...] = _NO_TAGS
    trace: str | None = None
    retry_rules: RetryRules | None = None
    """What becomes of it by error, where that differs from what is said above."""
    concurrency_key: str | None = None
    after: tuple[TaskId | int, ...] = _NO_TASKS
    """The tasks that must have ended first: by id, or by the position of an earlier one in the same batch."""
    on_failure: OnFailure = _CANCEL
    """What becomes of the task when one of those ends other than completed."""
    expires: Span | None = None
    """How long after it is due it may still be started."""
    retention: OwnRetention | None = None
    """How long it is kept once it has ended, where that differs from the settings."""
    fair_key: str | None = None
    """Whose turns it takes in a queue that fair keys share; elsewhere it says nothing."""
    bound: bool = False
    """Whether its submitter is bound to its tenant, and so chooses no fair key."""
    by_name: bool = False
    """Whether whoever submits it knows the name of its type only: what is left out is filled in from what workers have
    published of that type, and so is the queue if it is empty."""


def of_bound(submission: Submission, tenant: str | None) -> Submission:
    """What a caller submits who is bound to this tenant, or to none."""
    return submission if tenant is None else replace(submission, bound=True)


MOST_SCHEMA: Final = 16 * 1024
"""The largest JSON schema that is published, in bytes; a larger one is left out."""
LONGEST_WORKER: Final = 200
"""The most characters of the name of a worker that publishes types."""


class Declaration(Struct, frozen=True, kw_only=True, gc=False):
    """What a worker has published of a task type."""

    submission: Submission
    """The options of its declaration."""
    tenant: str | None = None
    """Whose submits it counts for; None for all."""
    computed: tuple[str, ...] = ()
    """The options that a function makes of the arguments, which a submit by name has to say itself."""
    schema: bytes = b""
    """The JSON schema of its parameters, if that is known."""
    worker: str = ""
    at: Instant = 0


def check_declaration(declaration: Declaration) -> Declaration:
    """A declaration that can be kept; raises InvalidTask, naming the field, for one that cannot."""
    check(declaration.submission)
    if declaration.submission.after or declaration.submission.run_at is not None:
        raise InvalidTask("after", "after and run_at are of single tasks, not of a type; leave them out")
    _check_names("computed", declaration.computed, tuple)
    if len(declaration.schema) > MOST_SCHEMA:
        raise PayloadTooLarge("schema", len(declaration.schema), MOST_SCHEMA)
    if declaration.schema.strip()[:1] not in (b"", b"{"):
        raise InvalidTask("parameters_schema", "parameters_schema is not a JSON object; leave it out if there is none")
    if len(declaration.worker) > LONGEST_WORKER:
        raise InvalidTask("worker_id", f"worker_id has {len(declaration.worker)} characters; {LONGEST_WORKER} at most")
    return declaration


def declared_options(declaration: Declaration) -> Mapping[str, Any]:
    """The options that a declaration gives to submits by name; who is bound to a tenant declares no fair key."""
    options = {
        name: said for name, default in _FILLED.items() if (said := getattr(declaration.submission, name)) != default
    }
    if declaration.tenant is not None:
        options.pop("fair_key", None)
    return options


def filled(submission: Submission, options: Mapping[str, Any]) -> Submission:
    """A submission by name, with these options where it says nothing."""
    more = {name: said for name, said in options.items() if getattr(submission, name) == _FILLED[name]}
    if more and (submission.run_at is not None or submission.delay is not None):
        more.pop("delay", None)
    if submission.bound:
        more.pop("fair_key", None)
    queue = submission.queue or options.get("queue", DEFAULT_QUEUE)
    return replace(submission, **{**more, "queue": queue, "by_name": False})


_FILLED: Final[Mapping[str, Any]] = {
    name: "" if name == "queue" else default
    for name, default in zip(
        Submission.__struct_fields__[-len(Submission.__struct_defaults__) :],
        Submission.__struct_defaults__,
        strict=True,
    )
    if name not in {"parameters", "run_at", "trace", "after", "bound", "by_name"}
}
"""What a submit by name may leave to its type's declaration, and what it says of that if it says nothing."""


def belonging(submission: Submission, tenant: str) -> Submission:
    """A submission into a queue that is bound to this tenant, as its own; raises InvalidTask for another's."""
    if submission.tenant is None:
        return replace(submission, tenant=tenant)
    if submission.tenant != tenant:
        raise InvalidTask(
            "tenant",
            f"tenant {shown(submission.tenant)} cannot submit to queue {shown(submission.queue)}, which is bound to "
            f"another tenant; name another queue, or leave the tenant out if you may submit for that one",
        )
    return submission


def accept(
    submission: Submission, task_id: TaskId, now: Instant, settings: Settings, rule: FairRule | None = None
) -> Task:
    """The task a submission becomes; raises InvalidTask, naming the field, when it cannot become one.

    `rule` is how the tasks of its queue share it, if they do.
    """
    check(submission)
    check_parameters(submission.parameters, settings.payload_limit)
    priority = settings.defaults.priority if submission.priority is None else submission.priority
    defaults = settings.defaults.of(priority)
    due = now if submission.delay is None and submission.run_at is None else _due(submission, now)
    timeout = defaults.timeout if submission.timeout is None else submission.timeout
    backoff = submission.backoff or settings.defaults.backoff
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
        backoff=backoff if submission.retry_rules is None else with_rules(backoff, submission.retry_rules),
        tenant=submission.tenant,
        tags=submission.tags,
        trace=submission.trace,
        concurrency_key=submission.concurrency_key,
    )
    if rule is not None:
        if submission.bound:
            rule.check_bound(submission.queue, submission.tenant, submission.fair_key)
        spec = replace(spec, fair=rule.fair(spec, submission.fair_key))
    if submission.idempotency_key is not None:
        key_until = now + settings.key_retention
        spec = replace(spec, idempotency_key=submission.idempotency_key, key_until=key_until)
    if submission.expires is not None or submission.retention is not None:
        spec = replace(spec, expires=submission.expires, retention=submission.retention)
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
    if submission.expires is not None:
        status = replace(status, expires_at=min(status.ready_at + submission.expires, LATEST))
    return Task(spec, status)


def _after(submission: Submission) -> After:
    ids: list[TaskId] = []
    for one in submission.after:
        if isinstance(one, int):
            raise InvalidTask("after", f"after names position {one}, which is not of an earlier task in this batch")
        try:
            ids.append(parse_task_id(one))
        except InvalidTask as error:
            raise InvalidTask("after", f"after: {error}") from None
    return after_of(tuple(dict.fromkeys(ids)), submission.on_failure)


def _due(submission: Submission, now: Instant) -> Instant:
    if submission.delay is None:
        return now if submission.run_at is None else submission.run_at
    if submission.delay > LATEST - now:
        raise InvalidTask(
            "delay", f"delay of {shown_span(submission.delay)} ends after the year 2255; use a shorter one"
        )
    return now + submission.delay


def check(submission: Submission) -> Submission:
    """A submission of which every option is of its type and in its range; raises InvalidTask, naming the option.

    This is the one door: whatever declares options comes by here once, and whatever submits them comes by again. So
    what is as it should be is seen at a glance, and only what is not is looked at for what to say of it.
    """
    if type(submission.type) is not str or type(submission.queue) is not str:
        check_name("type", submission.type)
        check_name("queue", submission.queue)
    _check_place(submission.type, submission.queue)
    if submission.priority is not None and type(submission.priority) is not Priority:
        check_type("priority", submission.priority, Priority, f"use one of {_PRIORITIES}")
    if submission.requires or type(submission.requires) is not frozenset:
        _check_names("requires", submission.requires, frozenset)
    if submission.tags is not _NO_TAGS:
        _check_names("tags", submission.tags, tuple)
    # What most submits leave out is only looked at for whether it is there.
    if submission.timeout is not None:
        _check_timeout(submission.timeout)
    if submission.max_retries is not None:
        _check_count("max_retries", submission.max_retries)
    if submission.max_crashes is not None:
        _check_count("max_crashes", submission.max_crashes)
    if submission.backoff is not None and type(submission.backoff) is not Backoff:
        check_backoff("backoff", submission.backoff)
    if submission.retry_rules is not None:
        check_rules(submission.retry_rules)
    if submission.idempotency_key is not None:
        check_text("idempotency_key", submission.idempotency_key)
    if submission.concurrency_key is not None:
        check_text("concurrency_key", submission.concurrency_key)
    if submission.fair_key is not None:
        check_text("fair_key", submission.fair_key)
    if submission.tenant is not None:
        check_text("tenant", submission.tenant)
    if submission.trace is not None:
        check_text("trace", submission.trace)
    if submission.run_at is not None or submission.delay is not None:
        _check_due(submission)
    if submission.expires is not None:
        check_span("expires", submission.expires, 1, LONGEST)
    if submission.retention is not None:
        _check_retention(submission.retention)
    if submission.after is not _NO_TASKS or submission.on_failure is not _CANCEL:
        _check_after(submission)
    return submission


@functools.lru_cache(maxsize=1024)
def _check_place(task_type: str, queue: str) -> None:
    check_name("type", task_type)
    check_name("queue", queue)


def _check_timeout(timeout: Span) -> None:
    if not (type(timeout) is int and timeout in _TIMEOUTS):
        check_span("timeout", timeout, _TIMEOUTS[0], _TIMEOUTS[-1])


def _check_count(field: str, count: int) -> None:
    if not (type(count) is int and count in _COUNTS):
        check_count(field, count, _COUNTS[0], _COUNTS[-1])


def _check_names(field: str, names: Collection[str], kind: type[Collection[str]]) -> None:
    if type(names) is not kind or len(names) > _LIST_LIMIT:
        check_several(field, names, kind, _LIST_LIMIT)
    for name in names:
        if type(name) is not str:
            check_name(field, name)
        known_name(field, name)


def _check_due(submission: Submission) -> None:
    if submission.run_at is not None and submission.delay is not None:
        raise InvalidTask("delay", "run_at and delay are both given; a task is due at one moment, so give only one")
    if submission.delay is not None:
        check_span("delay", submission.delay, 0, LONGEST_DELAY)
    if submission.run_at is not None:
        check_instant("run_at", submission.run_at)


def _check_retention(retention: OwnRetention) -> None:
    check_type("retention", retention, OwnRetention, "write a time, or a time for each state such as completed")
    for name in OwnRetention.__struct_fields__:
        if (kept := getattr(retention, name)) is not None:
            check_span(f"retention of {name}", kept, 0, LONGEST)


def _check_after(submission: Submission) -> None:
    named = submission.after
    if type(named) is not tuple:
        raise InvalidTask("after", f"after {shown(named)} is not a tuple; write a list of handles or ids")
    if len(named) > AFTER_LIMIT:
        raise InvalidTask(
            "after", f"after names {len(named):,} tasks; {AFTER_LIMIT:,} is the most, so let some of them wait in turn"
        )
    for one in named:
        if type(one) not in (str, int):
            raise InvalidTask("after", f"after names {shown(one)}, which is not a task; write a handle or an id")
    check_type("on_failure", submission.on_failure, OnFailure, f"use one of {', '.join(OnFailure)}")


def check_batch_after(named: int) -> None:
    """Raise InvalidTask if a batch, up to one of its tasks, names more tasks to wait for than a batch may."""
    if named > BATCH_AFTER_LIMIT:
        raise InvalidTask(
            "after",
            f"after: the tasks of this batch, up to this one, name {named:,} tasks to wait for; {BATCH_AFTER_LIMIT:,} "
            f"is the most. Let one task wait for the first ones and the later ones for it, or submit several batches",
        )


def check_parameters(parameters: bytes, limit: int) -> None:
    """Raise InvalidTask unless parameters are a JSON object of so many bytes at most."""
    if type(parameters) is not bytes:
        raise InvalidTask("parameters", f"parameters {shown(parameters)} is not a JSON object in bytes; encode it")
    if len(parameters) > limit:
        raise PayloadTooLarge("parameters", len(parameters), limit)
    try:
        _DECODE_OBJECT(parameters)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidTask(
            "parameters", f'parameters is not a JSON object: {error}; write one such as {{"to": "ada"}}'
        ) from None
    except RecursionError:
        raise InvalidTask("parameters", "parameters is nested too deeply; flatten it") from None


_DECODE_OBJECT = msgspec.json.Decoder(dict[str, object]).decode


def check_holder(tenant: str | None, task: Task) -> Task:
    """The task that holds the idempotency key of a submit, which must be there for the caller."""
    if tenant in (None, task.spec.tenant):
        return task
    raise Forbidden(
        "the idempotency_key is taken in this queue by another tenant",
        "choose another key, or a queue of your own",
        "idempotency_key",
    )
