"""A child process for handlers with `isolate=True`: the handler's side.

Run as `python -m fairlead.worker.isolation.child DESCRIPTOR`, where the descriptor is a socket to the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import importlib
import os
import resource
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any, Final, NoReturn, TextIO

import msgspec

from fairlead.core.errors import InvalidTask, PayloadTooLarge
from fairlead.core.events import Completed, Failed, HandedBack
from fairlead.core.retry import derives
from fairlead.core.task import Failure, Progress, Task
from fairlead.engine.runtime.telemetry import Logger
from fairlead.worker.context import TaskContext, enter
from fairlead.worker.handlers import Handler
from fairlead.worker.isolation.fork_guard import hear_signals, leave
from fairlead.worker.isolation.pool import (
    CUT_OFF,
    HEADER,
    IDENTITY,
    LARGEST,
    OUT_OF_MEMORY,
    Begun,
    Ended,
    Exited,
    Job,
    Reported,
    Setup,
    frame,
)
from fairlead.worker.logs import start_logging
from fairlead.worker.outcome import InvalidArguments, call, completed, failed, failure_of, invalid_arguments
from fairlead.worker.resources import OnLoop, Resources
from fairlead.worker.spans import adopt

log = Logger("fairlead.worker")

_MAIN: Final = "__fairlead_main__"
"""The worker's main module is run under this name, so that its `if __name__ == "__main__"` does not start a worker."""

_ROOM: Final = 1024
"""What a message takes beside a result, in bytes."""

_STREAMS: Final = ("stdin", "stdout", "stderr")
"""By their descriptors."""

_PR_SET_PDEATHSIG: Final = 1

_code_of: Final[Callable[[SystemExit], object]] = vars(SystemExit)["code"].__get__


class Channel:
    """The socket to the worker, of this process and of no other.

    A handler may fork, close descriptors and open others in their place. So a child of this process closes the socket
    and leaves when it would use it, and a descriptor that is no longer the socket is not used by anyone.
    """

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        # The worker's own process may have a default timeout for sockets, which makes each one that does not wait.
        self._socket.setblocking(True)
        # Programs that a handler starts do not get it.
        self._socket.set_inheritable(False)
        self._process = os.getpid()
        self._file = self._seen()
        self._saying = threading.Lock()
        self._identity = b""
        os.register_at_fork(after_in_child=self._abandon)

    def hear(self) -> bytes:
        """The next message, to which all that is said belongs from now on; raises EOFError when there is none."""
        header = self._read(HEADER)
        message = self._read(int.from_bytes(header[IDENTITY:], "big"))
        with self._saying:
            self._identity = header[:IDENTITY]
        return message

    @property
    def identity(self) -> bytes:
        """What the message belongs to that was heard last."""
        return self._identity

    def say(self, identity: bytes, message: Any, *, last: bool = False) -> None:
        """Say something of a job; nothing of one that is over, which a thread may that a handler left behind."""
        self.stay()
        with self._saying:
            if identity != self._identity:
                return
            if last:
                self._identity = b""
            self._check()
            try:
                self._socket.sendall(frame(identity, message))
            except OSError:
                os._exit(CUT_OFF)

    def stay(self) -> None:
        """Return in the process that this belongs to; any other one leaves."""
        if os.getpid() != self._process:
            leave()

    @property
    def is_ours(self) -> bool:
        """Whether this is the process that it belongs to."""
        return os.getpid() == self._process

    def _read(self, size: int) -> bytes:
        self.stay()
        parts = bytearray()
        while len(parts) < size:
            self._check()
            try:
                part = self._socket.recv(min(size - len(parts), 1 << 20))
            except OSError:
                os._exit(CUT_OFF)
            self.stay()
            if not part:
                # The worker has no more to say: that is how a cell ends.
                raise EOFError
            parts += part
        return bytes(parts)

    def _check(self) -> None:
        if self._seen() != self._file:
            os._exit(CUT_OFF)

    def _seen(self) -> tuple[int, int] | None:
        try:
            status = os.fstat(self._socket.fileno())
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _abandon(self) -> None:
        if self._seen() == self._file:
            self._socket.close()


