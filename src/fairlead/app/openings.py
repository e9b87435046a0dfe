"""Engines that are opened when they are first used, one for each event loop and one for synchronous code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from typing import Generic, TypeVar

from fairlead.admin.facade import Facade
from fairlead.engine.runtime.inline import run_inline

E = TypeVar("E", bound=Facade)


class Openings(Generic[E]):
    """Opens engines when they are first used, from wherever that is: event loops, threads, forked processes."""

    patience: float | None = None
    """How long to wait for a result if nobody says so, in seconds; None for as long as it takes."""

    def __init__(self, url: str, journal: str | None = None) -> None:
        self.url = url
        self.journal = journal
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._inline: E | None = None
        self._by_loop: dict[asyncio.AbstractEventLoop, asyncio.Task[E]] = {}

    async def engine(self) -> E:
        """The engine of the running event loop."""
        loop = asyncio.get_running_loop()
        opening = self._by_loop.get(loop)
        if opening is None or (opening.done() and opening.exception() is not None):
            # One opening for all that ask at once.
            with self._lock:
                opening = self._by_loop[loop] = loop.create_task(self._open())
            await self._close_left_behind()
        # What is open already needs no waiting, which costs more than asking.
        return opening.result() if opening.done() else await asyncio.shield(opening)

    async def _close_left_behind(self) -> None:
        """Close what was opened in event loops that have ended: synchronous programs may run one for every call."""
        with self._lock:
            ended = [loop for loop in self._by_loop if loop.is_closed()]
            openings = [self._by_loop.pop(loop) for loop in ended]
        for opening in openings:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                # A store may need its own loop to be closed in good order; then the kernel closes what it held.
                with contextlib.suppress(Exception):
                    await opening.result().close()

    def inline(self) -> E:
        """The engine for synchronous code; safe for threads, and its coroutines never suspend."""
        if (inline := self._inline) is not None and self._process == os.getpid():
            return inline
        with self._lock:
            if self._inline is None or self._process != os.getpid():
                # What a forked child inherits belongs to its parent. Whose it is now is said last, for it is read
                # without the lock.
                self._inline = self._open_inline()
                self._process = os.getpid()
            return self._inline

    async def close(self) -> None:
        """Close the engine of the running event loop and the one for synchronous code."""
        with self._lock:
            opening = self._by_loop.pop(asyncio.get_running_loop(), None)
        if opening is not None:
            await (await opening).close()
        self.close_inline()

    def close_inline(self) -> None:
        """Close the engine for synchronous code."""
        with self._lock:
            if self._inline is not None and self._process == os.getpid():
                run_inline(self._inline.close())
            self._inline = None

    async def _open(self) -> E:
        raise NotImplementedError

    def _open_inline(self) -> E:
        raise NotImplementedError
