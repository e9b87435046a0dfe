"""Tenancy: an engine as a caller sees it whose key is bound to a tenant.

To such a caller the store holds its tenant's tasks and nothing else: what is another's is not there, under its id as
under any other. What cannot be told apart by tenant, such as how a queue stands that several share, is refused with the
remedy. To a caller whose key is bound to none, with the tenant None, it is the engine itself.

There is no way from here to the engine: what is not an operation of these classes cannot be asked.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from fairlead.admin.engine import AdminEngine
from fairlead.admin.tenant_records import TenantOperations, TenantSchedules
from fairlead.admin.tenants.service import Tenants
from fairlead.admin.types.service import Types
from fairlead.admin.workers.service import Workers
from fairlead.core.dead_letters import Groups
from fairlead.core.errors import (
    FairleadError,
    Forbidden,
    InvalidTask,
    LeaseLost,
    TaskNotFound,
)
from fairlead.core.explain.explanation import Explanation
from fairlead.core.health.autoscale import WITHIN, Scaling
from fairlead.core.identity import TaskId, WorkerId, parse_task_id
from fairlead.core.instant import Span
from fairlead.core.query.query import EVERYTHING, Query, term
from fairlead.core.queues.queue import QueueSettings
from fairlead.core.submission import Submission
from fairlead.core.task import Priority, State, Task
from fairlead.core.tenancy import UNBOUND
from fairlead.engine.dependencies import shown_to, unknown_parent
from fairlead.engine.engine import Settlement
from fairlead.engine.metrics.throughput import Throughput
from fairlead.engine.search import Found
from fairlead.engine.stats import Stats, worker_stats
from fairlead.engine.worker_tasks import leased_tasks
from fairlead.storage.values import Beat, Filter, Pulse

_SHOWN: Final = 64
_FIRST: Final = "8000" + "8000" + "0" * 12
_LAST: Final = "8fff" + "bfff" + "f" * 12
"""What the least and the greatest task id of a millisecond end with."""


class TenantEngine:
    """What one caller can do with an engine."""

    def __init__(self, engine: AdminEngine, tenant: str | None) -> None:
        self._engine = engine
        self._tenant = tenant

    @property
    def tenant(self) -> str | None:
        """The tenant that the caller is bound to."""
        return self._tenant

    @property
    def schedules(self) -> TenantSchedules:
        """The schedules whose tasks are the tenant's."""
        return TenantSchedules(self._engine, self._tenant)

    @property
    def operations(self) -> TenantOperations:
        """The operations on the tenant's tasks."""
        return TenantOperations(self._engine, self._tenant)

    @property
    def types(self) -> Types:
        """The task types that are published for the tenant."""
        return self._engine.types.of(self._tenant)

    @property
    def workers(self) -> Workers:
        """The workers that keys of the tenant have registered."""
        return Workers(self._engine.records, self._engine.clock, self._engine.worker_records, self._tenant)

    @property
    def tenants(self) -> Tenants:
        """The shares that the tenant has of queues."""
        return Tenants(self._engine.store, self._engine.queue_cache, self._engine.clock, self._tenant)

    # Tasks

    def get(self, task_id: TaskId) -> Coroutine[Any, Any, Task]:
        """The task with this id."""
        return self._engine.get(task_id) if self._tenant is None else self._get_own(task_id)

    async def _get_own(self, task_id: TaskId) -> Task:
        return self._seen(await self._engine.get(task_id))

    async def get_many(self, ids: Sequence[TaskId]) -> list[Task | None]:
        """The tasks with these ids, in their order; None for what is not there."""
        found = await self._engine.store.get(ids) if ids else []
        return [task if task is not None and self._sees(task) else None for task in found]

    def told(self, tasks: Sequence[Task]) -> Coroutine[Any, Any, list[Task]]:
        """The tasks as they are told of: without the names of others' tasks that they wait for."""
        return shown_to(self._engine.store, tasks, self._tenant)

    async def find(
        self, matching: Filter, *, limit: int, newest_first: bool = True, after: TaskId | None = None
    ) -> Found:
        """One page of the tasks that a filter admits; its cursor is that of a search."""
        if self._tenant is not None:
            return await self.search(EVERYTHING, within=matching, limit=limit, newest_first=newest_first, after=after)
        # One more than wanted tells whether there is a next page.
        found = await self._engine.find(matching, limit=limit + 1, newest_first=newest_first, after=after)
        return Found(found[:limit], found[limit - 1].id if len(found) > limit else None)

    async def search(
        self,
        query: Query,
        *,
        within: Filter | None = None,
        limit: int,
        newest_first: bool = True,
        after: TaskId | None = None,
    ) -> Found:
        """One page of the tasks that a query means, of those that a filter admits."""
        found = await self._engine.search(
            self._own(query), within=within, limit=limit, newest_first=newest_first, after=after
        )
        if self._tenant is None:
            return found
        return replace(found, tasks=await self.told(found.tasks), cursor=_blurred(found, newest_first=newest_first))

    async def explain(self, task_id: TaskId) -> Explanation:
        """Why a task waits, or ran when it ran; others appear as numbers at most."""
        await self.get(task_id)
        return await self._engine.explain(task_id, self._tenant)

    async def cancel(self, task_id: TaskId) -> Task:
        """Cancel a waiting task at once; ask the worker of an executing one to stop."""
        await self.get(task_id)
        return await self._engine.cancel(task_id)

    async def replay(self, task_id: TaskId, *, reset_retries: bool = True, priority: Priority | None = None) -> Task:
        """Queue an ended task again."""
        await self.get(task_id)
        return await self._engine.replay(task_id, reset_retries=reset_retries, priority=priority)

    async def discard(self, task_id: TaskId) -> Task:
        """Remove an ended task; the answer is how it stood."""
        await self.get(task_id)
        return await self._engine.discard(task_id)

    async def groups(self, query: Query, *, within: Filter | None = None) -> Groups:
        """The dead letters that a query means, grouped."""
        return await self._engine.dead_letters.groups(self._own(query), within=within)

    async def count_dead_letters(self, query: Query, *, within: Filter | None = None) -> int | None:
        """How many dead letters a query means; None if that takes too long to count."""
        return await self._engine.dead_letters.total(self._own(query), within=within)

    # Submits

    async def awaitable(self, wishes: Sequence[Submission | None]) -> list[FairleadError | None]:
        """Why a wish cannot wait for what it names in `after`: to the caller, what is another's is not stored."""
        refusals: list[FairleadError | None] = [None] * len(wishes)
        if self._tenant is None:
            return refusals
        named = {one: list(_named(wish)) for one, wish in enumerate(wishes) if wish is not None and wish.after}
        ids = sorted({task_id for each in named.values() for task_id in each})
        found = await self._engine.store.get(ids) if ids else []
        hidden = {task.id for task in found if task is not None and not self._sees(task)}
        for position, each in named.items():
            if lost := hidden.intersection(each):
                refusals[position] = unknown_parent(min(lost))
        return refusals

    # Queues and counts

    async def check_queues(self, queues: Iterable[str]) -> None:
        """Refuse a caller who is bound to a tenant and asks for what is not in queues that are bound to it.

        The answer is the same whether such a queue is another's, anybody's or not there at all.
        """
        if self._tenant is None:
            return
        own = await self._own_queues()
        for queue in queues:
            if queue not in own:
                raise Forbidden(
                    f"the queue {queue[:_SHOWN]!r} is not bound to the tenant of this key",
                    f"name one that is, or have an admin bind it with `fairlead queues set {queue[:_SHOWN]} --tenant "
                    f"{self._tenant}`",
                    "queue",
                    queue[:_SHOWN],
                )

    async def queues(self) -> dict[str, QueueSettings]:
        """The settings of the queues that have any of their own, by name; of a tenant, of those bound to it."""
        found = await self._engine.queues.all()
        if self._tenant is None:
            return found
        return {name: each for name, each in found.items() if each.tenant == self._tenant}

    async def queue(self, name: str) -> QueueSettings:
        """The settings of one queue."""
        await self.check_queues([name])
        return await self._engine.queues.get(name)

    async def paused_types(self, stats: Stats) -> list[str]:
        """The task types that are paused; to a tenant, those that are ready in the queues of these stats."""
        paused = await self._engine.queues.paused_types()
        return paused if self._tenant is None else _ready_types(paused, stats)

    async def narrowed(self, stats: Stats) -> Stats:
        """How those queues stand that are bound to the caller's tenant, given how all stand; refused if none is."""
        if self._tenant is None:
            return stats
        own = await self.counted_queues()
        queues = {
            name: replace(each, unserved=each.unserved.for_tenant())
            for name, each in stats.queues.items()
            if name in own
        }
        workers = await self.workers.all()
        shown = Stats(
            queues=queues,
            states={state: sum(each.states[state] for each in queues.values()) for state in State},
            next_alarm=None,
            workers=worker_stats(workers),
            # The sum over processes has everybody's tasks in it; over the tenant's workers, its own.
            throughput=Throughput(
                completed=sum(worker.completed for worker in workers), failed=sum(worker.failed for worker in workers)
            ),
            at=stats.at,
        )
        return replace(shown, paused_types=tuple(_ready_types(stats.paused_types, shown)))

    async def autoscale(
        self, queue: str | None = None, *, within: Span = WITHIN, capacity: int | None = None
    ) -> Scaling:
        """How much one queue has to do, or all that there are for the caller, and how many workers that takes."""
        if self._tenant is None:
            return await self._engine.autoscale(queue, within=within, capacity=capacity)
        if queue is not None:
            await self.check_queues([queue])
        own = await self.counted_queues()
        return await self._engine.autoscale(queue, within=within, capacity=capacity, queues=own)

    # Workers

    async def heartbeat(self, beats: Sequence[Beat]) -> list[Pulse]:
        """Renew leases and report progress; a lease on what is not there is lost."""
        return await self._beat(beats, renew=True)

    async def look(self, beats: Sequence[Beat]) -> list[Pulse]:
        """What a heartbeat would learn, without renewing anything."""
        return await self._beat(beats, renew=False)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Task | LeaseLost]:
        """Say how attempts ended; the answer is how each task stands now, or that its lease is lost."""
        own = [said for said in settlements if self._sees(said.task)]
        settled = iter(await self._engine.settle(own) if own else [])
        return [next(settled) if self._sees(said.task) else LeaseLost(said.task.id) for said in settlements]

    async def held_by(self, worker: WorkerId, *, limit: int) -> list[Task]:
        """Tasks that a worker executes."""
        return [task for task in await leased_tasks(self._engine.store, worker, limit=limit) if self._sees(task)]

    async def _beat(self, beats: Sequence[Beat], *, renew: bool) -> list[Pulse]:
        ask = self._engine.heartbeat if renew else self._engine.look
        if self._tenant is None:
            return await ask(beats)
        seen = await self.get_many([beat.id for beat in beats])
        own = [beat for beat, task in zip(beats, seen, strict=True) if task is not None]
        pulses = iter(await ask(own) if own else [])
        return [Pulse.LOST if task is None else next(pulses) for task in seen]

    async def _own_queues(self) -> frozenset[str]:
        await self._engine.queue_cache.refresh()
        return frozenset() if self._tenant is None else self._engine.queue_cache.queues_of(self._tenant)

    async def counted_queues(self) -> frozenset[str]:
        """The queues that are bound to the caller's tenant; refused if there are none."""
        own = await self._own_queues()
        if not own:
            raise Forbidden(
                "no queue is bound to the tenant of this key, and elsewhere tasks are not counted by tenant",
                f"have an admin bind a queue with `fairlead queues set QUEUE --tenant {self._tenant}`, or {UNBOUND}",
            )
        return own

    def _own(self, query: Query) -> Query:
        return query if self._tenant is None else query.and_(term("tenant", self._tenant))

    def _sees(self, task: Task) -> bool:
        return self._tenant is None or task.spec.tenant == self._tenant

    def _seen(self, task: Task) -> Task:
        """The task, which must be there for the caller: of another's it learns nothing, not even that it exists."""
        if not self._sees(task):
            raise TaskNotFound(task.id)
        return task


def _ready_types(paused: Collection[str], stats: Stats) -> list[str]:
    ready = {name for queue in stats.queues.values() for name in queue.types}
    return sorted(ready.intersection(paused))


def _named(wish: Submission) -> Iterable[TaskId]:
    """The ids that a wish names; what is none is for the engine to name."""
    for one in wish.after:
        if isinstance(one, str):
            try:
                yield parse_task_id(one)
            except InvalidTask:
                continue


def _blurred(found: Found, *, newest_first: bool) -> TaskId | None:
    """Where to go on with a search that may have ended at another's task, whose id is not told.

    It is before that task, and not before any that was shown: the few between are looked at again.
    """
    if found.cursor is None:
        return None
    shown = found.tasks[-1].id if found.tasks else None
    if found.cursor == shown:
        return shown
    edge = TaskId(found.cursor[:12] + (_LAST if newest_first else _FIRST))
    if shown is None:
        return edge
    return min(edge, shown) if newest_first else max(edge, shown)
