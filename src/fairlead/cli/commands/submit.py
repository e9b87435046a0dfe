"""`submit`: tasks from the command line, one or a file full."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter
from msgspec import Raw
from msgspec.structs import replace

from fairlead.admin.facade import Facade
from fairlead.app.connection import Link
from fairlead.app.handle import TaskHandle
from fairlead.app.task_type import named
from fairlead.cli import task_json
from fairlead.cli.commands.show import warn_of
from fairlead.cli.commands.watch import follow, live
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, SharedWithStore, reached, whole, words
from fairlead.cli.output import on_terminal, pretty, write, write_json
from fairlead.cli.times import check_seconds, moment, parse
from fairlead.core.errors import InvalidTask, TaskFailed
from fairlead.core.retry import RetryRule
from fairlead.core.submission import Submission
from fairlead.core.task import State, Task
from fairlead.core.validation import is_unicode, shown
from fairlead.engine.engine import Submitted
from fairlead.engine.runtime.clock import SystemClock
from fairlead.engine.runtime.inline import run_inline


def submit(
    task_type: Annotated[str | None, Parameter(name="TYPE", help="Type of the task.")] = None,
    /,
    *pairs: Annotated[
        str,
        Parameter(
            name="PARAMETER",
            help="Parameters as key=value; a value that is valid JSON is read as JSON, any other as text.",
            metavar="KEY=VALUE",
        ),
    ],
    params: Annotated[str | None, Parameter(help="All parameters as one JSON object.", metavar="JSON")] = None,
    priority: Annotated[str | None, Parameter(help="critical, high, medium or low.", metavar="WORD")] = None,
    queue: Annotated[str | None, Parameter(help="Queue to wait in.", metavar="NAME")] = None,
    delay: Annotated[float | None, Parameter(help="Seconds until it is due.", metavar="S")] = None,
    run_at: Annotated[
        str | None, Parameter(help="When it is due: 2026-11-15T08:00Z, or +30m, +2h, +1d.", metavar="MOMENT")
    ] = None,
    timeout: Annotated[float | None, Parameter(help="Seconds that an attempt may take.", metavar="S")] = None,
    max_retries: Annotated[
        int | None, Parameter(converter=whole, help="How often a failure is tried again.", metavar="N")
    ] = None,
    retry_rule: Annotated[
        tuple[str, ...],
        Parameter(
            help="How often one kind of error is tried again: TimeoutError=10, or ValueError=reject; may be given more "
            "than once, and the first that fits an error counts.",
            metavar="ERROR=N",
        ),
    ] = (),
    requires: Annotated[str | None, Parameter(help="Capabilities that its worker must have.", metavar="A,B")] = None,
    idempotency_key: Annotated[
        str | None,
        Parameter(
            help="For deduplication: a second submit with the same key gives the first one's task.", metavar="TEXT"
        ),
    ] = None,
    concurrency_key: Annotated[
        str | None, Parameter(help="Tasks of its queue with the same key run one at a time.", metavar="TEXT")
    ] = None,
    fair_key: Annotated[
        str | None,
        Parameter(
            help="Whose turns it takes in a queue that fair keys share; by default as the queue says.", metavar="TEXT"
        ),
    ] = None,
    after: Annotated[
        tuple[str, ...],
        Parameter(help="A task that must have ended first; may be given more than once.", metavar="ID"),
    ] = (),
    on_failure: Annotated[
        Literal["cancel", "run_anyway", "run_only_then"] | None,
        Parameter(
            help="What becomes of it if one of those does not complete: cancel (the default) or run_anyway; with "
            "run_only_then it runs only if so."
        ),
    ] = None,
    expires: Annotated[
        float | None, Parameter(help="Seconds after it is due in which it may still be started.", metavar="S")
    ] = None,
    tag: Annotated[tuple[str, ...], Parameter(help="A tag; may be given more than once.", metavar="NAME")] = (),
    from_file: Annotated[
        str | None,
        Parameter(
            help="Submit each line of this file, a JSON object; - reads stdin. The other options apply to lines that "
            "leave the field out.",
            metavar="FILE",
            allow_leading_hyphen=True,
        ),
    ] = None,
    wait: Annotated[bool, Parameter(help="Wait until it has ended, and show its result.")] = False,
    wait_timeout: Annotated[
        float | None,
        Parameter(help="How long --wait waits, in seconds; the task continues after that.", metavar="S"),
    ] = None,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> int:
    """Submit a task, or with `--from-file` many.

    The tasks are stored durably when the command ends. Each line of the file is a JSON object with the fields of a
    submit over HTTP; only `task_type` is required. A task as `fairlead list --json` prints it is such a line: it is
    submitted as a new task. A line that is refused is reported with its number, and the others are stored.
    """
    options = {
        "priority": priority,
        "queue": queue,
        "delay": check_seconds("--delay", delay),
        "run_at": None if run_at is None else moment(parse("--run-at", run_at, SystemClock().now())),
        "timeout": check_seconds("--timeout", timeout),
        "max_retries": max_retries,
        "retry_rules": _rules(retry_rule) or None,
        "requires": words(requires) or None,
        "idempotency_key": idempotency_key,
        "concurrency_key": concurrency_key,
        "fair_key": fair_key,
        "tags": tuple(name for each in tag for name in words(each)) or None,
        "after": tuple(name for each in after for name in words(each)) or None,
        "on_failure": on_failure,
        "expires": check_seconds("--expires", expires),
    }
    given = {name: value for name, value in options.items() if value is not None}
    if from_file is not None:
        if pairs or params is not None or wait or idempotency_key is not None:
            raise InvalidTask(
                "from_file",
                "parameters, --idempotency-key and --wait are for one task; leave them out with --from-file",
            )
        from fairlead.cli.commands.submit_file import submit_file

        return submit_file(from_file, task_type, given, common)
    if task_type is None:
        raise InvalidTask("type", "no type is named; write fairlead submit TYPE, or use --from-file FILE")
    submission = replace(named(task_type, given), parameters=parameters_of(pairs, params))
    return _submit_one(submission, common, wait=wait, seconds=check_seconds("--wait-timeout", wait_timeout))


def _rules(written: tuple[str, ...]) -> dict[str, RetryRule]:
    rules: dict[str, RetryRule] = {}
    for text in written:
        error, _, said = text.rpartition("=")
        if not error or not (said == "reject" or said.isdecimal()):
            raise InvalidTask(
                "retry_rules", f"--retry-rule {text!r} is not ERROR=N; write TimeoutError=10, or ValueError=reject"
            )
        rules[error] = RetryRule(reject=True) if said == "reject" else RetryRule(max_retries=int(said))
    return rules


def _submit_one(submission: Submission, common: SharedWithStore, *, wait: bool, seconds: float | None) -> int:
    with reached(common, create=True) as connection:
        engine = connection.inline()
        submitted = run_inline(engine.submit(submission))
        warn_of(run_inline(engine.doubts(submitted)), as_json=common.json, waits=wait)
        if not wait:
            _write_submitted(submitted, engine, common)
            return 0
        task, failed = _wait(submitted, connection, seconds, shown=not common.json and sys.stderr.isatty())
    if common.json:
        write_json(task_json.with_field(task_json.whole(task, engine), existing=submitted.existing))
        return 1 if failed else 0
    if failed is not None:
        raise failed
    write("null" if task.status.result is None else pretty(task.status.result))
    return 0


def _write_submitted(submitted: Submitted, engine: Facade, common: SharedWithStore) -> None:
    task = submitted.task
    if common.json:
        write_json(task_json.with_field(task_json.brief(task, engine), existing=submitted.existing))
    elif on_terminal():
        known = "already existed and is" if submitted.existing else "is"
        write(f"{task.id} {known} {task.state}\nsee it with: fairlead show {task.id}")
    else:
        # For id=$(fairlead submit …)
        write(task.id)


def _wait(
    submitted: Submitted, connection: Link, seconds: float | None, *, shown: bool
) -> tuple[Task, TaskFailed | None]:
    if shown:
        # Its end is noticed here, and its outcome taken below.
        deadline = float("inf") if seconds is None else time.monotonic() + seconds
        with live(stderr=True) as viewer:
            task = follow(connection.inline(), submitted.task.id, viewer, deadline=deadline)
        if not task.state.ended:
            raise TimeoutError(f"task {task.id} has not ended after {seconds:g} s; it is still waiting or running")
    handle: TaskHandle[Any] = TaskHandle(submitted.task, connection, lambda task: task.status.result)
    try:
        handle.result_sync(seconds)
    except TaskFailed as error:
        return handle.snapshot, error
    assert handle.status is State.COMPLETED  # noqa: S101 - result_sync returns for nothing else
    return handle.snapshot, None


def parameters_of(pairs: tuple[str, ...], document: str | None) -> bytes:
    """The parameters that pairs of key=value, or one JSON object, stand for."""
    if document is not None:
        if pairs:
            raise InvalidTask("parameters", f"--params and {pairs[0]!r} are both given; use one way or the other")
        # What a shell gives may be no Unicode; that it is no JSON either is said where parameters are checked.
        return document.encode(errors="surrogateescape")
    values: dict[str, Raw] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InvalidTask(
                "parameters", f"parameter {shown(pair)} is not key=value; write it so, or use --params JSON"
            )
        if not is_unicode(pair):
            raise InvalidTask("parameters", f"parameter {shown(pair)} is not valid UTF-8; write it in UTF-8")
        if key in values:
            raise InvalidTask("parameters", f"parameter {key!r} is given twice; keep one of them")
        values[key] = _value(text)
    return msgspec.json.encode(values)


def _value(text: str) -> Raw:
    """JSON as it is written, digit for digit; anything else as a string."""
    try:
        msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, RecursionError):
        return Raw(msgspec.json.encode(text))
    return Raw(text.strip().encode())
