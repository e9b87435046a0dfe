"""What a handler can learn of the task that it runs, and say of it while it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from fairlead.core.events import Outcome
from fairlead.core.identity import TaskId, trace_id_of
from fairlead.core.lifecycle import decide
from fairlead.core.settings import Rules
from fairlead.core.task import Progress, Task
from fairlead.core.validation import shown

T = TypeVar("T")
Kind: TypeAlias = type[T]
"""As the class below has a `type` of its own."""

_MESSAGE_LIMIT: Final = 500


class Portal(Protocol):
    """The way from a thread to the event loop that its handler's resources live on."""

    def __call__(self, coroutine: Coroutine[Any, Any, Any], /) -> Any:
        """Run a coroutine there to its end, and wait for that."""
        ...


class HasLifespan(Protocol):
    """What an app puts around its handlers, as far as their attempts ask."""

    @property
    def lifespan(self) -> object: ...


class HasResources(Protocol):
    """A handler, as far as its attempts ask."""

    @property
    def resources(self) -> HasLifespan: ...


H = TypeVar("H", bound=HasResources)


class TaskContext:
    """One attempt, as its handler sees it."""

    # How every attempt stands at first: said of the class, it need not be said of each.
    cancel_asked: bool
    """Whether the attempt should stop: cancel was asked, its time is up, or its lease is lost."""
    reported = False
    """Set by a middleware that has reported the error of the attempt: the log's record of it says so in turn."""
    is_isolated = False
    """Whether it runs in an isolated process, which may be killed as soon as the handler has ended."""
    _is_stopped = False
    _said: Outcome | None = None
    """What will be said of the attempt that is stopped, whatever its handler makes of it."""
    _state: object = None
    _portal: Portal | None = None

    def __init__(
        self,
        task: Task,
        report: Callable[[Task, Progress], None],
        handler: H,
        judge: Callable[[H, BaseException], Outcome],
    ) -> None:
        """`judge` says how an attempt of the handler ends that raises an error."""
        self._task = task
        # Set of each when it ends, so it is named here: see `Attempt`.
        self.cancel_asked = False
        self._report = report
        self._handler: HasResources = handler
        self._judge: Callable[[Any, BaseException], Outcome] = judge

    @property
    def id(self) -> str:
        """The task's id: the same in every attempt."""
        return self._task.id

    @property
    def type(self) -> str:
        """The name of its task type."""
        return self._task.spec.type

    @property
    def queue(self) -> str:
        """The queue it was submitted to."""
        return self._task.spec.queue

    @property
    def attempt(self) -> int:
        """1 at the first attempt. Never the same number twice for one task, so downstream systems can fence on it."""
        return self._task.status.attempts

    @property
    def trace(self) -> str | None:
        """The W3C traceparent of the submit, or what the submitter gave as its trace."""
        return self._task.spec.trace

    @property
    def after(self) -> tuple[TaskId, ...]:
        """The tasks that this one waited for; `Fairlead.parents` gives them."""
        return () if self._task.spec.after is None else self._task.spec.after.tasks

    def state(self, kind: Kind[T]) -> T:
        """What the app's lifespan has yielded, which must be of this type: `ctx.state(State).pool`."""
        if self._handler.resources.lifespan is None:
            raise LookupError("the app has no lifespan, so there is no state; give it one: Fairlead(…, lifespan=…)")
        if not isinstance(self._state, kind):
            raise TypeError(
                f"the app's lifespan yielded {shown(self._state)}, which is no {kind.__qualname__}; ask for what it "
                f"yields"
            )
        return self._state

    def is_final(self, error: BaseException) -> bool:
        """Whether the attempt that ends with this error is the task's last: no retry is left, or none would help.

        Ask in a middleware, before the attempt has ended. It is False where the task goes on elsewhere.
        """
        said = self._said if self._is_stopped else self._judge(self._handler, error)
        if said is None:
            return False
        now = self._task.status.started_at or 0
        status = decide(self._task, said, now, rules=Rules())
        return status is None or status.state.ended

    def stopped(self, outcome: Outcome | None) -> None:
        """Take note that the attempt should stop, and of what will be said of it."""
        self.cancel_asked = self._is_stopped = True
        self._said = outcome

    def equip(self, state: object, portal: Portal, *, isolated: bool = False) -> None:
        """Take in what the lifespan has yielded, and the way to the event loop that it lives on."""
        self.is_isolated = isolated
        self._state = state
        self._portal = portal

    @property
    def portal(self) -> Portal:
        """The way from the handler's thread to the event loop."""
        if self._portal is None:
            raise RuntimeError("there is no event loop for what is asynchronous around this handler")
        return self._portal

    def log_fields(self) -> dict[str, object]:
        """What log lines should say of the task."""
        spec, status = self._task.spec, self._task.status
        fields: dict[str, object] = {
            "task_id": spec.id,
            "task_type": spec.type,
            "queue": spec.queue,
            "priority": status.priority.word,
            "attempt": status.attempts,
        }
        if status.lease is not None:
            fields["worker_id"] = status.lease.worker
        if spec.trace is not None:
            fields["trace_id"] = trace_id_of(spec.trace)
        return fields

    def progress(self, percent: float, message: str = "") -> None:
        """Report the progress of the attempt; it is stored about twice a second at most."""
        # Whatever the handler gives, what is stored must be readable again, and must not end the worker that stores it.
        self._report(self._task, Progress(percent=_percent_of(percent), message=_message_of(message)))


def _percent_of(said: object) -> float:
    """The number that a handler says, of whatever type; raises ValueError for what is none from 0 to 100."""
    try:
        share = float(said) if hasattr(type(said), "__float__") else -1.0  # type: ignore[arg-type]
    except (ArithmeticError, ValueError):
        share = -1.0
    if not 0 <= share <= 100:
        raise ValueError(f"progress of {shown(said)} % is not possible; use 0 to 100")
    return share


def _message_of(said: object) -> str:
    """The text that a handler says; raises ValueError for what is none."""
    if not isinstance(said, str):
        raise ValueError(f"progress message {shown(said)} is not a text; write it as a str")
    return str.__str__(said)[:_MESSAGE_LIMIT]


_current: ContextVar[TaskContext] = ContextVar("fairlead_current_task")


def current_task() -> TaskContext:
    """The task that this code runs for; raises LookupError outside a handler."""
    try:
        return _current.get()
    except LookupError:
        raise LookupError("no task runs here; current_task() works inside a handler and what it calls") from None


def enter(context: TaskContext) -> None:
    """Make this the current task of the running context.

    An application that has imported structlog finds the task in structlog's own context too.
    """
    _current.set(context)
    if (structlog := sys.modules.get("structlog.contextvars")) is not None:
        structlog.bind_contextvars(**context.log_fields())


def task_fields() -> dict[str, object]:
    """What log lines say of the current task; nothing outside a handler."""
    context = _current.get(None)
    return {} if context is None else context.log_fields()
