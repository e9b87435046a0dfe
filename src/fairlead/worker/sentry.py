"""Sentry: one event for each task that fails for good, with the task as its context, in the trace of its submit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from fairlead.core.errors import InvalidSettings
from fairlead.core.extras import told
from fairlead.core.identity import traceparent_in
from fairlead.core.submission import Submission
from fairlead.worker.context import TaskContext
from fairlead.worker.logs import REPORTED
from fairlead.worker.resources import Middleware
from fairlead.worker.task_log import FIELDS, LOGGER

if TYPE_CHECKING:
    from sentry_sdk.types import Event, Hint

_FLUSH_WITHIN: Final = 2.0
"""How long, in seconds, an isolated process may take to send an event: it may be killed when its handler has ended."""

_setup = threading.Lock()
_is_set_up = False


class Sentry(Middleware):
    """Reports to Sentry, which the program has set up with `sentry_sdk.init`: `Fairlead(…, middleware=[Sentry()])`.

    The last error of a task is an event, and errors that are retried are none. What no handler raised, such as a crash
    or a timeout, is an event by way of the log, if Sentry's logging integration is on, as it is by default.
    """

    def __init__(self) -> None:
        try:
            import sentry_sdk
        except ModuleNotFoundError as missing:
            raise InvalidSettings(told(missing, "Sentry()") or str(missing)) from None
        self._sdk = sentry_sdk
        _set_up()

    def on_submit(self, submission: Submission) -> Submission:
        """Have the task go on in the trace of its submitter, unless it says its own."""
        if submission.trace is not None or (found := self._sdk.get_traceparent()) is None:
            return submission
        trace, span, *sampled = found.split("-")
        return replace(submission, trace=f"00-{trace}-{span}-{'01' if sampled == ['1'] else '00'}")

    @contextmanager
    def attempt(self, context: TaskContext, /) -> Iterator[None]:
        """A transaction around the attempt, and an event for the error that is the task's last."""
        with self._sdk.isolation_scope() as scope:
            scope.set_context("task", context.log_fields())
            scope.set_tag("task_type", context.type)
            scope.set_tag("queue", context.queue)
            going_on = self._sdk.continue_trace(
                _headers(context.trace), op="queue.process", name=context.type, source="task"
            )
            with self._sdk.start_transaction(going_on):
                try:
                    yield
                except asyncio.CancelledError:
                    # It was stopped, which the handler has not raised: the log tells of it.
                    raise
                except BaseException as error:
                    if context.is_final(error):
                        self._report(context, error)
                    raise

    def _report(self, context: TaskContext, error: BaseException) -> None:
        self._sdk.capture_exception(error)
        context.reported = True
        if context.is_isolated:
            self._sdk.flush(timeout=_FLUSH_WITHIN)


def _headers(trace: str | None) -> dict[str, Any]:
    """A traceparent as Sentry writes it."""
    found = traceparent_in(trace)
    if found is None:
        return {}
    _, trace_id, span, flags = found.split("-")
    return {"sentry-trace": f"{trace_id}-{span}-{int(flags, 16) & 1}"}


def _set_up() -> None:
    """Have what the log says of tasks be an event only where no middleware has reported it."""
    global _is_set_up
    from sentry_sdk.scope import add_global_event_processor

    with _setup:
        if not _is_set_up:
            add_global_event_processor(_unreported)
            _is_set_up = True


def _unreported(event: Event, hint: Hint) -> Event | None:
    record = hint.get("log_record")
    if record is None or record.name != LOGGER:
        return event
    if getattr(record, REPORTED, False):
        return None
    task = {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}
    event.setdefault("contexts", {})["task"] = task
    tags = event.setdefault("tags", {})
    tags.update({name: task[name] for name in ("task_type", "queue") if name in task})
    return event
