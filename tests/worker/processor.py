"""A processor in virtual time: handlers in threads that compute, by turns, and nothing passes but turns.

A thread that computes gets no more than its share, whatever the machine has beside it: that is what Python's lock makes
of handlers that compute, and what many of them at once do to each other.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fairlead.core.task import Priority, Task
from fairlead.worker.handlers import HandlerPlace
from fairlead.worker.worker import WorkerSettings
from tests.worker.building import PATIENCE, Crew, eventually


class _Burner:
    """A handler that computes."""

    def __init__(self, turns: int, began: int, *, late: bool) -> None:
        self.left = turns
        self.began = began
        self.late = late
        self.over = threading.Event()


class Processor:
    """Gives a turn to each handler in turn, once all that could have begun have, of a worker with so many threads."""

    def __init__(self, at_once: int | None = None) -> None:
        self.crew = Crew()
        self._settings = WorkerSettings(thread_concurrency=at_once)
        self._slots = self._settings.capacities[HandlerPlace.THREAD]
        self.turns = 0
        self.took: list[int] = []
        """How many turns passed from the start to the end of each task, in the order in which they ended."""
        self._running: deque[_Burner] = deque()
        self._lock = threading.Lock()
        self._added = 0
        self._started_late: int | None = None
        self.crew.handle(self.burn)

    def burn(self, turns: int, late: bool = False) -> None:
        """The handler."""
        burner = _Burner(turns, self.turns, late=late)
        with self._lock:
            if late:
                self._started_late = self.turns
            self._running.append(burner)
        assert burner.over.wait(PATIENCE)

    async def add(self, count: int, turns: int, priority: Priority = Priority.MEDIUM, *, late: bool = False) -> None:
        for _ in range(count):
            await self.crew.submit("burn", parameters={"turns": turns, "late": late}, priority=priority)
        self._added += count

    async def tasks(self) -> list[Task]:
        return list(await self.crew.engine.find(limit=1_000))

    async def work(self, until: int | None = None) -> None:
        """Give turns until all has ended, or so many were given in all."""
        while len(self.took) < self._added and self.turns != until:
            await self._settled()
            self.turns += 1
            with self._lock:
                burner = self._running.popleft()
                burner.left -= 1
                if burner.left:
                    self._running.append(burner)
                else:
                    self.took.append(self.turns - burner.began)
                    burner.over.set()
        if until is None:
            # The handlers return, and what came of them is settled.
            for task in await self.tasks():
                await self.crew.until_ended(task)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """A worker that works, and leaves at the end."""
        async with self.crew.working(thread_concurrency=self._settings.thread_concurrency):
            yield

    async def start_of_a_late_one(self, at: int, priority: Priority) -> int:
        """The turn in which a task starts that is submitted in a turn."""
        await self.work(at)
        await self.add(1, 1, priority, late=True)
        await self.work()
        assert self._started_late is not None
        return self._started_late

    async def _settled(self) -> None:
        """Return when every task that there is a slot for has begun."""
        begun = min(self._slots, self._added - len(self.took))
        await eventually(lambda: len(self._running) == begun, f"that {begun} run")
