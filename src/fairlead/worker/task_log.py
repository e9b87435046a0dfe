"""The log of tasks: one line for each transition, written a batch at a time.

What a task carries is never logged: no parameters, no results.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from fairlead.core.events import Crashed, Failed, TimedOut
from fairlead.core.identity import TaskId, trace_id_of
from fairlead.core.instant import SECOND, Instant, Span
from fairlead.core.task import COMPLETED, EXECUTING, QUEUED, Priority, Reason, State, Task
from fairlead.core.transitions import state_before
from fairlead.engine.engine import Settlement
from fairlead.engine.events.types import Happening, Occurrence, Watcher, happening_of, worker_of
from fairlead.engine.runtime.telemetry import Logger
from fairlead.wire.text import iso
from fairlead.worker.logs import REPORTED, TRANSITION, LogHandler, line_of

LOGGER: Final = "fairlead.tasks"

LEVELS: Final = {
    Happening.SUBMITTED: logging.INFO,
    Happening.STARTED: logging.INFO,
    Happening.PROMOTED: logging.DEBUG,
    Happening.READY: logging.DEBUG,
    Happening.RETRYING: logging.WARNING,
    Happening.HANDED_BACK: logging.INFO,
    Happening.COMPLETED: logging.INFO,
    Happening.FAILED: logging.ERROR,
    Happening.DEAD_LETTER: logging.ERROR,
    Happening.CANCEL_ASKED: logging.INFO,
    Happening.CANCELLED: logging.INFO,
    Happening.REPLAYED: logging.INFO,
    Happening.PRIORITIZED: logging.INFO,
    Happening.REMOVED: logging.DEBUG,
    Happening.FOREIGN: logging.DEBUG,
    Happening.REFUSED: logging.WARNING,
}
"""How much a transition matters: what may need someone is more than information, steps in between are less."""

_WORDS: Final = {level: logging.getLevelName(level).lower() for level in LEVELS.values()}
_PRIORITIES: Final = tuple(priority.word for priority in Priority)
_WITH_ERROR: Final = frozenset({Happening.RETRYING, Happening.FAILED, Happening.DEAD_LETTER, Happening.CANCELLED})


class LogLine(Struct, omit_defaults=True, gc=False):
    """A transition, as it is logged."""

    time: str
    level: str
    process: int
    logger: str
    message: str
    task_id: str
    task_type: str
    queue: str
    priority: str
    from_state: str | None = None
    """The state that the task has left; none of a task that is new, or whose state was not changed by this."""
    to_state: str | None = None
    """The state that it came to; none of a task that is removed."""
    attempt: int = 0
    worker_id: str | None = None
    trace_id: str | None = None
    duration_seconds: float | None = None
    """How long the attempt took that has ended."""
    wait_seconds: float | None = None
    """How long the task was ready before it was claimed."""
    reason: str | None = None
    error: str | None = None
    treated_as: str | None = None


class TransitionLog(Watcher):
    """Logs what happens to tasks."""

    def __init__(self, handler: LogHandler) -> None:
        self._handler = handler
        self._logger = logging.getLogger(LOGGER)
        self._encoder = msgspec.json.Encoder()
        self._process = os.getpid()

    follows_workers = True

    def moved(self, tasks: Sequence[Task], at: Instant) -> None:
        """Log that tasks have come to their states."""
        least = self._logger.getEffectiveLevel()
        process, informs = self._process, least <= logging.INFO
        when = iso(at) if informs else ""
        lines: list[LogLine] = []
        for task in tasks:
            spec, status = task.spec, task.status
            # What nearly always happens is put together here, without further calls.
            if status.state is COMPLETED:
                if informs:
                    took = (status.ended_at or at) - (status.started_at or at)
                    lines.append(
                        LogLine(
                            when, "info", process, LOGGER, "task completed", spec.id, spec.type, spec.queue,
                            _PRIORITIES[status.priority], "executing", "completed",
                            status.attempts, status.history[-1].worker,
                            spec.trace and trace_id_of(spec.trace), took / SECOND,
                        )
                    )  # fmt: skip
            elif status.state is EXECUTING and status.lease is not None and not status.cancel_asked:
                if informs:
                    lines.append(
                        LogLine(
                            when, "info", process, LOGGER, "task started", spec.id, spec.type, spec.queue,
                            _PRIORITIES[status.priority], "queued", "executing",
                            status.attempts, status.lease.worker,
                            spec.trace and trace_id_of(spec.trace), None, (at - status.ready_at) / SECOND,
                        )
                    )  # fmt: skip
            elif informs or status.state is not QUEUED or status.reason is not Reason.SUBMITTED:
                happening = happening_of(task)
                if LEVELS[happening] >= least and not (_failing and _is_told_by_worker(happening, task)):
                    lines.append(self._line(happening, task, at, when or iso(at)))
        if lines:
            self._write(lines)

    def promoted(self, task: Task, treated_as: Priority, at: Instant) -> None:
        """Log a promotion."""
        if self._logger.isEnabledFor(LEVELS[Happening.PROMOTED]):
            line = self._line(Happening.PROMOTED, task, at, iso(at))
            line.treated_as = treated_as.word
            self._write([line])

    def noted(self, occurrence: Occurrence) -> None:
        """Log what a task's own standing does not show."""
        if self._logger.isEnabledFor(LEVELS[occurrence.happening]):
            self._write([self._line(occurrence.happening, occurrence.task, occurrence.at, iso(occurrence.at))])

    def _line(self, happening: Happening, task: Task, at: Instant, when: str) -> LogLine:
        return log_line(happening, task, at, when, self._process)

    def _write(self, lines: list[LogLine]) -> None:
        if self._handler.setup.as_json:
            self._handler.write(self._encoder.encode_lines(lines))
        else:
            text = "".join(f"{line_of(line.time, line.level, sentence(line))}\n" for line in lines)
            self._handler.write(text.encode())


