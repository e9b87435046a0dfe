"""A child process for handlers with `isolate=True`: the handler's side.

Run as `python -m fairlead.worker.cell DESCRIPTOR`, where the descriptor is a socket to the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib
import os
import runpy
import signal
import socket
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

import msgspec

from fairlead.core.errors import InvalidTask
from fairlead.core.events import Failed
from fairlead.core.task import Failure, Progress, Task
from fairlead.worker.attempt import encode_result, failed, invalid_arguments
from fairlead.worker.context import TaskContext, enter
from fairlead.worker.handlers import Handler
from fairlead.worker.isolation import OUT_OF_MEMORY, Job, Raised, Reported, Returned, Setup, frame
from fairlead.worker.logs import start_logging
from fairlead.worker.tracing import adopt

_MAIN: Final = "__fairlead_main__"
"""The worker's main module is run under this name, so that its `if __name__ == "__main__"` does not start a worker."""

_PR_SET_PDEATHSIG: Final = 1


class Cell:
    """Runs the jobs that come over a socket, one at a time, until the socket closes."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._messages = channel.makefile("rb")
        self._handlers: dict[tuple[str, str], Handler] = {}
        self._main: ModuleType | None = None
        self._main_file: str | None = None

    def serve(self) -> None:
        setup = msgspec.msgpack.decode(self._read(), type=Setup)
        sys.path[:] = setup.path
        self._main_file = setup.main
        if setup.logs is not None:
            start_logging(setup.logs)
        decode = msgspec.msgpack.Decoder(Job).decode
        while message := self._read():
            self._channel.sendall(frame(self._answer(decode(message))))

    def _read(self) -> bytes:
        header = self._messages.read(4)
        return self._messages.read(int.from_bytes(header, "big")) if header else b""

    def _answer(self, job: Job) -> Returned | Raised:
        try:
            handler = self._handler(job)
        except Exception as error:
            failure = Failure(type=type(error).__name__, message=f"the handler cannot be loaded: {error}")
            return Raised(Failed(failure=failure))
        try:
            with _memory_limited(job.memory_limit):
                return Returned(encode_result(handler, self._call(handler, job)))
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except InvalidTask as error:
            return Raised(invalid_arguments(error))
        except Exception as error:
            return Raised(failed(handler, error))

    def _call(self, handler: Handler, job: Job) -> Any:
        arguments = handler.signature.decode(job.task.spec.parameters)
        enter(TaskContext(job.task, self._report))
        adopt(job.trace)
        if handler.is_async:
            return asyncio.run(handler.function(**arguments))
        return handler.function(**arguments)

    def _report(self, task: Task, progress: Progress) -> None:
        self._channel.sendall(frame(Reported(progress.percent, progress.message)))

    def _handler(self, job: Job) -> Handler:
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


@contextlib.contextmanager
def _memory_limited(limit: int | None) -> Iterator[None]:
    if limit is None:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


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
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        Cell(channel).serve()


if __name__ == "__main__":
    main()
