"""Child processes for handlers with `isolate=True`: the worker's side.

A cell is a process that runs one task at a time and is kept for the next. A cell whose task is stopped is killed; a
cell that dies takes its task with it and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, Final, TypeAlias, assert_never

import msgspec
from msgspec import Struct

from fairlead.core.errors import InvalidSettings
from fairlead.core.events import Failed
from fairlead.core.task import Task
from fairlead.worker.handlers import Handler
from fairlead.worker.logs import LogSetup, log_handler
from fairlead.worker.tracing import carried

_HEADER: Final = 4
_encode: Final = msgspec.msgpack.Encoder().encode


class ProcessDied(Exception):
    """The process of an isolated handler ended before the handler did."""


class Setup(Struct, frozen=True):
    """What a cell needs to find handlers, where to look and what the worker's main module is; and how to log."""

    path: list[str]
    main: str | None
    logs: LogSetup | None = None
    """None to leave logging alone, as the worker does."""


class Job(Struct, frozen=True):
    """One attempt, for a cell to run."""

    module: str
    name: str
    task_type: str
    task: Task
    memory_limit: int | None
    trace: str | None = None
    """What leads to the span of the attempt."""


class Returned(Struct, frozen=True, tag=True):
    """The handler returned."""

    result: bytes | None


class Raised(Struct, frozen=True, tag=True):
    """The handler raised; the cell, which knows its errors, has judged the outcome."""

    outcome: Failed


class Reported(Struct, frozen=True, tag=True):
    """The handler reported progress."""

    percent: float
    message: str


class HandlerRaised(Exception):
    """An isolated handler raised; the outcome was judged in its process."""

    def __init__(self, outcome: Failed) -> None:
        super().__init__(outcome.failure.message)
        self.outcome = outcome


Message: TypeAlias = Returned | Raised | Reported
"""What a cell says."""

_decode: Final = msgspec.msgpack.Decoder(Message).decode


def frame(message: Any) -> bytes:
    """A message with its length before it."""
    packed = _encode(message)
    return len(packed).to_bytes(_HEADER, "big") + packed


def location(handler: Handler) -> tuple[str, str]:
    """The module and name a cell can find a handler's function by."""
    function = handler.function
    if "<locals>" in function.__qualname__ or "<lambda>" in function.__qualname__:
        raise InvalidSettings(
            f"task {handler.type}: an isolated handler is found by its name in another process; define "
            f"{function.__qualname__} at the top of a module"
        )
    return function.__module__, function.__qualname__


class Cells:
    """The cells of one worker, started when they are needed."""

    def __init__(self) -> None:
        self._idle: list[_Cell] = []

    async def run(self, handler: Handler, task: Task, report: Callable[[float, str], None]) -> bytes | None:
        """The encoded result of a handler run in a cell; if this is cancelled the cell is killed."""
        module, name = location(handler)
        cell = self._idle.pop() if self._idle else await _Cell.start()
        try:
            result = await cell.run(Job(module, name, handler.type, task, handler.memory_limit, carried()), report)
        except HandlerRaised:
            self._idle.append(cell)
            raise
        except BaseException:
            await cell.kill()
            raise
        self._idle.append(cell)
        return result

    async def close(self) -> None:
        """End all cells."""
        for cell in self._idle:
            await cell.kill()
        self._idle.clear()


class _Cell:
    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls) -> _Cell:
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "fairlead.worker.cell", str(theirs.fileno()), pass_fds=[theirs.fileno()]
            )
        reader, writer = await asyncio.open_connection(sock=ours)
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        handler = log_handler()
        writer.write(frame(Setup(sys.path, main, None if handler is None else handler.setup)))
        return cls(process, reader, writer)

    async def run(self, job: Job, report: Callable[[float, str], None]) -> bytes | None:
        try:
            self._writer.write(frame(job))
            await self._writer.drain()
            while True:
                size = int.from_bytes(await self._reader.readexactly(_HEADER), "big")
                message: Message = _decode(await self._reader.readexactly(size))
                match message:
                    case Returned(result):
                        return result
                    case Raised(outcome):
                        raise HandlerRaised(outcome)
                    case Reported(percent, text):
                        report(percent, text)
                    case _:
                        assert_never(message)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise ProcessDied(await self._cause_of_death()) from None

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        self._writer.close()
        await self._process.wait()

    async def _cause_of_death(self) -> str:
        code = await self._process.wait()
        if code == OUT_OF_MEMORY:
            return "the isolated process ran out of memory"
        if code < 0:
            return f"the isolated process was killed by {signal.Signals(-code).name}"
        return f"the isolated process exited with code {code}"


OUT_OF_MEMORY: Final = os.EX_OSERR
"""The exit code of a cell whose handler ran out of memory."""
