"""The spans of attempts: from their start until it is known what became of the task."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from fairlead.core.errors import LeaseLost
from fairlead.core.events import Completed, Crashed, Failed, HandedBack, Outcome
from fairlead.core.identity import TaskId
from fairlead.core.task import Task
from fairlead.engine.runtime.telemetry import SYSTEM, active, context_of, current_traceparent, tracer

if TYPE_CHECKING:
    from opentelemetry.trace import Span

_RETRYING: Final = "retrying"
_LEASE_LOST: Final = "lease lost"


class Traces:
    """The spans of a worker's attempts. Where nothing is traced there are none, and it costs next to nothing."""

    def __init__(self) -> None:
        self.under_way: dict[tuple[TaskId, int], tuple[Span, int]] = {}
        """By task and attempt: the span, and when the attempt ended. While it is empty there is nothing to tell of."""

    def begin(self, task: Task) -> None:
        """Begin the span of an attempt, as a child of the submit's, and make it the current one.

        Only where the application traces: its worker asks once for all tasks that it begins together.
        """
        from opentelemetry import context, trace

        spec, status = task.spec, task.status
        parent = context_of(spec.trace)
        submit = trace.get_current_span(parent).get_span_context() if parent is not None else None
        span = tracer().start_span(
            f"run {spec.type}",
            context=parent,
            kind=trace.SpanKind.CONSUMER,
            links=None if submit is None else [trace.Link(submit)],
            attributes={
                "messaging.system": SYSTEM,
                "messaging.operation.type": "process",
                "messaging.destination.name": spec.queue,
                "messaging.message.id": spec.id,
                "fairlead.task.type": spec.type,
                "fairlead.task.priority": status.priority.word,
                "fairlead.task.attempt": status.attempts,
                "fairlead.worker.id": status.lease.worker if status.lease is not None else "",
            },
        )
        context.attach(trace.set_span_in_context(span))
        self.under_way[spec.id, status.attempts] = span, 0

    def end(self, task: Task, outcome: Outcome | None) -> None:
        """Take note of how an attempt ended; without an outcome its lease is lost, and so ends the span."""
        if (found := self.under_way.get((task.id, task.status.attempts))) is None:
            return
        span, _ = found
        self.under_way[task.id, task.status.attempts] = span, time.time_ns()
        if isinstance(outcome, Failed | Crashed):
            failure = outcome.failure
            seen = {"exception.type": failure.type, "exception.message": failure.message}
            if failure.traceback is not None:
                seen["exception.stacktrace"] = failure.traceback
            span.add_event("exception", seen)
        if outcome is None:
            self.settled(task, None, None)

    def settled(self, task: Task, outcome: Outcome | None, answer: Task | LeaseLost | None) -> None:
        """End the span of an attempt: what became of the task is known now, or never will be."""
        if (found := self.under_way.pop((task.id, task.status.attempts), None)) is None:
            return
        from opentelemetry.trace import Status, StatusCode

        span, ended = found
        if outcome is None or not isinstance(answer, Task):
            span.add_event(_LEASE_LOST)
            span.set_status(Status(StatusCode.ERROR, _LEASE_LOST))
        else:
            span.set_attribute("fairlead.task.status", answer.state.value)
            if not isinstance(outcome, Completed | HandedBack):
                span.set_status(Status(StatusCode.ERROR, outcome.name))
                if answer.state.waiting:
                    span.add_event(_RETRYING, {"fairlead.reason": outcome.name})
        span.end(ended or None)


def carried() -> str | None:
    """What leads a process of the worker's to the current span, if there is one."""
    return current_traceparent() if active() else None


def adopt(traceparent: str | None) -> None:
    """Go on in the trace of another process, if the application traces here as well."""
    if traceparent is not None and active() and (found := context_of(traceparent)) is not None:
        from opentelemetry import context

        context.attach(found)
