"""Long polls for the end of a task.

An end in this process is heard of at once. One in another process is found by looking, at growing pauses; all that look
at the same time share one call to the store.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Final

from fairlead.admin.engine import AdminEngine
from fairlead.core.errors import TaskNotFound
from fairlead.core.identity import TaskId
from fairlead.core.task import Task
from fairlead.engine.events.types import Happening, Occurrence
from fairlead.engine.runtime.event_loop import Batcher

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_GROWTH: Final = 1.5
_LOOKS_PER_SECOND: Final = 500
"""With very many waiting, the longest pause grows so that they do not look more often than this together."""


class Endings:
    """Waits for tasks to end, on behalf of any number of callers."""

    def __init__(self, engine: AdminEngine, stopping: asyncio.Event) -> None:
        self._engine = engine
        self._get = Batcher(engine.store.get).answers
        self._stopping = stopping
        self._waiting: dict[TaskId, set[asyncio.Future[None]]] = {}
        self._count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._watch: asyncio.Task[None] | None = None

    async def wait(self, task_id: TaskId, seconds: float) -> Task:
        """The task when it has ended, the time is up, or the server stops; raises TaskNotFound when it is not there."""
        loop = self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        deadline = loop.time() + seconds
        pause = _FIRST_PAUSE
        woken = loop.create_future()
        self._join(task_id, woken)
        try:
            while True:
                (task,) = await self._get([task_id])
                if task is None:
                    raise TaskNotFound(task_id)
                left = deadline - loop.time()
                if task.state.ended or left <= 0 or self._stopping.is_set():
                    return task
                if woken.done():
                    # It ended, and was queued again before it could be seen: go on waiting.
                    self._leave(task_id, woken)
                    woken = loop.create_future()
                    self._join(task_id, woken)
                await asyncio.wait([woken], timeout=min(pause, left))
                pause = min(pause * _GROWTH, max(_LONGEST_PAUSE, self._count / _LOOKS_PER_SECOND))
        finally:
            self._leave(task_id, woken)

    def _join(self, task_id: TaskId, woken: asyncio.Future[None]) -> None:
        self._waiting.setdefault(task_id, set()).add(woken)
        self._count += 1
        if self._watch is None:
            self._engine.observe(self._hear)
            self._watch = asyncio.get_running_loop().create_task(self._watch_stopping())

    def _leave(self, task_id: TaskId, woken: asyncio.Future[None]) -> None:
        waiting = self._waiting[task_id]
        waiting.discard(woken)
        self._count -= 1
        if not waiting:
            del self._waiting[task_id]
        if not self._waiting and self._watch is not None:
            self._engine.unobserve(self._hear)
            self._watch.cancel()
            self._watch = None

    async def _watch_stopping(self) -> None:
        await self._stopping.wait()
        for task_id in list(self._waiting):
            self._wake(task_id)

    def _hear(self, occurrence: Occurrence) -> None:
        task = occurrence.task
        if not task.state.ended and occurrence.happening is not Happening.REMOVED:
            return
        if threading.get_ident() == self._thread:
            self._wake(task.id)
        elif self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake, task.id)

    def _wake(self, task_id: TaskId) -> None:
        for woken in self._waiting.get(task_id, ()):
            if not woken.done():
                woken.set_result(None)