def log_line(happening: Happening, task: Task, at: Instant, when: str, process: int) -> LogLine:
    """What is logged of a transition."""
    spec, status = task.spec, task.status
    line = LogLine(
        when,
        "info",
        process,
        LOGGER,
        _MESSAGES[happening],
        spec.id,
        spec.type,
        spec.queue,
        _PRIORITIES[status.priority],
        *_states(happening, task),
        status.attempts,
        worker_of(task),
    )
    if spec.trace is not None:
        line.trace_id = trace_id_of(spec.trace)
    line.level = _WORDS[LEVELS[happening]]
    line.reason = status.reason.value
    took = _took(happening, task, at)
    line.duration_seconds = None if took is None else took / SECOND
    if happening in _WITH_ERROR and status.failure is not None:
        line.error = f"{status.failure.type}: {status.failure.message}"
    return line


Attempted: TypeAlias = tuple[TaskId, int]
"""One attempt of a task."""

_failing: Final[set[Attempted]] = set()
"""The attempts that a worker of this process settles as failed: it logs what becomes of them, with the error."""


def _is_told_by_worker(happening: Happening, task: Task) -> bool:
    return happening in _WITH_ERROR and (task.spec.id, task.status.attempts) in _failing


_FAILED: Final = frozenset((Failed, TimedOut, Crashed))


