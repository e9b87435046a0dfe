"""Logs of a fairlead process: on stderr, one line per event, for people or as JSON.

Only the processes of the command line, and the child processes of their handlers, are set up like this. An application
that uses fairlead keeps the logging that it has; what it logs inside a handler can carry the task all the same, as
`fairlead.worker.context` says.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import textwrap
from typing import Final

import msgspec
from msgspec import Struct

from fairlead.core.secret_mask import masked_all, masked_text
from fairlead.wire.text import clean, iso, one_line
from fairlead.worker.context import task_fields

TRANSITION: Final = "transition"
"""The attribute of a record with what it says of a task in JSON, whose fields say the rest."""
REPORTED: Final = "reported"
"""The attribute of a record that says whether a middleware has reported its error, as Sentry's does."""
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", TRANSITION, REPORTED}
_DELAY: Final = 0.05
"""How long lines may wait to be written, in seconds."""
_MOST_PENDING: Final = 200
_encode: Final = msgspec.json.Encoder(enc_hook=lambda value: masked_text(repr(value))).encode


class LogSetup(Struct, frozen=True):
    """How a process logs."""

    level: str
    as_json: bool


class LogHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to stderr. Whole lines can be given to it, too, without a record for each.

    On an event loop such lines are written a moment later, with what else has come by then: a write for each would cost
    more than making them. Records are written at once, after the lines that came before.
    """

    def __init__(self, setup: LogSetup) -> None:
        super().__init__(sys.stderr)
        self.setup = setup
        self.setFormatter(JsonFormatter() if setup.as_json else LineFormatter())
        self._pending: list[bytes] = []
        self._due: asyncio.TimerHandle | None = None

    def write(self, lines: bytes) -> None:
        """Write lines, each with its end."""
        self._pending.append(lines)
        if self._due is not None and len(self._pending) < _MOST_PENDING:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
        else:
            if self._due is not None:
                self.flush()
            self._due = loop.call_later(_DELAY, self._write_due)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, after the lines before it."""
        if self._pending:
            self._write_pending()
        super().emit(record)

    def flush(self) -> None:
        """Write what is pending."""
        self._write_pending()
        super().flush()

    def _write_due(self) -> None:
        self._due = None
        self.flush()

    def _write_pending(self) -> None:
        self.acquire()
        try:
            pending, self._pending = self._pending, []
            if not pending:
                return
            # Past the stream's own encoding, if it has one: these are bytes already, and each record was flushed.
            buffer = getattr(self.stream, "buffer", None)
            if buffer is None:
                self.stream.write(b"".join(pending).decode())
            else:
                buffer.write(b"".join(pending))
                buffer.flush()
        except (OSError, ValueError):
            # As for records: a log that cannot be written, or is closed, must not stop the work.
            pass
        finally:
            self.release()


class LineFormatter(logging.Formatter):
    """One line for a person: when, how bad, which process, what; and the task whose handler said it.

    A traceback follows on lines of its own.
    """

    def format(self, record: logging.LogRecord) -> str:
        text = masked_text(record.getMessage())
        if task := task_fields():
            text = f"{text} (task {task['task_id']} {task['task_type']}, attempt {task['attempt']})"
        line = line_of(iso(round(record.created * 1e6)), record.levelname.lower(), text)
        trace = _trace_of(self, record)
        # Set in, so that nothing in it can pass for a line of the log.
        return line if trace is None else f"{line}\n{textwrap.indent(clean(trace), '    ')}"


class JsonFormatter(logging.Formatter):
    """One JSON object per line, with what the caller gave as `extra`, and the task whose handler said it."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": iso(round(record.created * 1e6)),
            "level": record.levelname.lower(),
            "process": record.process,
            "logger": record.name,
            "message": masked_text(getattr(record, TRANSITION, None) or record.getMessage()),
            **task_fields(),
        }
        if (trace := _trace_of(self, record)) is not None:
            line["traceback"] = trace
        given = {name: value for name, value in vars(record).items() if name not in _STANDARD and name not in line}
        extra = masked_all(given)
        try:
            return _encode(line | extra).decode()
        except (TypeError, ValueError, UnicodeError, RecursionError, msgspec.MsgspecError):
            return _encode({name: _plain(value) for name, value in (line | extra).items()}).decode()


def line_of(when: str, level: str, text: str) -> str:
    """A line for a person."""
    return f"{when[:-4]}Z {level:<7} [{os.getpid()}] {one_line(text)}"


def start_logging(setup: LogSetup) -> None:
    """Send the logs of this process to stderr from now on."""
    logging.basicConfig(level=logging.WARNING, handlers=[LogHandler(setup)], force=True)
    logging.getLogger("fairlead").setLevel(setup.level.upper())


def log_handler() -> LogHandler | None:
    """What writes the logs of this process, if `start_logging` has set it up."""
    return next((each for each in logging.getLogger().handlers if isinstance(each, LogHandler)), None)


def _trace_of(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    """The traceback of a record, if it has one, and where it was made if that is to be told."""
    trace = record.exc_text
    if not trace and record.exc_info:
        trace = formatter.formatException(record.exc_info)
    parts = [trace, formatter.formatStack(record.stack_info) if record.stack_info else None]
    told = [masked_text(part.rstrip("\n")) for part in parts if part]
    return "\n".join(told) if told else None


def _plain(value: object) -> str:
    return masked_text(str(value).encode(errors="backslashreplace").decode())
