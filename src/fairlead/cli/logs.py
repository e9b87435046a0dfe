"""Logs of a running worker: on stderr, one line per event."""

from __future__ import annotations

import logging
import sys
from typing import Final

import msgspec

from fairlead.cli.moments import brief
from fairlead.cli.output import one_line
from fairlead.core.task import Task
from fairlead.engine.observe import Happening, Observer, Occurrence
from fairlead.wire.moments import iso

log = logging.getLogger("fairlead.tasks")

_LEVELS: Final = {
    Happening.STARTED: logging.DEBUG,
    Happening.COMPLETED: logging.DEBUG,
    Happening.CANCELLED: logging.INFO,
    Happening.HANDED_BACK: logging.INFO,
    Happening.RETRYING: logging.WARNING,
    Happening.FAILED: logging.WARNING,
    Happening.DEAD_LETTER: logging.WARNING,
}
"""What is said of tasks; other happenings are of no interest to whoever watches a worker."""


class LineFormatter(logging.Formatter):
    """One line for a person: when, how bad, which process, what."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        when = iso(round(record.created * 1e6))[:-4] + "Z"
        return f"{when} {record.levelname.lower():<7} [{record.process}] {one_line(text)}"


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": iso(round(record.created * 1e6)),
            "level": record.levelname.lower(),
            "process": record.process,
            "logger": record.name,
            "message": super().format(record),
        }
        return msgspec.json.encode(line).decode()


def start_logging(level: str, *, as_json: bool) -> None:
    """Send the logs of this process to stderr from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else LineFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("fairlead").setLevel(level.upper())


def task_observer(*, chatty: bool) -> Observer:
    """What tells the log of tasks. Only a chatty one speaks of success: a busy worker has better things to do."""
    levels = _LEVELS | ({Happening.COMPLETED: logging.INFO} if chatty else {})

    def tell(occurrence: Occurrence) -> None:
        level = levels.get(occurrence.happening)
        if level is not None and log.isEnabledFor(level):
            log.log(level, "%s", _sentence(occurrence.happening, occurrence.task))

    return tell


def _sentence(happening: Happening, task: Task) -> str:
    status = task.status
    text = f"task {task.id} {task.spec.type} {happening.replace('_', ' ')}"
    if happening is Happening.STARTED:
        return f"{text}, attempt {status.attempts}"
    if status.ended_at is not None and status.started_at is not None:
        text = f"{text} after {brief(status.ended_at - status.started_at)}"
    elif happening is Happening.RETRYING:
        text = f"{text} ({status.reason}), retry {status.retries} of {task.spec.max_retries}"
    if status.failure is not None and happening not in (Happening.COMPLETED, Happening.HANDED_BACK):
        text = f"{text}: {status.failure.type}: {status.failure.message}"
    return text
