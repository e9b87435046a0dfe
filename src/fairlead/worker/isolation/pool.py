"""Child processes for handlers with `isolate=True`: the worker's side.

A cell is a process that runs one task at a time and is kept for the next. A cell whose task is stopped is killed; a
cell that dies takes its task with it and nothing else.

The socket to a cell is a descriptor of the process in which a handler runs, who may close it, write to it, or leave
others behind who do. So every job has an identity of its own, at random, which goes before each message; a cell that
says anything else is killed, and nothing that it said counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, Final, TypeAlias, assert_never

import msgspec
from msgspec import Struct

from fairlead.core.errors import InvalidSettings
from fairlead.core.events import Completed, Failed, HandedBack
from fairlead.core.task import Task
from fairlead.worker.handlers import Handler
from fairlead.worker.logs import LogSetup, log_handler
from fairlead.worker.spans import carried

IDENTITY: Final = 16
"""How many bytes an identity has."""
HEADER: Final = IDENTITY + 4
LARGEST: Final = 64 * 1024 * 1024
"""The largest message, in bytes: far more than any result that a store takes."""

READY_WITHIN: Final = 60.0
"""How long, in seconds, a process may take to get ready for a task: to begin, and to import what it needs."""

_AT_ONCE: Final = 0.5
"""A process that is ready within so many seconds is worth no word to the keeper, for a grace is longer."""

_LAST_WORDS: Final = 1.0
"""How long, in seconds, what a process said may be on its way when it has ended, and how long its end may take when it
has stopped talking."""

_encode: Final = msgspec.msgpack.Encoder().encode


class ProcessDied(Exception):
    """The process of an isolated handler ended before the handler did, or was of no use any more."""


class ProcessNotReady(ProcessDied):
    """The process of an isolated handler was not ready in time."""


class Setup(Struct, frozen=True):
    """What a cell needs to find handlers, where to look and what the worker's main module is; and how to log."""

    path: list[str]
    main: str | None
    logs: LogSetup | None = None
    """None to leave logging alone, as the worker does."""
    app: str | None = None
    """The module that the worker was started with, which is imported before any other."""


class Job(Struct, frozen=True):
    """One attempt, for a cell to run."""

    module: str
    name: str
    task_type: str
    task: Task
    memory_limit: int | None
    trace: str | None = None
    """What leads to the span of the attempt."""


class Begun(Struct, frozen=True, tag=True):
    """The handler is loaded; from now on the time of the attempt counts."""


class Ended(Struct, frozen=True, tag=True):
    """The handler has ended; the cell, which knows its errors, has judged the outcome."""

    outcome: Completed | Failed | HandedBack
    reported: bool = False
    """Whether a middleware has reported the error."""


class Reported(Struct, frozen=True, tag=True):
    """The handler reported progress."""

    percent: float
    message: str


class Exited(Struct, frozen=True, tag=True):
    """The handler ends its process, and says why: `sys.exit` with words."""

    words: str


Message: TypeAlias = Begun | Ended | Reported | Exited
"""What a cell says."""

_decode: Final = msgspec.msgpack.Decoder(Message).decode


def frame(identity: bytes, message: Any) -> bytes:
    """A message, with what it belongs to and its length before it."""
    packed = _encode(message)
    return identity + len(packed).to_bytes(HEADER - IDENTITY, "big") + packed


def _folder() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 - a string is what is needed
    except OSError:
        return None


def location(handler: Handler) -> tuple[str, str]:
    """The module and name a cell can find a handler's function by."""
    function = handler.function
    if "<locals>" in function.__qualname__ or "<lambda>" in function.__qualname__:
        raise InvalidSettings(
            f"task {handler.type}: an isolated handler is found by its name in another process; define "
            f"{function.__qualname__} at the top of a module"
        )
    return function.__module__, function.__qualname__


Allow: TypeAlias = Callable[[Task, float], None]
"""Lets an attempt and its lease last so many seconds longer than from the claim on."""


