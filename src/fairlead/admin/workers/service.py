"""The workers as people see them: what each runs, how it is paused or leaves, and how many workers a queue wants."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from msgspec.structs import replace

from fairlead.core.errors import InvalidSettings, OperationRefused, WorkerNotFound
from fairlead.core.health.autoscale import Load
from fairlead.core.instant import Instant
from fairlead.core.task import State, Task
from fairlead.engine.metrics.throughput import Spent
from fairlead.engine.queue_cache import QueueCache
from fairlead.engine.records import Records
from fairlead.engine.runtime.clock import Clock
from fairlead.engine.worker_records import WorkerRecord, WorkerRecords, WorkerState
from fairlead.engine.worker_tasks import MOST_SHOWN, LostTask, LostTasks, WorkerReport
from fairlead.storage.protocol import Lagging
from fairlead.storage.values import Filter, Tally

_PRESENT: Final = (State.QUEUED, State.EXECUTING)


class Workers:
    """The workers of one store, or those of them that keys of one tenant have registered."""

    def __init__(
        self, records: Records, clock: Clock, worker_records: WorkerRecords, tenant: str | None = None
    ) -> None:
        self._tenant = tenant
        self._store = records.store
        self._clock = clock
        self._worker_records = worker_records
        self._lost = LostTasks(records, worker_records)

    async def all(self) -> list[WorkerRecord]:
        """All workers by id, also those that are dead, until they are forgotten."""
        workers = await self._worker_records.workers()
        return [worker for worker in workers if self._tenant in (None, worker.tenant)]

    async def get(self, named: str) -> WorkerReport:
        """One worker, by its id or, if no other has it, by its name, and its tasks."""
        worker = await self._named(named)
        matching = Filter(states=frozenset({State.EXECUTING}), worker=worker.id)
        find = self._store.find_current if isinstance(self._store, Lagging) else self._store.find
        running = await find(matching, limit=MOST_SHOWN, newest_first=False)
        noted = await self._lost.of(worker.id)
        ids = [task_id for task_id, _ in reversed(noted.last)]
        tasks = dict(zip(ids, await self._store.get(ids), strict=True)) if ids else {}
        return WorkerReport(
            worker=worker,
            drain_asked=worker.id in await self._worker_records.asked(),
            running=tuple(task for task in running if self._sees(task)),
            lost=tuple(
                LostTask(task_id, at, tasks[task_id])
                for task_id, at in reversed(noted.last)
                if self._sees(tasks[task_id])
            ),
            lost_count=noted.count,
        )

    async def drain(self, named: str) -> WorkerRecord:
        """Drain a worker: from its next heartbeat on it claims no more, and it leaves when its tasks have ended."""
        worker = await self._named(named)
        await self._worker_records.ask_drain(worker.id)
        return worker

    async def pause(self, named: str) -> WorkerRecord:
        """Pause a worker: it finishes its running tasks, and claims no more until it is resumed."""
        worker = await self._named(named)
        await self._worker_records.pause(worker.id)
        return replace(worker, paused=True)

    async def resume(self, named: str) -> WorkerRecord:
        """Let a paused worker claim tasks again."""
        worker = await self._named(named)
        await self._worker_records.resume(worker.id)
        return replace(worker, paused=False)

    async def forget(self, named: str) -> WorkerRecord:
        """Take a dead worker off the list at once, instead of an hour after its last heartbeat; how it stood."""
        worker = await self._named(named)
        if worker.state is not WorkerState.DEAD:
            raise OperationRefused(
                f"worker {worker.id} is {worker.state}; drain it with `fairlead workers drain {worker.id}`, then it "
                "leaves by itself"
            )
        await self._worker_records.leave(worker.id)
        return worker

    def _sees(self, task: Task | None) -> bool:
        return self._tenant is None or (task is not None and task.spec.tenant == self._tenant)

    async def _named(self, named: str) -> WorkerRecord:
        workers = await self.all()
        found = [worker for worker in workers if worker.id == named] or [
            worker for worker in workers if worker.name == named
        ]
        if not found:
            raise WorkerNotFound(named)
        if len(found) > 1:
            listed = ", ".join(worker.id for worker in found)
            raise InvalidSettings(f"{len(found)} workers are called {named!r}; name one by its id: {listed}")
        return found[0]


def load_of(
    queues: Collection[str] | None,
    tally: Tally,
    now: Instant,
    queue_cache: QueueCache,
    workers: Sequence[WorkerRecord],
    spent: Spent,
) -> Load:
    """The load of some queues or of all. What is paused counts only as far as it runs."""
    lanes = [each for each in tally.lanes if queues is None or each.lane.queue in queues]
    claimable = [each for each in lanes if not queue_cache.withheld(each.lane)]
    oldest = min((each.oldest_ready for each in claimable if each.oldest_ready is not None), default=now)
    active = [
        worker
        for worker in workers
        if worker.takes_tasks and (queues is None or not set(queues).isdisjoint(worker.queues))
    ]
    types = {each.lane.type for each in lanes if any(each.counts.get(state) for state in _PRESENT)}
    return Load(
        ready=sum(each.counts.get(State.QUEUED, 0) for each in claimable),
        executing=sum(each.counts.get(State.EXECUTING, 0) for each in lanes),
        oldest_age=max(0, now - oldest),
        ended=spent.ended,
        spent=spent.time,
        workers=len(active),
        slots=sum(worker.capacity_for(types) for worker in active),
    )