class Surroundings:
    """What a handler finds around it, and the next one is to find as well."""

    def __init__(self) -> None:
        self._folder = os.getcwd()  # noqa: PTH109 - a string is what is needed
        self._streams: dict[str, TextIO | None] = {name: getattr(sys, name) for name in _STREAMS}
        self._signals = {number: signal.getsignal(number) for number in signal.valid_signals()}

    def restore(self) -> None:
        """Make it as it was."""
        with contextlib.suppress(OSError):
            os.chdir(self._folder)
        for name, stream in self._streams.items():
            setattr(sys, name, stream if stream is None or _is_open(stream) else _reopened(name))
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._signals.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)


def _is_open(stream: TextIO) -> bool:
    try:
        return not stream.closed
    except ValueError:
        # Its buffer was taken away.
        return False


def _reopened(name: str) -> TextIO | None:
    """A stream that a handler has closed, which leaves its descriptor open."""
    with contextlib.suppress(OSError):
        stream: TextIO = os.fdopen(_STREAMS.index(name), "r" if name == "stdin" else "w", closefd=False)
        return stream
    return None


class CellProcess:
    """Runs the jobs that come over a channel, one at a time, until the worker has no more to say."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._handlers: dict[tuple[str, str], Handler] = {}
        self._main: ModuleType | None = None
        self._main_file: str | None = None
        self._app: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """One for the life of the process: what handlers keep open, such as a pool, belongs to it."""
        self._lifespans: dict[Resources, OnLoop] = {}
        self._context: TaskContext | None = None
        """That of the attempt under way, if its handler was called."""

    def serve(self) -> NoReturn:
        """Run jobs until there are no more, then leave what was entered for them, and exit."""
        try:
            self._serve()
        except EOFError:
            for lifespan in self._lifespans.values():
                try:
                    lifespan.__exit__(None, None, None)
                except Exception:
                    log.exception("the lifespan of an isolated process ended with an error")
            _exit(0)

    def _serve(self) -> NoReturn:
        setup = msgspec.msgpack.decode(self._channel.hear(), type=Setup)
        sys.path[:] = setup.path
        self._main_file = setup.main
        self._app = setup.app
        if setup.logs is not None:
            start_logging(setup.logs)
        surroundings = Surroundings()
        decode = msgspec.msgpack.Decoder(Job).decode
        while True:
            job = decode(self._channel.hear())
            identity = self._channel.identity
            self._context = None
            outcome = self._outcome(job, identity)
            self._channel.stay()
            self._channel.say(identity, Ended(_sized(outcome), self._reported), last=True)
            surroundings.restore()

    @property
    def _reported(self) -> bool:
        """Whether a middleware has reported the error of the attempt."""
        return self._context is not None and self._context.reported is True

    def _outcome(self, job: Job, identity: bytes) -> Completed | Failed | HandedBack:
        try:
            handler = self._handler(job)
            state = self._state_for(handler.resources)
        except BaseException as error:
            self._channel.say(identity, Begun())
            return Failed(failure=_not_loaded(job, error))
        self._channel.say(identity, Begun())
        try:
            with _MemoryLimit(job.memory_limit):
                return completed(handler, self._called(handler, job, identity, state))
        except InvalidArguments as error:
            return invalid_arguments(error.reason)
        except MemoryError:
            self._channel.stay()
            os._exit(OUT_OF_MEMORY)
        except SystemExit as error:
            self._channel.stay()
            self._leave(error, identity)
        except BaseException as error:
            return failed(handler, error)

    def _leave(self, error: SystemExit, identity: bytes) -> NoReturn:
        """Exit as the handler has asked for; what it gives in place of a code is told."""
        code = _code_of(error)
        if code is not None and not derives(type(code), int):
            self._channel.say(identity, Exited(failure_of(error).message), last=True)
        _exit(code)

    def _called(self, handler: Handler, job: Job, identity: bytes, state: object) -> Any:
        try:
            arguments = handler.signature.decode(job.task.spec.parameters)
        except InvalidTask as error:
            raise InvalidArguments(error) from None
        context = TaskContext(job.task, self._reporter(identity), handler, failed)
        context.equip(state, self._run, isolated=True)
        self._context = context
        enter(context)
        adopt(job.trace)
        return call(handler, arguments, self._run)

    def _state_for(self, resources: Resources) -> object:
        """What the lifespan of an app has yielded, which is entered for the first of its handlers."""
        if resources.lifespan is None:
            return None
        if resources not in self._lifespans:
            lifespan = OnLoop(resources.open(), self._run)
            lifespan.__enter__()
            self._lifespans[resources] = lifespan
        return self._lifespans[resources].value

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the event loop of this process."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        running = self._loop.create_task(coroutine, context=contextvars.copy_context())
        try:
            self._loop.run_until_complete(asyncio.wait([running]))
            return running.result()
        finally:
            # One that was not done, because the handler has stopped the loop, must not go on amid the next job.
            running.cancel()

    def _reporter(self, identity: bytes) -> Callable[[Task, Progress], None]:
        def report(task: Task, progress: Progress) -> None:
            # A child of this process that does the handler's work has no way to the worker.
            if self._channel.is_ours:
                self._channel.say(identity, Reported(progress.percent, progress.message))

        return report

    def _handler(self, job: Job) -> Handler:
        if self._app is not None:
            # Whatever the application sets up there is there for its handlers too.
            importlib.import_module(self._app)
        key = (job.module, job.name)
        if key not in self._handlers:
            target: Any = self._module(job.module)
            for part in job.name.split("."):
                target = getattr(target, part)
            # A decorated task knows its handler, with the errors that it retries; a plain function is one.
            known = getattr(target, "handler", None)
            self._handlers[key] = known if isinstance(known, Handler) else Handler(job.task_type, target)
        return self._handlers[key]

    def _module(self, name: str) -> Any:
        if name != "__main__":
            return importlib.import_module(name)
        if self._main is None:
            if self._main_file is None:
                raise ImportError(
                    "the worker's main module has no file; put isolated handlers in a module of their own"
                )
            self._main = ModuleType(_MAIN)
            self._main.__dict__.update(runpy.run_path(self._main_file, run_name=_MAIN))
        return self._main


def _not_loaded(job: Job, error: BaseException) -> Failure:
    told = failure_of(error)
    return Failure(type=told.type, message=f"the handler cannot be loaded: {told.message}", traceback=told.traceback)


def _sized(outcome: Completed | Failed | HandedBack) -> Completed | Failed | HandedBack:
    """An outcome that goes into a message."""
    if isinstance(outcome, Completed) and outcome.result is not None and len(outcome.result) > LARGEST - _ROOM:
        error = PayloadTooLarge("result", len(outcome.result), LARGEST - _ROOM)
        return Failed(failure=Failure(type="PayloadTooLarge", message=str(error)), retriable=False)
    return outcome


class _MemoryLimit:
    """A limit to the memory of this process, for a while.

    Not a generator: that would write to the error that goes through it, which may not let itself be written to.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._before = (0, 0)

    def __enter__(self) -> None:
        if self._limit is not None:
            self._before = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (self._limit, self._before[1]))

    def __exit__(self, *_: object) -> None:
        if self._limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, self._before)


def _exit(code: object) -> NoReturn:
    """Exit as `sys.exit` does, whatever threads there are."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    if code is None:
        os._exit(0)
    # It may be of a class of its own.
    os._exit(int.__and__(code, 0xFF) if derives(type(code), int) else 1)  # type: ignore[operator]


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies, where it can."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    die_with_parent()
    # A terminal's Ctrl-C or a service manager's SIGTERM to the whole group is the worker's business: it decides what
    # becomes of this process. Not SIG_IGN, which programs that a handler starts would inherit.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: None)
    hear_signals()
    CellProcess(Channel(int(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()
