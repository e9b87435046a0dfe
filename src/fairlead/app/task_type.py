"""A task type, as its submitter sees it: a function whose calls can be submitted."""

from __future__ import annotations

import asyncio
import copy
import inspect
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, ParamSpec, Self, TypedDict, TypeVar, Unpack

from msgspec import Struct
from msgspec.structs import replace

from fairlead.admin.facade import Facade
from fairlead.app.connection import Link
from fairlead.app.handle import TaskHandle, known_id
from fairlead.app.transaction import add_in, add_in_sync
from fairlead.core.errors import FairleadError, InvalidTask
from fairlead.core.identity import TaskId, names_of, parse_task_id
from fairlead.core.instant import SECOND
from fairlead.core.retry import Backoff, RetryRule, RetryRules, error_name
from fairlead.core.submission import MOST_SCHEMA, Declaration, Submission, check
from fairlead.core.task import OnFailure, OwnRetention, Priority, PriorityWord, Task
from fairlead.core.validation import Duration, instant_of, member_of, several_of, shown, span_of, text_of
from fairlead.engine.engine import Submitted
from fairlead.engine.runtime.inline import run_inline
from fairlead.engine.submit import FRESH
from fairlead.worker.handlers import Handler

if TYPE_CHECKING:
    from fairlead.core.explain.explanation import Cause


running_loop: Final = asyncio._get_running_loop
"""The event loop that this code is called in, if there is one; asked for at every submit from synchronous code."""

P = ParamSpec("P")
R = TypeVar("R")


class KeptFor(TypedDict, total=False):
    """How long a task is kept that ended in a state; what is left out is as the settings say."""

    completed: Duration
    cancelled: Duration
    failed: Duration
    dead_letter: Duration


class Options(TypedDict, total=False):
    """What can be said of a task beside its arguments."""

    priority: PriorityWord | Priority
    """How urgent it is: `critical`, `high`, `medium` or `low`; `normal` is another word for medium."""
    queue: str
    """The queue it waits in."""
    requires: Iterable[str]
    """Capabilities a worker must have."""
    timeout: Duration
    """How long an attempt may take: seconds, or a timedelta."""
    max_retries: int
    """How many times it is tried again after an attempt that failed."""
    max_crashes: int
    """How many of its attempts may be lost with their process before it is a dead letter."""
    backoff: Backoff
    """How long it waits before each retry."""
    retry_rules: Mapping[type[BaseException] | str, RetryRule | Literal["reject"]]
    """What becomes of a task after single kinds of errors, by type or by name: the first that fits an error counts."""
    delay: Duration
    """How long it is from now until the task is due: seconds, or a timedelta."""
    run_at: datetime
    """When the task is due; must have a time zone."""
    idempotency_key: str
    """A second submit with this key to the same queue gives the first one's task."""
    tenant: str
    """On whose behalf it runs."""
    tags: Iterable[str]
    """Words to find it by."""
    trace: str
    """The W3C traceparent of what it belongs to, or another text that its handler gets as its trace."""
    concurrency_key: str | Callable[..., str]
    """Tasks of one queue that share it run one at a time; a function makes it of the task's arguments."""
    fair_key: str
    """Whose turns it takes in a queue that fair keys share; by default what the queue says, such as its tenant."""
    after: Iterable[TaskHandle[Any] | str]
    """The tasks that must have ended before this one may run: handles or ids."""
    on_failure: Literal["cancel", "run_anyway", "run_only_then"]
    """What becomes of it when one of those ends other than completed: it is cancelled, or runs all the same. With
    `run_only_then` it runs only if one does, and is cancelled when all have completed."""
    expires: Duration
    """How long after it is due it may still be started: seconds, or a timedelta. After that it is cancelled."""
    retention: Duration | KeptFor
    """How long it is kept once it has ended: seconds, or a timedelta; or one for each state, such as
    `{"completed": HOUR}`."""


class Call(Struct, Generic[R], frozen=True):
    """A call that has been checked against its signature and can be submitted, alone, among many or in a flow."""

    submission: Submission
    definition: TaskDefinition[Any, R]

    @property
    def submitted(self) -> Submission:
        """What is submitted of it, once the middleware has seen it."""
        return self.definition.handler.resources.submitted(self.submission)


