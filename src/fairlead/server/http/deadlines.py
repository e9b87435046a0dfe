"""Ends what takes too long, for many at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class DeadlinePassed(Exception):
    """There was no answer in time."""


class Deadlines:
    """The deadlines of the tasks of one event loop, of which each has one at a time.

    One timer looks after all of them: a timeout of its own for each would cost more than most of what it is for. So a
    deadline may be noticed one interval late.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._ends: dict[asyncio.Task[Any], float] = {}
        self._late: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def keep(self, answer: Awaitable[Answer], seconds: float) -> Answer:
        """An answer that is there after so many seconds; raises Late."""
        task = self.begin(time.monotonic() + seconds)
        try:
            return await answer
        except asyncio.CancelledError:
            if not self.is_late(task):
                raise
            task.uncancel()
            raise DeadlinePassed from None
        finally:
            self.end(task)

    def begin(self, end: float) -> asyncio.Task[Any]:
        """Cancel the running task at a moment of `time.monotonic`, unless it comes to its `end` before."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a deadline is that of a task")
        self._ends[task] = end
        if self._timer is None:
            self._timer = loop.call_later(self._interval, self._look)
        return task

    def is_late(self, task: asyncio.Task[Any]) -> bool:
        """Whether a task was cancelled because its deadline was over."""
        return task in self._late

    def end(self, task: asyncio.Task[Any]) -> None:
        """Have a task no deadline any more."""
        del self._ends[task]
        self._late.discard(task)

    def _look(self) -> None:
        """Cancel what is late, and look again as long as there is something to look at."""
        loop = asyncio.get_running_loop()
        now = time.monotonic()
        for task, end in self._ends.items():
            if end <= now and task not in self._late:
                self._late.add(task)
                task.cancel()
        self._timer = loop.call_later(self._interval, self._look) if self._ends else None
