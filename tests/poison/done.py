"""Poisons: what handlers do to the process that they run in."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

from fairlead import current_task
from tests.poison.table import Awaited, poison


@poison
def closes_all_descriptors() -> Any:
    os.closerange(3, 4_096)
    time.sleep(0.2)
    return "closed"


@poison
def leaves_threads() -> Any:
    for daemon in (True, False):
        threading.Thread(target=time.sleep, args=(3_600,), daemon=daemon).start()
    return "left"


@poison
def swallows_cancel() -> Any:
    async def stubborn() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3_600)

    return Awaited(stubborn())


@poison
def blocks() -> Any:
    time.sleep(6)
    return "late"


@poison
def exits() -> NoReturn:
    os._exit(7)


@poison
def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@poison
def aborts() -> None:
    os.abort()


@poison
def traces() -> Any:
    sys.settrace(lambda *_: 1 / 0)  # type: ignore[arg-type]
    return "traced"


@poison
def traces_and_raises() -> NoReturn:
    sys.settrace(lambda *_: 1 / 0)  # type: ignore[arg-type]
    raise ValueError("traced")


@poison
def profiles() -> Any:
    sys.setprofile(lambda *_: 1 / 0)
    return "profiled"


@poison
def changes_signal_handlers() -> Any:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    return "deaf"


@poison
def changes_folder() -> Any:
    os.chdir("/")
    return "moved"


@poison
def closes_stdout() -> Any:
    sys.stdout.close()
    return "silent"


@poison
def replaces_streams() -> Any:
    sys.stdout = sys.stderr = None
    return "replaced"


@poison
def stops_the_loop() -> Any:
    async def stop() -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
        return "went on"

    return Awaited(stop())


@poison
def closes_the_loop() -> Any:
    async def close() -> None:
        asyncio.get_running_loop().close()

    return Awaited(close())


@poison
def exits_in_a_task() -> Any:
    async def leave() -> NoReturn:
        raise SystemExit(4)

    async def wait() -> None:
        await asyncio.create_task(leave())

    return Awaited(wait())


@poison
def cancels_itself() -> Any:
    async def cancel() -> None:
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        await asyncio.sleep(3_600)

    return Awaited(cancel())


@poison
def deletes_its_module() -> Any:
    del sys.modules[Awaited.__module__]
    return "deleted"


@poison
def forks() -> Any:
    """The child falls out of the handler, with another result."""
    return "child" if os.fork() == 0 else "parent"


@poison
def forks_and_awaits() -> Any:
    async def fork() -> str:
        child = os.fork()
        await asyncio.sleep(0.05)
        return "child" if child == 0 else "parent"

    return Awaited(fork())


@poison
def forks_and_raises() -> Any:
    if os.fork() == 0:
        raise ValueError("of the child")
    return "parent"


@poison
def forks_and_reports() -> Any:
    if os.fork() == 0:
        current_task().progress(99, "of the child")
        os._exit(0)
    return "parent"


@poison
def forks_and_leaves_a_child() -> Any:
    if os.fork() == 0:
        time.sleep(20)
        os._exit(0)
    return "parent"


@poison
def uses_processes() -> Any:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(abs, [-1, -2])


@poison
def writes_to_every_descriptor() -> Any:
    """As a program does that mistakes one descriptor for another."""
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"{}\n" * 20)
    time.sleep(0.2)
    return "written"


@poison
def prints() -> Any:
    print("said by a handler", flush=True)
    return "printed"


@poison
def closes_the_standard_streams() -> Any:
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    return "closed"


@poison
def sets_a_timeout_for_all_sockets() -> Any:
    socket.setdefaulttimeout(20)
    return "set"


@poison
def lowers_the_recursion_limit() -> Any:
    sys.setrecursionlimit(100)
    return "low"


@poison
def makes_warnings_errors() -> Any:
    warnings.simplefilter("error")
    return "strict"


class Away(logging.Handler):
    """Ships lines to a server that is away."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ConnectionError("the log server is away")


@poison
def breaks_the_log() -> Any:
    """And has the worker say something in it."""

    async def stubborn() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3_600)

    logging.getLogger().addHandler(Away())
    return Awaited(stubborn())


@poison
def clears_the_environment() -> Any:
    os.environ.clear()
    return "clear"


@poison
def stops_collecting_garbage() -> Any:
    gc.disable()
    gc.freeze()
    return "stopped"


@poison
def hears_no_signals() -> Any:
    signal.set_wakeup_fd(-1)
    return "deaf"


@poison
def hangs_at_the_exit() -> Any:
    atexit.register(time.sleep, 3_600)
    return "later"


@poison
def leaves_an_executor() -> Any:
    """Its threads are daemons where this one is, and waited for at the exit all the same."""
    ThreadPoolExecutor().submit(time.sleep, 3_600)
    return "left"


@poison
def leaves_a_task() -> Any:
    async def forever() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3_600)

    async def leave() -> str:
        kept.append(asyncio.create_task(forever()))
        return "left"

    return Awaited(leave())


kept: list[asyncio.Task[None]] = []


@poison
def exits_in_a_callback() -> Any:
    async def wait() -> str:
        asyncio.get_running_loop().call_soon(sys.exit, 3)
        await asyncio.sleep(0.05)
        return "went on"

    return Awaited(wait())


@poison
def forks_in_a_task() -> Any:
    async def fork() -> bool:
        return os.fork() == 0

    async def wait() -> str:
        (is_child,) = await asyncio.gather(fork())
        await asyncio.sleep(0.05)
        return "child" if is_child else "parent"

    return Awaited(wait())


@poison
def forks_in_a_callback() -> Any:
    async def wait() -> str:
        asyncio.get_running_loop().call_soon(os.fork)
        await asyncio.sleep(0.3)
        return "parent"

    return Awaited(wait())


@poison
def forks_past_python() -> Any:
    return "child" if ctypes.PyDLL(None).fork() == 0 else "parent"


@poison
def forks_twice() -> Any:
    """As a daemon is made, whose grandchild falls out of the handler."""
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        return "daemon"
    return "parent"


@poison
def becomes_a_daemon() -> Any:
    """The process itself leaves, and its grandchild falls out of the handler."""
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    return "daemon"


@poison
def becomes_another_program() -> NoReturn:
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(5)"])


@poison
def segfaults() -> None:
    ctypes.string_at(0)


@poison
def stops_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)
