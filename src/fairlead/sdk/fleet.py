"""What an app's owner does with its workers, from asynchronous and from synchronous code."""

from __future__ import annotations

from collections.abc import Callable

from fairlead.core.instant import span
from fairlead.engine.fleet import WorkerReport
from fairlead.engine.inline import run_inline
from fairlead.engine.presence import WorkerPresence
from fairlead.engine.scaling import Scaling
from fairlead.sdk.connection import Link


class AppWorkers:
    """The workers of an app, wherever they run."""

    def __init__(self, connect: Callable[[], Link]) -> None:
        self._connect = connect

    async def all(self) -> list[WorkerPresence]:
        """All workers by id; one that is dead is there for an hour."""
        return await (await self._connect().engine()).workers.all()

    async def get(self, named: str) -> WorkerReport:
        """One worker, by its id or its name, what it runs, and what became of the tasks that it lost."""
        return await (await self._connect().engine()).workers.get(named)

    async def drain(self, named: str) -> WorkerPresence:
        """Have a worker take no more tasks, and leave when what it runs has ended."""
        return await (await self._connect().engine()).workers.drain(named)

    async def autoscale(
        self, queue: str | None = None, *, within: float = 60.0, capacity: int | None = None
    ) -> Scaling:
        """How much work waits in a queue, or in all, and how many workers work it off within so many seconds."""
        return await (await self._connect().engine()).autoscale(queue, within=span(within), capacity=capacity)

    def all_sync(self) -> list[WorkerPresence]:
        """`all`, from synchronous code."""
        return run_inline(self._connect().inline().workers.all())

    def get_sync(self, named: str) -> WorkerReport:
        """`get`, from synchronous code."""
        return run_inline(self._connect().inline().workers.get(named))

    def autoscale_sync(self, queue: str | None = None, *, within: float = 60.0, capacity: int | None = None) -> Scaling:
        """`autoscale`, from synchronous code."""
        return run_inline(self._connect().inline().autoscale(queue, within=span(within), capacity=capacity))

    def drain_sync(self, named: str) -> WorkerPresence:
        """`drain`, from synchronous code."""
        return run_inline(self._connect().inline().workers.drain(named))
