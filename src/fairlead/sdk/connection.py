"""An app's way to its store: one engine for each event loop, and one for synchronous code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Sequence

from fairlead.core.settings import Settings
from fairlead.engine.clock import Clock
from fairlead.engine.engine import Engine
from fairlead.engine.inline import run_inline
from fairlead.engine.observe import Observer
from fairlead.storage.memory import MemoryStore
from fairlead.storage.opening import open_store
from fairlead.storage.protocol import Store


class Connection:
    """Opens the store when it is first used, from wherever it is used: event loops, threads, forked processes."""

    def __init__(
        self,
        url: str,
        settings: Settings,
        *,
        journal: str | None = None,
        clock: Clock | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.url = url
        self.journal = journal
        self.settings = settings
        self._clock = clock
        self._observers = observers
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._memory = MemoryStore() if url.startswith("memory:") else None
        self._inline: Engine | None = None
        self._by_loop: dict[asyncio.AbstractEventLoop, asyncio.Task[Engine]] = {}

    async def engine(self) -> Engine:
        """The engine of the running event loop."""
        loop = asyncio.get_running_loop()
        opening = self._by_loop.get(loop)
        if opening is None or (opening.done() and opening.exception() is not None):
            # One opening for all that ask at once.
            with self._lock:
                opening = self._by_loop[loop] = loop.create_task(self._open())
            await self._close_left_behind()
        return await asyncio.shield(opening)

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

    def inline(self) -> Engine:
        """The engine for synchronous code; safe for threads, and its coroutines never suspend."""
        with self._lock:
            if self._inline is None or self._process != os.getpid():
                # What a forked child inherits belongs to its parent.
                self._process = os.getpid()
                self._inline = self._engine(run_inline(self._store(blocking=True)), batching=False)
                run_inline(self._inline.follow_clock())
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

    async def _open(self) -> Engine:
        engine = self._engine(await self._store(blocking=False), batching=True)
        await engine.follow_clock()
        return engine

    async def _store(self, *, blocking: bool) -> Store:
        if self._memory is not None:
            return self._memory
        return await open_store(self.url, journal=self.journal, blocking=blocking)

    def _engine(self, store: Store, *, batching: bool) -> Engine:
        return Engine(store, self.settings, clock=self._clock, observers=self._observers, batching=batching)
