"""Threads for `def` handlers.

Daemon threads of our own rather than an executor: a handler that never returns must not keep the process from leaving,
and a thread is started only when all others are busy.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any


class Threads:
    """Runs functions in threads, as many at once as are asked for."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads = 0

    def run(
        self, function: Callable[[], Any], context: contextvars.Context, on_return: Callable[[], None]
    ) -> asyncio.Future[Any]:
        """The future of a function's result.

        `on_return` is called in the loop when the thread is free again: after the future's end if that was cancelled.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def work() -> None:
            result, error = None, None
            try:
                result = context.run(function)
            except BaseException as raised:
                error = raised
            if not loop.is_closed():
                loop.call_soon_threadsafe(finish, result, error)

        def finish(result: Any, error: BaseException | None) -> None:
            on_return()
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                # A future refuses StopIteration, and SystemExit would take the loop down.
                future.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))

        self._work.put(work)
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._threads += 1
                name = f"fairlead-handler-{self._threads}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
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