class TaskDefinition(Generic[P, R]):
    """A task type: submitting it has a worker call its function."""

    def __init__(
        self,
        function: Callable[P, Any],
        handler: Handler,
        connect: Callable[[], Link],
        options: Mapping[str, Any],
    ) -> None:
        self.__wrapped__ = function
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self.handler = handler
        self._function = function
        self._connect = connect
        self._template = template(handler.type, _without_function(options))
        self._key_of = _function_in(options)
        self._doubt_at = 0.0
        """When to ask next whether anyone could run its tasks: the engine looks no more often than that."""

    def __repr__(self) -> str:
        return f"<task type {self.handler.type}>"

    def options(self, **options: Unpack[Options]) -> Self:
        """The same task type with other options."""
        other = copy.copy(self)
        other._doubt_at = 0.0
        other._template = amended(self._template, _without_function(options))
        if "concurrency_key" in options:
            other._key_of = _function_in(options)
        return other

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call to submit later, alone or among many; raises InvalidTask if it does not fit the signature."""
        return Call(self._submission(args, kwargs), self)

    def _submission(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Submission:
        parameters = self.handler.signature.encode(args, kwargs)
        if self._key_of is None:
            return replace(self._template, parameters=parameters)
        return replace(self._template, parameters=parameters, concurrency_key=_key(self._key_of(*args, **kwargs)))

    def _submitted(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Submission:
        """What is submitted of a call, once the middleware has seen it."""
        return self.handler.resources.submitted(self._submission(args, kwargs))

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[R]:
        """Have a worker call the function with these arguments; the task is stored when this returns."""
        submission = self._submitted(args, kwargs)
        return await self._submit(await self._connect().engine(), submission)

    def submit_sync(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[R]:
        """`submit`, from synchronous code."""
        if running_loop() is not None:
            warn_in_loop(self.handler.type)
        submission = self._submitted(args, kwargs)
        return run_inline(self._submit(self._connect().inline(), submission))

    async def _submit(self, engine: Facade, submission: Submission) -> TaskHandle[R]:
        submitted = await engine.submit(submission)
        if time.monotonic() >= self._doubt_at:
            warn_of(submitted.task.spec.type, await engine.doubts(submitted))
            self._doubt_at = time.monotonic() + FRESH / SECOND
        return self.held(submitted)

    async def submit_many(self, calls: Iterable[Call[R]]) -> list[TaskHandle[R]]:
        """Submit many calls at once; raises the first refusal, when all others are stored.

        Each call is of this task type, and has the options of the definition that made it.
        """
        submissions = self._submissions(calls)
        return await self._submit_many(await self._connect().engine(), submissions)

    def submit_many_sync(self, calls: Iterable[Call[R]]) -> list[TaskHandle[R]]:
        """`submit_many`, from synchronous code."""
        if running_loop() is not None:
            warn_in_loop(self.handler.type)
        submissions = self._submissions(calls)
        return run_inline(self._submit_many(self._connect().inline(), submissions))

    async def _submit_many(self, engine: Facade, submissions: Sequence[Submission]) -> list[TaskHandle[R]]:
        answers = await engine.submit_many(submissions)
        for first in _first_stored(answers):
            warn_of(first.task.spec.type, await engine.doubts(first))
        return self._handles(answers)

    async def submit_in(self, connection: Any, /, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[R]:
        """Submit inside the caller's own transaction on PostgreSQL: the task exists if and only if that commits.

        The connection is psycopg's, asyncpg's or SQLAlchemy's, asynchronous. A queue's bound is not checked.
        """
        submission = self._submitted(args, kwargs)
        engine = await self._connect().engine()
        task = await engine.prepare(submission)
        await add_in(connection, self._connect().url, task, engine.clock.now())
        return self.held(Submitted(task))

    def submit_in_sync(self, connection: Any, /, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[R]:
        """`submit_in`, on a synchronous connection of psycopg's or SQLAlchemy's."""
        submission = self._submitted(args, kwargs)
        engine = self._connect().inline()
        task = run_inline(engine.prepare(submission))
        add_in_sync(connection, self._connect().url, task, engine.clock.now())
        return self.held(Submitted(task))

    def _submissions(self, calls: Iterable[Call[R]]) -> list[Submission]:
        try:
            submissions = [call.submitted for call in calls]
        except (AttributeError, TypeError):
            raise InvalidTask("calls", f"calls {shown(calls)} are not calls; make each with task.call(…)") from None
        for submission in submissions:
            if submission.type != self._template.type:
                raise InvalidTask(
                    "calls",
                    f"a call of {submission.type} is among those of {self._template.type}; submit it with its own "
                    "task, or all of them with group(calls).submit()",
                )
        return submissions

    def _handles(self, answers: Iterable[Submitted | FairleadError]) -> list[TaskHandle[R]]:
        handles: list[TaskHandle[R]] = []
        for answer in answers:
            if isinstance(answer, FairleadError):
                raise answer
            handles.append(self.held(answer))
        return handles

    def _check_providers(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise TypeError for a direct call that leaves to a provider what only an attempt makes with it."""
        if not (providers := self.handler.signature.providers):
            return
        given = inspect.signature(self._function).bind_partial(*args, **kwargs).arguments
        if missing := [name for name in providers if name not in given]:
            raise TypeError(
                f"{self.__qualname__}() is called directly, where no provider runs: pass {missing[0]}=…, or submit it"
            )

    @property
    def declaration(self) -> Declaration:
        """What a worker publishes of it, for submits by name."""
        schema = self.handler.signature.schema
        return Declaration(
            submission=self._template,
            computed=() if self._key_of is None else ("concurrency_key",),
            schema=schema if len(schema) <= MOST_SCHEMA else b"",
        )

    @property
    def link(self) -> Link:
        """The way to where its tasks are stored."""
        return self._connect()

    def handle(self, task_id: str) -> TaskHandle[R]:
        """A task of this type by its id, which a program has kept; nothing is looked up yet.

        Raises TaskNotFound for a text that is no id.
        """
        return TaskHandle(known_id(task_id), self._connect(), self._result_of)

    def held(self, submitted: Submitted) -> TaskHandle[R]:
        """What the submitter of a task holds."""
        return TaskHandle(submitted.task, self._connect(), self._result_of, existing=submitted.existing)

    def _result_of(self, task: Task) -> Any:
        """What a task of this type returned."""
        if task.spec.type != self.handler.type:
            raise InvalidTask(
                "type", f"task {task.id} is of type {task.spec.type}, not {self.handler.type}; use app.handle(id)"
            )
        return self.handler.signature.decode_result(task.status.result)


