"""What a handler can learn of the task that it runs, and say of it while it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from fairlead.core.identity import TaskId, trace_id_of
from fairlead.core.task import Progress, Task
from fairlead.core.validation import shown

_MESSAGE_LIMIT: Final = 500


class TaskContext:
    """One attempt, as its handler sees it."""

    def __init__(self, task: Task, report: Callable[[Task, Progress], None]) -> None:
        self._task = task
        self._report = report
        self.cancel_asked = False
        """Whether the attempt should stop: cancel was asked, its time is up, or its lease is lost."""

    @property
    def id(self) -> str:
        return self._task.id

    @property
    def type(self) -> str:
        return self._task.spec.type

    @property
    def queue(self) -> str:
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
