"""A worker over the memory store, with leases short enough for tests, and short words for what tests do with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from fairlead.admin.engine import AdminEngine
from fairlead.core.events import AlarmRang
from fairlead.core.identity import WorkerId
from fairlead.core.instant import MILLISECOND, SECOND, span
from fairlead.core.lifecycle import decide
from fairlead.core.retry import Backoff
from fairlead.core.settings import Defaults, Settings
from fairlead.core.submission import Submission
from fairlead.core.task import Reason, State, Task
from fairlead.engine.events.types import Happening, Occurrence
from fairlead.storage.memory import MemoryStore
from fairlead.storage.protocol import Store
from fairlead.storage.values import Change, Seen, Verdict
from fairlead.worker.handlers import Handler, Handlers
from fairlead.worker.keeper.keeper import Keeper, ThreadKeeper
from fairlead.worker.source import EngineSource
from fairlead.worker.worker import Worker, WorkerSettings

PATIENCE: Final = 60.0
"""How long anything that is waited for may take, in seconds: the machine may be busy with other things."""

SOON: Final = Backoff(initial=10 * MILLISECOND, jitter=0.0)
SETTINGS: Final = Settings(
    defaults=Defaults(backoff=SOON),
    lease=3 * SECOND,
    heartbeat=200 * MILLISECOND,
    grace=3 * SECOND,
    sweep_interval=50 * MILLISECOND,
)


async def eventually(condition: Callable[[], bool], what: str = "it") -> None:
    """Look until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come about within {PATIENCE:g} s"
        await asyncio.sleep(0.005)


class Crew:
    """A store, an engine, handlers, and any number of workers."""

    def __init__(self, settings: Settings = SETTINGS, store: Store | None = None) -> None:
        self.store = store or MemoryStore()
        self.occurrences: list[Occurrence] = []
        self.engine = AdminEngine(self.store, settings, observers=[self.occurrences.append])
        self.handlers = Handlers()

    def handle(self, function: Callable[..., Any], **options: Any) -> None:
        """Run tasks of the function's name with it."""
        self.handlers.add(Handler(function.__name__, function, **options))

    def worker(self, keeper: Keeper | None = None, **settings: Any) -> Worker:
        source = EngineSource(self.engine, WorkerId("worker-1"), ["default"], [], self.handlers.types)
        # The keeper's thread needs an engine that never suspends.
        keeping = keeper or ThreadKeeper(AdminEngine(self.store, self.engine.settings, batching=False))
        return Worker(source, self.handlers, keeping, WorkerSettings(**settings))

    @asynccontextmanager
    async def working(self, keeper: Keeper | None = None, **settings: Any) -> AsyncIterator[Worker]:
        """A worker that works, and leaves at the end."""
        worker = self.worker(keeper, **settings)
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.leave()
            worker.leave()
            await asyncio.wait_for(running, PATIENCE)

    async def submit(
        self, task_type: str, /, *, timeout: float | None = None, parameters: Any = None, **wish: Any
    ) -> Task:
        wished = Submission(
            type=task_type,
            parameters=parameters if isinstance(parameters, bytes) else msgspec.json.encode(parameters or {}),
            timeout=None if timeout is None else span(timeout),
            **wish,
        )
        return (await self.engine.submit(wished)).task

    async def until(self, task: Task, condition: State | Callable[[Task], bool]) -> Task:
        """The task as soon as it is in a state, or a condition holds of it."""
        deadline = time.monotonic() + PATIENCE
        while True:
            stored = await self.engine.get(task.id)
            if condition(stored) if callable(condition) else stored.state is condition:
                return stored
            assert time.monotonic() < deadline, f"after {PATIENCE:g} s it is {stored.status}"
            await asyncio.sleep(0.005)

    async def until_ended(self, task: Task) -> Task:
        return await self.until(task, lambda stored: stored.state.ended)

    async def lose_lease(self, task: Task) -> None:
        """Decide that the worker of a running task is lost, as a sweep does whose clock is ahead."""
        while True:
            stored = await self.engine.get(task.id)
            assert stored.state is State.EXECUTING
            lost = decide(stored, AlarmRang(), self.engine.clock.now(), rules=self.engine.settings.rules)
            change = Change(task.id, Seen(stored.status.version, stored.status.beats), lost)
            if await self.store.apply([change]) == [Verdict.APPLIED]:
                return

    def happened(self, task: Task) -> list[Happening]:
        """What happened to a task, in order."""
        return [occurrence.happening for occurrence in self.occurrences if occurrence.task.id == task.id]


def reasons(task: Task) -> list[Reason]:
    """What was decided about a task, in order."""
    return [entry.reason for entry in task.status.history]