class CoroutineTask(TaskDefinition[P, R]):
    """A task type made of an `async def`."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now, as if it were not a task."""
        self._check_providers(args, kwargs)
        result: R = await self._function(*args, **kwargs)
        return result


class FunctionTask(TaskDefinition[P, R]):
    """A task type made of a `def`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now, as if it were not a task."""
        self._check_providers(args, kwargs)
        result: R = self._function(*args, **kwargs)
        return result


def _first_stored(answers: Iterable[Submitted | FairleadError]) -> list[Submitted]:
    """The first task that was stored, which stands for all of them, or none: looking at each would cost too much."""
    return list(itertools.islice((answer for answer in answers if isinstance(answer, Submitted)), 1))


def template(task_type: str, options: Mapping[str, Any]) -> Submission:
    """A submission of this type with these options and no arguments yet; raises InvalidTask for one that is wrong."""
    return amended(Submission(type=task_type), options)


def named(task_type: str, options: Mapping[str, Any]) -> Submission:
    """A submission by the name of a type: what these options leave out is as its workers have published it."""
    made = template(task_type, options)
    return replace(made, by_name=True, queue=made.queue if options.get("queue") is not None else "")


def amended(submission: Submission, options: Mapping[str, Any]) -> Submission:
    """A submission with some options changed; raises InvalidTask for one that is wrong."""
    return check(replace(submission, **_fields(options)))


def _fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options in the engine's terms: enums for words, microseconds for seconds. What they may be is for the core."""
    fields = dict(options)
    unknown = fields.keys() - Options.__annotations__.keys()
    if unknown:
        known = ", ".join(sorted(Options.__annotations__))
        raise InvalidTask(min(unknown), f"option {min(unknown)!r} is unknown; the options are {known}")
    for name, said in options.items():
        if said is not None and name in _MEANINGS:
            fields[name] = _MEANINGS[name](name, said)
    # One moment replaces the other when a task type's option is overridden.
    if "run_at" in fields and "delay" not in fields:
        fields["delay"] = None
    if "delay" in fields and "run_at" not in fields:
        fields["run_at"] = None
    return fields


def _function_in(options: Mapping[str, Any]) -> Callable[..., object] | None:
    """What makes a concurrency key of a task's arguments, if that is a function."""
    key = options.get("concurrency_key")
    return key if callable(key) else None


