"""A world in virtual time, whose store's clock is set forward and back while processes work.

Hosts' clocks go on; the store's is theirs and what it was set by. A process is an engine with a sweeper, as a server or
a worker has one, and may hold tasks for as long as they take, renewing their leases as a keeper does.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from fairlead.admin.engine import AdminEngine
from fairlead.admin.sweeper import Sweeper
from fairlead.core.errors import StoreUnavailable, WorkerNotFound
from fairlead.core.events import Completed
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.instant import SECOND, Instant, Span
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission
from fairlead.core.task import Task
from fairlead.engine.engine import Settlement
from fairlead.engine.runtime.clock import FollowingClock, ManualClock
from fairlead.storage.memory import MemoryStore
from fairlead.storage.values import Beat, Claim, Pulse

TICK: Final[Span] = SECOND


class SteppingStore(MemoryStore):
    """A memory store with a clock of its own, as a server has, that can be set."""

    def __init__(self, host: ManualClock) -> None:
        super().__init__(self.now)
        self._host = host
        self._set_by: Span = 0
        self.run = "the first"
        self.is_away = False
        """Whether it shows the time, and does nothing else."""

    async def clocks(self) -> dict[str, Instant]:
        return {self.run: self.now()}

    async def extend(
        self, beats: Sequence[Beat], *, lease: Span, grace: Span, now: Instant | None = None
    ) -> list[Pulse]:
        self._be_there()
        return await super().extend(beats, lease=lease, grace=grace, now=now)

    async def claim(self, claim: Claim) -> list[Task]:
        self._be_there()
        return await super().claim(claim)

    async def due(self, now: Instant | None, limit: int, after: tuple[Instant, TaskId] | None = None) -> list[Task]:
        self._be_there()
        return await super().due(now, limit, after)

    def _be_there(self) -> None:
        if self.is_away:
            raise StoreUnavailable("the store is away")

    def now(self) -> Instant:
        return self._host.now() + self._set_by

    async def time(self) -> Instant | None:
        return self.now()

    def step(self, by: Span) -> None:
        """Set its clock."""
        self._set_by += by


class Process:
    """An engine that sweeps; what it holds, it works on for as long as it lives."""

    def __init__(self, world: World, name: str, capacity: int, settings: Settings) -> None:
        self._world = world
        self._capacity = capacity
        self.engine = AdminEngine(
            world.store,
            settings,
            clock=FollowingClock(world.host),
            chance=random.Random(name),
        )
        self.sweeper = Sweeper(self.engine)
        self.worker = WorkerId(name)
        self._held: dict[TaskId, tuple[Task, Span, Span]] = {}
        """Each task, when it will be done and when it was last renewed, by the host's monotonic clock."""
        self._beat_at: Span = 0

    async def start(self) -> None:
        await self.engine.follow_clock()
        if self._capacity:
            await self._join()

    async def _join(self) -> None:
        await self.engine.worker_records.register(self.worker, queues=["default"], capacity=self._capacity)

    async def tick(self) -> None:
        """What a process does in a moment; a store that is away is asked again in the next one."""
        with contextlib.suppress(StoreUnavailable):
            await self.sweeper.turn()
        with contextlib.suppress(StoreUnavailable):
            await self._work()
        if self._capacity and self._world.host.monotonic() - self._beat_at >= self.engine.settings.heartbeat:
            self._beat_at = self._world.host.monotonic()
            try:
                await self.engine.worker_records.beat(self.worker, running=len(self._held))
            except WorkerNotFound:
                await self._join()

    async def _work(self) -> None:
        now = self._world.host.monotonic()
        for task, done_at, renewed_at in list(self._held.values()):
            if now >= done_at:
                del self._held[task.id]
                await self.engine.settle([Settlement(task, Completed())])
            elif now - renewed_at >= self.engine.settings.heartbeat and task.status.lease is not None:
                await self.engine.heartbeat([Beat(task.id, task.status.lease.token)])
                self._held[task.id] = task, done_at, now
        if len(self._held) < self._capacity:
            for task in await self.engine.claim(self.worker, ["default"], limit=self._capacity - len(self._held)):
                self._held[task.id] = task, now + self._world.takes(task), now


class World:
    """The store, the processes, and time."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.host = ManualClock()
        self.store = SteppingStore(self.host)
        self.settings = settings or Settings()
        self.processes: dict[str, Process] = {}
        self._spans: dict[TaskId, Span] = {}

    async def start(self, *names: str, capacity: int = 0, settings: Settings | None = None) -> None:
        """Start processes; those with a capacity are workers. Settings of their own may differ from those of others."""
        for name in names:
            process = self.processes[name] = Process(self, name, capacity, settings or self.settings)
            await process.start()

    def kill(self, name: str) -> None:
        """A process is gone, and what it holds with it."""
        del self.processes[name]

    async def submit(self, count: int, takes: Span, **wish: Any) -> list[TaskId]:
        """Tasks that take so long, submitted by any of the processes."""
        engine = next(iter(self.processes.values())).engine
        ids: list[TaskId] = []
        for _ in range(count):
            task = (await engine.submit(Submission(**({"type": "work"} | wish)))).task
            self._spans[task.id] = takes
            ids.append(task.id)
        return ids

    def takes(self, task: Task) -> Span:
        return self._spans.get(task.id, 0)

    async def live(self, span: Span) -> None:
        """Let time pass, and all processes work meanwhile."""
        await self.live_until(lambda: False, span)

    async def live_until(self, over: Callable[[], bool], most: Span) -> Span:
        """The same until it is over, or for so long at most; how long it took."""
        begun = self.host.monotonic()
        while self.host.monotonic() - begun < most and not over():
            for process in list(self.processes.values()):
                await process.tick()
            self.host.advance(TICK)
        return self.host.monotonic() - begun

    async def tasks(self, ids: list[TaskId]) -> list[Task]:
        return [task for task in await self.store.get(ids) if task is not None]
