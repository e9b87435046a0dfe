"""Which workers could take a task, or why none can."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from fairlead.core.errors import StoreError
from fairlead.core.explain.explanation import Cause, CauseCode
from fairlead.core.health.unserved import LACKS, Ability, Fleet, Lack, LastSeen, UnservedTasks, unserved
from fairlead.core.identity import WorkerId
from fairlead.core.instant import Span
from fairlead.core.task import Lane, State, Task
from fairlead.engine.queue_cache import QueueCache
from fairlead.engine.runtime.clock import Clock
from fairlead.engine.submit import FRESH
from fairlead.engine.worker_records import WorkerRecord, WorkerRecords, WorkerState
from fairlead.storage.values import LaneTally

_SHOWN: Final = 10
"""How many names a sentence lists."""
_MOST_DOUBTS: Final = 10_000
"""How many answers are remembered between two looks."""


HIDDEN: Final = WorkerId("")
"""The id of a worker that is only counted."""


def visible(workers: Sequence[WorkerRecord], tenant: str | None, queue: str) -> Sequence[WorkerRecord]:
    """The workers as one tenant may know of them, who asks about a queue.

    Those of other tenants never serve it. Those of nobody may, so they are counted, without a name or another queue.
    """
    if tenant is None:
        return workers
    return [
        worker
        if worker.tenant == tenant
        else replace(
            worker, id=HIDDEN, name="", host="", pid=0, queues=tuple(each for each in worker.queues if each == queue)
        )
        for worker in workers
        if worker.tenant in (None, tenant)
    ]


def names_of(workers: Sequence[WorkerRecord]) -> list[WorkerId]:
    """The ids of those that may be named."""
    return [worker.id for worker in workers if worker.id != HIDDEN]


def of_kind(workers: Sequence[WorkerRecord], task_type: str) -> list[WorkerRecord]:
    """The workers with no more than the slots, and the types, of the kind of handler that runs a task type.

    Kinds claim apart and do not compete: what waits for another kind's slots is not ahead of a task.
    """
    return [_of_kind(worker, task_type) for worker in workers]


def _of_kind(worker: WorkerRecord, task_type: str) -> WorkerRecord:
    kind = next((each for each in worker.slots if task_type in each.types), None)
    if kind is None:
        return worker
    return replace(worker, types=kind.types, capacity=kind.capacity, running=kind.running)


def able(workers: Sequence[WorkerRecord], lane: Lane) -> list[WorkerRecord]:
    """The live workers that take tasks of a lane."""
    return [
        worker for worker in workers if worker.takes_tasks and lane.queue in worker.queues and can_run(worker, lane)
    ]


def can_run(worker: WorkerRecord, lane: Lane) -> bool:
    """Whether a worker has what the tasks of a lane need, in whatever queue."""
    return _knows(worker, lane) and set(worker.capabilities).issuperset(lane.requires)


def ability_of(worker: WorkerRecord) -> Ability:
    """What a worker can run."""
    return Ability(worker.queues, worker.types, worker.capabilities, worker.tenant)


def obstacle(workers: Sequence[WorkerRecord], lane: Lane) -> Cause | None:
    """Why no live worker could take a task of a lane; None if one could.

    What is told is what is missing at the workers that come nearest.
    """
    return QueueWorkers(workers, lane.queue).obstacle(lane)


class QueueWorkers:
    """Some workers as one queue sees them. To ask it of very many task types costs little."""

    def __init__(self, workers: Sequence[WorkerRecord], queue: str) -> None:
        self._live = [worker for worker in workers if worker.state is not WorkerState.DEAD]
        self._dead = len(workers) - len(self._live)
        self._serving = [worker for worker in self._live if queue in worker.queues]
        self._fleet = Fleet([ability_of(worker) for worker in self._live])

    def obstacle(self, lane: Lane) -> Cause | None:
        """Why none of them could take a task of a lane of the queue; None if one could."""
        lack = self._fleet.lack_of(lane)
        if lack is not None:
            return self._lacking(lane, lack)
        if any(worker.takes_tasks and can_run(worker, lane) for worker in self._serving):
            return None
        return _standing_by([worker for worker in self._serving if can_run(worker, lane)])

    def _lacking(self, lane: Lane, lack: Lack) -> Cause:
        match lack.code:
            case CauseCode.NO_WORKERS:
                return _no_workers(self._dead)
            case CauseCode.QUEUE_UNSERVED:
                return _unserved(lane, self._live)
            case CauseCode.TYPE_UNKNOWN:
                return Cause(
                    CauseCode.TYPE_UNKNOWN,
                    f"no worker of queue {lane.queue} has a handler for the type {lane.type}; "
                    f"{_count(self._serving)} it",
                    {"type": lane.type, "queue": lane.queue, "workers": len(self._serving)},
                    blocks=True,
                )
            case _:
                return _incapable(lane, lack.missing, sum(_knows(worker, lane) for worker in self._serving))


def _standing_by(fit: Sequence[WorkerRecord]) -> Cause:
    """That those who could run it take no tasks."""
    if all(worker.state is WorkerState.DRAINING for worker in fit):
        names = [str(name) for name in names_of(fit)]
        return Cause(
            CauseCode.ALL_DRAINING,
            f"every worker that could run it is draining and takes no more tasks{_listed(names, ': ')}",
            {"workers": len(fit), "worker_ids": names},
            blocks=True,
        )
    resumable = [worker for worker in fit if worker.state is WorkerState.ACTIVE]
    names = [str(name) for name in names_of(resumable)]
    return Cause(
        CauseCode.ALL_PAUSED,
        f"every worker that could run it is paused or draining{_listed(names, '; paused: ')}",
        {"workers": len(resumable), "worker_ids": names},
        blocks=True,
    )


def _knows(worker: WorkerRecord, lane: Lane) -> bool:
    return worker.types is None or lane.type in worker.types


def _no_workers(dead: int) -> Cause:
    lost = f"; {dead} {'was' if dead == 1 else 'were'} lost within the last hour" if dead else ""
    return Cause(
        CauseCode.NO_WORKERS,
        f"no worker is running{lost}; start one with `fairlead worker`",
        {"dead": dead},
        blocks=True,
    )


def _unserved(lane: Lane, live: Sequence[WorkerRecord]) -> Cause:
    served = sorted({queue for worker in live for queue in worker.queues})
    return Cause(
        CauseCode.QUEUE_UNSERVED,
        f"no worker serves the queue {lane.queue}{_listed(served, '; those that run serve ')}",
        {"queue": lane.queue, "workers": len(live), "served_queues": served},
        blocks=True,
    )


def _incapable(lane: Lane, missing: Sequence[str], knowing: int) -> Cause:
    return Cause(
        CauseCode.CAPABILITY_MISSING,
        f"no worker with a handler for {lane.type} has all of {', '.join(lane.requires)}; "
        f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
        {"required": list(lane.requires), "missing": list(missing), "workers": knowing},
        blocks=True,
    )


def _count(workers: Sequence[WorkerRecord]) -> str:
    return "1 worker serves" if len(workers) == 1 else f"{len(workers)} workers serve"


def _listed(names: Sequence[str], lead: str) -> str:
    """The first of some names, if there are any to be said."""
    return f"{lead}{', '.join(names[:_SHOWN])}{', …' if len(names) > _SHOWN else ''}" if names else ""


class WorkerCheck:
    """The workers as one engine last saw them."""

    def __init__(self, worker_records: WorkerRecords, clock: Clock, grace: Span) -> None:
        """For a grace, what a worker that has left could run is not called unserved: mostly it just starts again."""
        self._worker_records = worker_records
        self._clock = clock
        self._grace = grace
        self._last_seen = LastSeen()
        self._looked_at: Span | None = None
        self._workers: list[WorkerRecord] | None = None
        self._queues: dict[tuple[str, str | None], QueueWorkers] = {}
        """By queue and who is told."""
        self._fleets: dict[str | None, Fleet] = {}
        """By who is told."""
        self._abilities: set[Ability] = set()
        self._doubts: dict[tuple[str, str, tuple[str, ...], str | None], tuple[Cause, ...]] = {}
        """By queue, type, capability set and who is told."""

    @property
    def stale(self) -> bool:
        """Whether it is time to look again: one look at the workers serves all who ask within five seconds."""
        return self._looked_at is None or self._clock.monotonic() - self._looked_at >= FRESH

    def doubts(self, task: Task, tenant: str | None = None) -> tuple[Cause, ...]:
        """Why no live worker could run a task, as it is told to this tenant; none if one could, or if nobody knows."""
        if self._workers is None:
            return ()
        spec = task.spec
        kind = spec.queue, spec.type, spec.requires, tenant
        found = self._doubts.get(kind)
        if found is None:
            if len(self._doubts) >= _MOST_DOUBTS:
                self._doubts.clear()
            found = self._doubts[kind] = self._look_up(self._workers, task.lane, tenant)
        return found

    def _look_up(self, workers: Sequence[WorkerRecord], lane: Lane, tenant: str | None) -> tuple[Cause, ...]:
        place = lane.queue, tenant
        workers_there = self._queues.get(place)
        if workers_there is None:
            if len(self._queues) >= _MOST_DOUBTS:
                self._queues.clear()
            workers_there = self._queues[place] = QueueWorkers(visible(workers, tenant, lane.queue), lane.queue)
        cause = workers_there.obstacle(lane)
        if cause is None:
            return ()
        fleet = self._fleets.get(tenant)
        if fleet is None:
            known = {each for each in self._abilities if tenant is None or each.tenant in (None, tenant)}
            fleet = self._fleets[tenant] = Fleet(known)
        late = cause.code in LACKS and fleet.lack_of(lane) is None
        return () if late else (cause,)

    async def look(self) -> None:
        """Look at the workers; who asks meanwhile gets the answer before."""
        self._looked_at = self._clock.monotonic()
        try:
            self._workers = await self._worker_records.workers()
            self._abilities = self._of_late(self._workers)
        except StoreError:
            self._workers = None
        self._doubts.clear()
        self._queues.clear()
        self._fleets.clear()

    def unserved(
        self, lanes: Iterable[LaneTally], workers: Sequence[WorkerRecord], queue_cache: QueueCache
    ) -> dict[str, UnservedTasks]:
        """What nobody could run of the ready tasks, by queue: these workers, and those that have just left."""
        fleet = Fleet(self._of_late(workers), queue_cache.tenants)
        paused, types = queue_cache.paused, queue_cache.paused_types
        return unserved(
            fleet,
            (
                (each.lane, ready, each.oldest_ready)
                for each in lanes
                if each.oldest_ready is not None
                and (ready := each.counts.get(State.QUEUED, 0))
                and each.lane.queue not in paused
                and each.lane.type not in types
            ),
            self._clock.now(),
        )

    def _of_late(self, workers: Sequence[WorkerRecord]) -> set[Ability]:
        live = {ability_of(worker) for worker in workers if worker.state is not WorkerState.DEAD}
        return self._last_seen.with_those_of_late(live, self._clock.monotonic(), self._grace)