def _without_function(options: Mapping[str, Any]) -> Mapping[str, Any]:
    return options if _function_in(options) is None else {**options, "concurrency_key": None}


def _key(made: object) -> str:
    key = text_of(made)
    if not isinstance(key, str):
        raise InvalidTask(
            "concurrency_key", f"concurrency_key {shown(key)} is not a text; have its function return one"
        )
    return key


def _rules(name: str, written: object) -> RetryRules | None:
    if not isinstance(written, Mapping):
        raise InvalidTask(name, f"{name} {shown(written)} is no mapping of errors to rules; write a dict")
    return {_error(error): _rule(said) for error, said in written.items()} or None


def _rule(said: Any) -> Any:
    return RetryRule(reject=True) if isinstance(said, str) and said == "reject" else said


def _error(written: object) -> str:
    if isinstance(written, str):
        return written
    if isinstance(written, type) and issubclass(written, BaseException):
        return error_name(written)
    raise InvalidTask(
        "retry_rules", f"retry_rules has a rule for {shown(written)}; use an exception's type, or its name"
    )


def _retention(name: str, said: object) -> OwnRetention:
    if isinstance(said, OwnRetention):
        return said
    states = OwnRetention.__struct_fields__
    spans = said if isinstance(said, Mapping) else dict.fromkeys(states, said)
    for state in spans:
        if state not in states:
            raise InvalidTask(name, f"{name} names {shown(state)}; the states that a task ends in: {', '.join(states)}")
    return OwnRetention(
        **{state: span_of(f"{name} of {state}", kept) for state, kept in spans.items() if kept is not None}
    )


def _ids(name: str, tasks: object) -> tuple[TaskId, ...]:
    return tuple(_id(name, one) for one in several_of(name, tasks, _TASKS))


def _id(name: str, one: object) -> TaskId:
    if isinstance(one, TaskHandle):
        return one.id
    if isinstance(one, str):
        try:
            return parse_task_id(one)
        except InvalidTask as error:
            raise InvalidTask(name, f"{name}: {error}") from None
    position = ", which is a position; only a batch over HTTP has those" if type(one) is int else ""
    raise InvalidTask(name, f"{name} names {shown(one)}{position}; {_TASKS}")


_TASKS: Final = "write a list of handles, or of ids as submit returned them"

_MEANINGS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "priority": lambda _, said: Priority.parse(said),
    "queue": lambda _, said: text_of(said),
    "requires": lambda name, said: frozenset(names_of(name, said)),
    "timeout": span_of,
    "retry_rules": _rules,
    "delay": span_of,
    "run_at": instant_of,
    "idempotency_key": lambda _, said: text_of(said),
    "tenant": lambda _, said: text_of(said),
    "tags": names_of,
    "trace": lambda _, said: text_of(said),
    "concurrency_key": lambda _, said: text_of(said),
    "fair_key": lambda _, said: text_of(said),
    "after": _ids,
    "on_failure": lambda name, said: member_of(name, said, OnFailure),
    "expires": span_of,
    "retention": _retention,
}
"""What users mean by an option, where the engine has it in another form."""


log = logging.getLogger("fairlead.submit")

_MOST_TOLD: Final = 1_000
_told: set[tuple[str, str]] = set()
_IN_LOOP: Final = "submit_sync"


def warn_in_loop(task_type: str) -> None:
    """Log that a submit holds up the event loop that it is called in, once for each type in a process."""
    if (task_type, _IN_LOOP) in _told or len(_told) >= _MOST_TOLD:
        return
    _told.add((task_type, _IN_LOOP))
    log.warning(
        "a task of type %s is submitted by submit_sync within a running event loop, which waits for the store "
        "meanwhile; write `await ….submit(…)` there",
        task_type,
    )


def warn_of(task_type: str, doubts: Sequence[Cause]) -> None:
    """Log why no live worker could run a task that was submitted: once for each type and reason in a process.

    That no worker runs at all is what every start-up begins with, and logged as information only.
    """
    if not doubts:
        return
    # A worker has no use for it, and never comes here.
    from fairlead.core.explain.explanation import CauseCode

    for cause in doubts:
        if (task_type, cause.code) in _told or len(_told) >= _MOST_TOLD:
            continue
        _told.add((task_type, cause.code))
        level = logging.INFO if cause.code == CauseCode.NO_WORKERS else logging.WARNING
        log.log(level, "a task of type %s waits until a worker can run it: %s", task_type, cause.text)
