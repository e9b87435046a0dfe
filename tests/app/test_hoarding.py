"""Workers that are idle share what comes: none takes all of it before the others have had a look."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

import pytest

from fairlead import Fairlead
from fairlead.app.task_type import CoroutineTask
from fairlead.core.task import State, Task
from fairlead.storage.values import Filter
from fairlead.worker.source import EngineSource, Source
from fairlead.worker.worker import Worker
from tests.servers.stores import Place
from tests.worker.building import PATIENCE, eventually

TASKS = 60


class Turns:
    """Who may claim: in a round, all who have been given tasks in each round before it.

    So long as it takes one of them to get to a store, or to be given the processor, the others wait for it: what each
    ends up with depends on what they ask for, and not on how busy the machine is.
    """

    def __init__(self) -> None:
        self._given: dict[Source, int] | None = None
        self._changed = asyncio.Condition()

    async def begin(self, sources: Collection[Source]) -> None:
        async with self._changed:
            self._given = dict.fromkeys(sources, 0)

    async def end(self) -> None:
        """Let all claim when they please, as before the beginning."""
        async with self._changed:
            self._given = None
            self._changed.notify_all()

    async def come_to(self, source: Source) -> None:
        """Return when it is this one's turn."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._given is None or self._given[source] <= min(self._given.values())
            )

    async def note(self, source: Source, tasks: Sequence[Task] | None) -> None:
        """Who was given nothing has yet to have its turn: there was nothing, or nothing any more."""
        async with self._changed:
            if self._given is not None and tasks:
                self._given[source] += 1
                self._changed.notify_all()


class InTurn(EngineSource):
    """A source whose worker claims when it is its turn."""

    def __init__(self, source: EngineSource, turns: Turns) -> None:
        super().__init__(source._engine, source._worker, source._queues, source._capabilities, source._types)
        self._turns = turns

    async def claim(self, limit: int, types: frozenset[str] | None = None) -> list[Task]:
        await self._turns.come_to(self)
        tasks = await super().claim(limit, types)
        await self._turns.note(self, tasks)
        return tasks

    async def wait(self, limit: int, timeout: float) -> list[Task] | None:
        tasks = await super().wait(limit, timeout)
        await self._turns.note(self, tasks)
        return tasks


class Fleet:
    """Workers with stores of their own, but for the memory store, whose tasks hold their slots until they are let."""

    def __init__(self, place: Place, count: int) -> None:
        own = 1 if place.url == "memory://" else count
        self.apps = [Fairlead(place.url, journal=place.journal) for _ in range(own)]
        self.workers: list[Worker] = []
        self.released = asyncio.Event()
        self._turns = Turns()
        self._tasks = [self._declare(app) for app in self.apps]
        self._count = count

    def _declare(self, app: Fairlead) -> CoroutineTask[[], None]:
        @app.task
        async def hold() -> None:
            await self.released.wait()

        return hold

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """All work, and leave at the end."""
        for number in range(self._count):
            worker = await self.apps[number % len(self.apps)].worker(keeper_process=False)
            assert isinstance(worker._source, EngineSource)
            worker._source = InTurn(worker._source, self._turns)
            self.workers.append(worker)
        running = [asyncio.create_task(worker.run()) for worker in self.workers]
        try:
            yield
        finally:
            self.released.set()
            await self._turns.end()
            for worker in self.workers:
                worker.leave()
            await asyncio.wait_for(asyncio.gather(*running), PATIENCE)
            for app in self.apps:
                await app.close()

    async def submit(self, count: int) -> None:
        task = self._tasks[0]
        await task.submit_many([task.call() for _ in range(count)])

    async def warm_up(self) -> None:
        """Have some tasks run, and return when all workers are idle; from then on they claim in turn."""
        self.released.set()
        await self.submit(TASKS)
        await self._until_all_are(State.COMPLETED)
        await eventually(lambda: all(worker._slots.are_idle for worker in self.workers))
        self.released.clear()
        await self._turns.begin([worker._source for worker in self.workers])

    async def shares(self) -> list[int]:
        """How many of the tasks each worker runs, once all of them run."""
        running = await self._until_all_are(State.EXECUTING)
        holders = Counter(task.status.lease.worker for task in running if task.status.lease is not None)
        return sorted([*holders.values()] + [0] * (self._count - len(holders)))

    async def _until_all_are(self, state: State) -> list[Task]:
        """As many tasks as were submitted, as soon as they are in a state."""
        engine = await self.apps[0].store_connection().engine()
        async with asyncio.timeout(PATIENCE):
            while True:
                found = await engine.find(Filter(states=frozenset({state})), limit=2 * TASKS)
                if len(found) == TASKS:
                    return found
                await asyncio.sleep(0.005)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("place", ["memory", "sqlite", "redis"], indirect=True)
async def test_idle_workers_share_what_comes_all_at_once(place: Place, count: int) -> None:
    fleet = Fleet(place, count)
    async with fleet.working():
        # What is only done once, such as opening a connection, is no part of it.
        await fleet.warm_up()
        await fleet.submit(TASKS)
        shares = await fleet.shares()
    even = TASKS / count
    assert all(even / 2 <= share <= even * 2 for share in shares), shares
