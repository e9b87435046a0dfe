"""Logs of a fairlead process: on stderr, one line per event, for people or as JSON.

Only the processes of the command line, and the child processes of their handlers, are set up like this. An application
that uses fairlead keeps the logging that it has; what it logs inside a handler can carry the task all the same, as
`fairlead.worker.context` says.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

import msgspec
from msgspec import Struct

from fairlead.wire.moments import iso
from fairlead.wire.plain import one_line
from fairlead.worker.context import task_fields

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_encode: Final = msgspec.json.Encoder(enc_hook=repr).encode


class LogSetup(Struct, frozen=True):
    """How a process logs."""

    level: str
    as_json: bool


class LogHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to stderr. Whole lines can be given to it, too, without a record for each."""

    def __init__(self, setup: LogSetup) -> None:
        super().__init__(sys.stderr)
        self.setup = setup
        self.setFormatter(JsonFormatter() if setup.as_json else LineFormatter())

    def write(self, lines: bytes) -> None:
        """Write lines, each with its end."""
        self.acquire()
        try:
            # Past the stream's own encoding, if it has one: these are bytes already. Each record was flushed.
            buffer = getattr(self.stream, "buffer", None)
            if buffer is None:
                self.stream.write(lines.decode())
                self.stream.flush()
            else:
                buffer.write(lines)
                buffer.flush()
        except OSError:
            # As for records: a log that cannot be written must not stop the work.
            pass
        finally:
            self.release()


class LineFormatter(logging.Formatter):
    """One line for a person: when, how bad, which process, what; and the task whose handler said it."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if task := task_fields():
            text = f"{text} (task {task['task_id']} {task['task_type']}, attempt {task['attempt']})"
        return line_of(iso(round(record.created * 1e6)), record.levelname.lower(), text)


class JsonFormatter(logging.Formatter):
    """One JSON object per line, with what the caller gave as `extra`, and the task whose handler said it."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": iso(round(record.created * 1e6)),
            "level": record.levelname.lower(),
            "process": record.process,
            "logger": record.name,
            "message": super().format(record),
            **task_fields(),
        }
        extra = {name: value for name, value in vars(record).items() if name not in _STANDARD and name not in line}
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


def _plain(value: object) -> str:
    return str(value).encode(errors="backslashreplace").decode()
