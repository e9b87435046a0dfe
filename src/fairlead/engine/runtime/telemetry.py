"""Logs that harm nobody, and traces: the span of a submit, and what leads from it to the spans of the task's attempts.

What is said in a logger goes to handlers and filters of the application, and of whatever runs in its process: one that
ships lines over a network, and raises when that is away, must not end a worker, or leave a task without an outcome.

Of OpenTelemetry only the API is used, and only if the application has set up a tracer provider: then it is imported
already. Otherwise nothing is imported and nothing done.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from fairlead._version import __version__
from fairlead.core.identity import traceparent_in
from fairlead.core.submission import Submission

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer


class Logger(logging.LoggerAdapter[logging.Logger]):
    """A logger by name, which raises nothing that its handlers or filters raise."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), {})

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Say something, as far as the handlers let it be said: those before one that raises have heard it."""
        with _unraised():
            super().log(level, msg, *args, **kwargs)

    def handle(self, record: logging.LogRecord) -> None:
        """Say what is in a record that was made elsewhere."""
        with _unraised():
            self.logger.handle(record)


@contextlib.contextmanager
def _unraised() -> Iterator[None]:
    try:
        yield
    except Exception:
        # As for a handler's own errors, which has the same switch.
        with contextlib.suppress(Exception):
            if logging.raiseExceptions:
                traceback.print_exc()


SYSTEM: Final = "fairlead"


def active() -> bool:
    """Whether the application traces."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return False
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider)


def tracer() -> Tracer:
    """The application's tracer."""
    from opentelemetry import trace

    return trace.get_tracer(SYSTEM, __version__)


def context_of(traceparent: str | None) -> Context | None:
    """The context that a traceparent leads to; None if it is none."""
    if traceparent_in(traceparent) is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": traceparent or ""})


def current_traceparent() -> str | None:
    """What leads to the current span, if there is one."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")


@contextlib.contextmanager
def submitting(submissions: Sequence[Submission]) -> Iterator[tuple[list[Submission], Span]]:
    """The span of a submit, and the submissions with what leads to it.

    It belongs to the trace that they were given, if all have the same, or to that of the caller. One that was given a
    trace of its own among others keeps it.
    """
    from opentelemetry.trace import SpanKind

    traces = {submission.trace for submission in submissions}
    given = traces.pop() if len(traces) == 1 else None
    types = {submission.type for submission in submissions}
    queues = {submission.queue for submission in submissions}
    attributes: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.operation.type": "send",
        "messaging.batch.message_count": len(submissions),
    }
    if len(queues) == 1:
        attributes["messaging.destination.name"] = next(iter(queues))
    if len(types) == 1:
        attributes["fairlead.task.type"] = next(iter(types))
    name = f"submit {next(iter(types))}" if len(types) == 1 else "submit"
    with tracer().start_as_current_span(
        name, context=context_of(given), kind=SpanKind.PRODUCER, attributes=attributes
    ) as span:
        own = current_traceparent()
        replaceable = {None, traceparent_in(given)}
        yield (
            [
                replace(submission, trace=own) if submission.trace in replaceable else submission
                for submission in submissions
            ],
            span,
        )


def tell_submitted(span: Span, task_ids: Sequence[str]) -> None:
    """Say in the span of a submit which task it made, if it is one."""
    if len(task_ids) == 1:
        span.set_attribute("messaging.message.id", task_ids[0])