class FailureLog:
    """The log of the attempts that have failed in one worker, which has their errors.

    It writes records of Python's own logging, whoever set that up: a program that logs nothing else still shows them.
    """

    def __init__(self) -> None:
        self._errors: dict[Attempted, tuple[BaseException | None, bool]] = {}
        self._logger = Logger(LOGGER)

    def keep(self, task: Task, error: BaseException | None, *, reported: bool) -> None:
        """Keep the error of an attempt, and whether it is reported, until it is known what becomes of the task."""
        self._errors[task.spec.id, task.status.attempts] = error, reported

    def expect(self, settlements: Sequence[Settlement]) -> list[Settlement]:
        """Those that are to be logged when they are settled, and by nobody else."""
        failing = [each for each in settlements if type(each.outcome) in _FAILED]
        if failing:
            _failing.update((each.task.spec.id, each.task.status.attempts) for each in failing)
        return failing

    def forget(self, failing: Sequence[Settlement]) -> None:
        """They were settled, or will not be."""
        for each in failing:
            attempted = each.task.spec.id, each.task.status.attempts
            _failing.discard(attempted)
            self._errors.pop(attempted, None)

    def settled(self, settlement: Settlement, task: Task) -> None:
        """Log what has become of a task, if its attempt has failed."""
        if type(settlement.outcome) not in _FAILED:
            return
        happening = happening_of(task)
        level = LEVELS[happening]
        if happening not in _WITH_ERROR or not self._logger.isEnabledFor(level):
            return
        error, reported = self._errors.get((task.spec.id, settlement.task.status.attempts), (None, False))
        # By the clock that decided, which is not always that of the host.
        at = task.status.history[-1].at if task.status.history else time.time_ns() // 1_000
        line = log_line(happening, task, at, iso(at), os.getpid())
        fields = {name: value for name in FIELDS if (value := getattr(line, name)) is not None}
        record = self._logger.logger.makeRecord(
            LOGGER, level, __file__, 0, sentence(line), (),
            None if error is None else (type(error), error, _traceback_of(error)),
            extra={**fields, TRANSITION: line.message, REPORTED: reported},
        )  # fmt: skip
        # What was stored begins in the handler's own code, and is of bounded length.
        record.exc_text = None if task.status.failure is None else task.status.failure.traceback
        self._logger.handle(record)


_traceback_of: Final[Callable[[BaseException], TracebackType | None]] = vars(BaseException)["__traceback__"].__get__
FIELDS: Final = tuple(
    name for name in LogLine.__struct_fields__ if name not in ("time", "level", "process", "logger", "message")
)
"""What the record of a failed attempt has as attributes."""


def sentence(line: LogLine) -> str:
    """A transition in words."""
    text = f"task {line.task_id} {line.task_type} {line.message.removeprefix('task ')}"
    if line.treated_as is not None:
        text = f"{text} to {line.treated_as}"
    if line.duration_seconds is not None:
        text = f"{text} after {line.duration_seconds:.3g} s"
    if line.attempt:
        text = f"{text}, attempt {line.attempt}"
    if line.worker_id is not None:
        text = f"{text} by {line.worker_id}"
    text = f"{text}, {line.priority}"
    if line.trace_id is not None:
        text = f"{text}, trace {line.trace_id}"
    if line.error is not None:
        text = f"{text} ({line.reason}): {line.error}"
    return text


_WITHOUT_ATTEMPT: Final = frozenset({Happening.REMOVED, Happening.FOREIGN, Happening.REFUSED, Happening.CANCEL_ASKED})
_MESSAGES: Final = {happening: f"task {happening.replace('_', ' ')}" for happening in Happening}


def _states(happening: Happening, task: Task) -> tuple[str | None, str | None]:
    """The states that a task has left and come to with this."""
    match happening:
        case Happening.PROMOTED | Happening.REFUSED:
            return None, None
        case Happening.REMOVED:
            return task.state.value, None
        case Happening.FOREIGN:
            return State.EXECUTING.value, State.QUEUED.value
        case _:
            before = state_before(task)
            return None if before is None else before.value, task.state.value


def _took(happening: Happening, task: Task, at: Instant) -> Span | None:
    """How long the attempt took that ended with this, if one did."""
    history = task.status.history
    if happening in _WITHOUT_ATTEMPT or not history:
        return None
    started = history[-1].started_at
    return None if started is None else at - started
