"""The soft timeout: `SoftTimeout` is raised within a handler, which may then end in its own way."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Final, Self

from fairlead.core.retry import SoftTimeout


def with_soft_timeout(function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    """A handler in which `SoftTimeout` is raised after so many seconds: at its `await`, or in its thread."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def limited(**arguments: Any) -> Any:
            return await _Limited(function(**arguments), seconds)

        return limited

    @functools.wraps(function)
    def limited_in_thread(**arguments: Any) -> Any:
        with _ThreadTimer(seconds):
            return function(**arguments)

    return limited_in_thread


class _Limited:
    """A coroutine, into which `SoftTimeout` is thrown once, where it waits then."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], seconds: float) -> None:
        self._coroutine = coroutine
        self._seconds = seconds
        self._task: asyncio.Task[Any] | None = None
        self._is_due = False

    def __await__(self) -> Generator[Any, Any, Any]:
        self._task = asyncio.current_task()
        timer = asyncio.get_running_loop().call_later(self._seconds, self._ring)
        value: Any = None
        error: BaseException | None = None
        try:
            while True:
                try:
                    waits_for = self._coroutine.send(value) if error is None else self._coroutine.throw(error)
                except StopIteration as end:
                    return end.value
                value, error = None, None
                try:
                    value = yield waits_for
                except BaseException as thrown:
                    error = self._meant(thrown)
        finally:
            timer.cancel()
            self._coroutine.close()

    def _ring(self) -> None:
        """Wake the task, as a cancel does: it is no one's but ours."""
        if self._task is not None:
            self._is_due = True
            self._task.cancel()

    def _meant(self, thrown: BaseException) -> BaseException:
        """What is thrown into the coroutine: our own cancel is the soft timeout, unless somebody else cancels, too."""
        if not self._is_due or self._task is None or not isinstance(thrown, asyncio.CancelledError):
            return thrown
        self._is_due = False
        return thrown if self._task.uncancel() else SoftTimeout()


class _ThreadTimer:
    """Raises `SoftTimeout` in the thread that enters it, unless that leaves before."""

    def __init__(self, seconds: float) -> None:
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._left = False
        self._rang = False
        self._timer = threading.Timer(seconds, self._ring)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._left = True
            if self._rang and error is None:
                # It may be on its way still, and would hit whatever the thread does next.
                _raise_in(self._thread, None)

    def _ring(self) -> None:
        with self._lock:
            if not self._left:
                self._rang = True
                _raise_in(self._thread, SoftTimeout)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Have an error raised in a thread at its next step, or none that was to be."""
    import ctypes  # Most workers have no soft timeout.

    raised: Final = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)
