"""Several worker processes under one parent, which replaces those that die."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

log = logging.getLogger("fairlead.cli")

MISUSED: Final = 2
"""The exit code of a child that another start cannot help."""

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_LONG_ENOUGH: Final = 60.0
"""A child that lived this long, in seconds, was well: the next pause is the first again."""


_PR_SET_PDEATHSIG: Final = 1


class Supervisor:
    """Keeps a number of children running until it is asked to leave."""

    def __init__(self, command: Callable[[int], Sequence[str]], count: int) -> None:
        """The command is that of the first child, the second, and so on."""
        self._command = command
        self._count = count
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._leaving = asyncio.Event()
        self._misused = False
        self._failed = False

    async def run(self) -> int:
        """Run until all children have left; the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._forward, number)
        async with asyncio.TaskGroup() as group:
            for place in range(1, self._count + 1):
                group.create_task(self._keep(place))
        if self._misused:
            return MISUSED
        return 1 if self._failed else 0

    def _forward(self, number: signal.Signals) -> None:
        """Ask every child to leave. A second signal is passed on too: it makes them hurry."""
        self._leaving.set()
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)

    async def _keep(self, place: int) -> None:
        pause = _FIRST_PAUSE
        while not self._leaving.is_set():
            started = time.monotonic()
            child = await self._start(place)
            code = await child.wait()
            del self._children[place]
            if self._leaving.is_set():
                self._failed |= code not in (0, -signal.SIGTERM, -signal.SIGINT)
                return
            if code == MISUSED:
                # It has said itself what is wrong, and the others would say the same.
                self._misused = True
                self._forward(signal.SIGTERM)
                return
            if time.monotonic() - started > _LONG_ENOUGH:
                pause = _FIRST_PAUSE
            log.warning(
                "worker process %d of %d (pid %d) %s; another starts in %g s",
                place, self._count, child.pid, _ending(code), pause,
            )  # fmt: skip
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _start(self, place: int) -> asyncio.subprocess.Process:
        # A group of its own: the terminal's Ctrl-C must reach a child once, through this process, and not twice.
        child = await asyncio.create_subprocess_exec(*self._command(place), stdin=subprocess.DEVNULL, process_group=0)
        self._children[place] = child
        log.info("worker process %d of %d is pid %d", place, self._count, child.pid)
        if self._leaving.is_set():
            child.terminate()
        return child


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def leave_with(parent: int) -> None:
    """Have this process asked to leave when its parent is gone, where the kernel can do that."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            # It was gone before the kernel was told.
            os.kill(os.getpid(), signal.SIGTERM)


def command_of(arguments: Sequence[str]) -> list[str]:
    """This program with other arguments, run by the same interpreter with the same flags."""
    return [sys.executable, *subprocess._args_from_interpreter_flags(), "-m", "fairlead", *arguments]  # type: ignore[attr-defined]
