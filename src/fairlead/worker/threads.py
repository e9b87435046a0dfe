"""Threads for `def` handlers.

Daemon threads of our own rather than an executor: a handler that never returns must not keep the process from leaving,
and a thread is started only when all others are busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from fairlead.worker.isolation.fork_guard import Birthplace


class ThreadResult(Struct, frozen=True):
    """A function returned."""

    result: Any


class Raised(Struct, frozen=True):
    """A function raised. Said as a value: a future refuses StopIteration, and SystemExit would take the loop down."""

    error: BaseException


class Threads:
    """Runs functions in threads, as many at once as are asked for."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads = 0

    def run(
        self, function: Callable[[], Any], context: contextvars.Context, on_return: Callable[[], None]
    ) -> asyncio.Future[ThreadResult | Raised]:
        """The future of how a function ends.

        `on_return` is called in the loop when the thread is free again: after the future's end if that was cancelled.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ThreadResult | Raised] = loop.create_future()
        birthplace = Birthplace()

        def work() -> None:
            end: ThreadResult | Raised
            try:
                end = ThreadResult(context.run(function))
            except BaseException as error:
                end = Raised(error)
            birthplace.stay()
            # A loop that was closed meanwhile has no one left who waits.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(finish, end)

        def finish(end: ThreadResult | Raised) -> None:
            on_return()
            if not future.done():
                future.set_result(end)

        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                # Before the work is put in line: if no thread can be started, nobody shall find the work there later.
                name = f"fairlead-handler-{self._threads + 1}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
                self._threads += 1
        self._work.put(work)
        return future

    def close(self) -> None:
        """Let idle threads go, and busy ones when they return."""
        for _ in range(self._threads):
            self._work.put(None)

    def _serve(self) -> None:
        while work := self._work.get():
            work()
            with self._lock:
                self._idle += 1