class Cells:
    """The cells of one worker, started when they are needed."""

    def __init__(
        self, app: str | None, allow: Allow, ready_within: float = READY_WITHIN, farewell: float = 0.0
    ) -> None:
        """`app` is the module that the worker was started with, if it was started with one.

        At the end, cells have `farewell` seconds to leave the app's lifespan.
        """
        self._app = app
        self._farewell = farewell
        self._allow = allow
        self._ready_within = ready_within
        self._idle: list[_Cell] = []
        self._folder = _folder()
        """Where this process was when it began: a handler may move it."""

    async def run(
        self, handler: Handler, task: Task, report: Callable[[float, str], None], begun: Callable[[], None]
    ) -> Ended:
        """How a handler ended that was run in a cell; if this is cancelled the cell is killed.

        `begun` is called when the cell is ready, and what it runs is the handler. Raises ProcessDied.
        """
        module, name = location(handler)
        job = Job(module, name, handler.type, task, handler.memory_limit, carried())
        loop = asyncio.get_running_loop()
        claimed = loop.time()
        patience = loop.call_later(_AT_ONCE, self._allow, task, self._ready_within)
        try:
            cell = await self._ready_for(job, self._ready_within)
        finally:
            patience.cancel()
        try:
            if (taken := loop.time() - claimed) > _AT_ONCE:
                self._allow(task, taken)
            begun()
            ended = await cell.end_of_job(report)
        except BaseException:
            await cell.kill()
            raise
        self._idle.append(cell)
        return ended

    async def close(self) -> None:
        """End all cells."""
        if self._farewell:
            await asyncio.gather(*(cell.end(self._farewell) for cell in self._idle))
        for cell in self._idle:
            await cell.kill()
        self._idle.clear()

    async def _ready_for(self, job: Job, seconds: float) -> _Cell:
        """A cell that is about to run a job."""
        cell = self._idle.pop() if self._idle else None
        if cell is not None:
            # Whatever is wrong with it was done by its former tasks, or by what they left behind.
            with contextlib.suppress(ProcessDied):
                return await self._begun(cell, job, seconds)
        return await self._begun(await _Cell.start(self._app, self._folder), job, seconds)

    async def _begun(self, cell: _Cell, job: Job, seconds: float) -> _Cell:
        try:
            async with asyncio.timeout(seconds):
                await cell.begin(job)
        except TimeoutError:
            await cell.kill()
            raise ProcessNotReady(
                f"the isolated process was not ready within {seconds:g} s: importing {job.module} took too long"
            ) from None
        except BaseException:
            await cell.kill()
            raise
        return cell


class _Cell:
    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._end = asyncio.create_task(process.wait())
        self._identity = b""

    @classmethod
    async def start(cls, app: str | None, folder: str | None) -> _Cell:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "fairlead.worker.isolation.child",
                    str(theirs.fileno()),
                    pass_fds=[theirs.fileno()],
                    stdin=asyncio.subprocess.DEVNULL,
                    cwd=folder,
                )
        except BaseException:
            ours.close()
            raise
        reader, writer = await asyncio.open_connection(sock=ours)
        cell = cls(process, reader, writer)
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        handler = log_handler()
        cell._say(Setup(sys.path, main, None if handler is None else handler.setup, app))
        return cell

    async def begin(self, job: Job) -> None:
        """Return when the handler of a job is loaded, and about to run."""
        self._say(job)
        message = await self._message()
        if not isinstance(message, Begun):
            raise ProcessDied(_BABBLE)

    async def end_of_job(self, report: Callable[[float, str], None]) -> Ended:
        """How the handler of the job ends."""
        while True:
            message = await self._message()
            match message:
                case Ended():
                    return message
                case Reported(percent, text):
                    report(percent, text)
                case Exited(words):
                    raise ProcessDied(f"the handler ended its process: {words}")
                case Begun():
                    raise ProcessDied(_BABBLE)
                case _:
                    assert_never(message)

    async def end(self, seconds: float) -> None:
        """Let the process end by itself, which it does when there is no more to hear."""
        self._writer.close()
        await asyncio.wait([self._end], timeout=seconds)

    async def kill(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        self._writer.close()
        await self._end

    def _say(self, message: Setup | Job) -> None:
        self._identity = os.urandom(IDENTITY)
        self._writer.write(frame(self._identity, message))

    async def _message(self) -> Message:
        """The next message of the job.

        The end of the process counts, not only that of the socket: a child of the handler's may hold the other end.
        """
        reading = asyncio.create_task(self._read())
        try:
            await asyncio.wait([reading, self._end], return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await asyncio.wait([reading], timeout=_LAST_WORDS)
            if reading.done() and (message := reading.result()) is not None:
                return message
        finally:
            reading.cancel()
        raise ProcessDied(await self._cause_of_death())

    async def _read(self) -> Message | None:
        """The next message; None if there will be none. Raises ProcessDied for what is none of this job."""
        try:
            header = await self._reader.readexactly(HEADER)
            size = int.from_bytes(header[IDENTITY:], "big")
            if header[:IDENTITY] != self._identity or size > LARGEST:
                raise ProcessDied(_BABBLE)
            message: Message = _decode(await self._reader.readexactly(size))
        except msgspec.MsgspecError:
            raise ProcessDied(_BABBLE) from None
        except (asyncio.IncompleteReadError, OSError):
            return None
        return message

    async def _cause_of_death(self) -> str:
        await asyncio.wait([self._end], timeout=_LAST_WORDS)
        if not self._end.done():
            return _CUT_OFF
        return _CAUSES.get(code := self._end.result()) or _ending(code)


def _ending(code: int) -> str:
    if code < 0:
        return f"the isolated process was killed by {_signal_name(-code)}"
    return f"the isolated process exited with code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


OUT_OF_MEMORY: Final = os.EX_OSERR
"""The exit code of a cell whose handler ran out of memory."""

CUT_OFF: Final = os.EX_IOERR
"""The exit code of a cell that cannot reach its worker any more."""

_BABBLE: Final = (
    "the isolated process said what is no answer of its task, and was killed: its handler, or what one of its handlers "
    "has left behind, wrote to a descriptor that is not its own"
)
_CUT_OFF: Final = (
    "the isolated process lost its connection to the worker: its handler closed descriptors, or ran another program in "
    "its place"
)
_CAUSES: Final = {OUT_OF_MEMORY: "the isolated process ran out of memory", CUT_OFF: _CUT_OFF}
