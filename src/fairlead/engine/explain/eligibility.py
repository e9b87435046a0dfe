"""Which workers could take a task, or why none can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from fairlead.core.errors import StoreError
from fairlead.core.explain.explanation import Cause, CauseCode
from fairlead.core.identity import WorkerId
from fairlead.core.instant import Span
from fairlead.core.task import Lane, Task
from fairlead.engine.runtime.clock import Clock
from fairlead.engine.submit import FRESH
from fairlead.engine.worker_records import WorkerRecord, WorkerRecords, WorkerState

_SHOWN: Final = 10
"""How many names a sentence lists."""


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


def able(workers: Sequence[WorkerRecord], lane: Lane) -> list[WorkerRecord]:
    """The live workers that take tasks of a lane."""
    return [
        worker for worker in workers if worker.takes_tasks and lane.queue in worker.queues and can_run(worker, lane)
    ]


def can_run(worker: WorkerRecord, lane: Lane) -> bool:
    """Whether a worker has what the tasks of a lane need, in whatever queue."""
    return _knows(worker, lane) and set(worker.capabilities).issuperset(lane.requires)


def obstacle(workers: Sequence[WorkerRecord], lane: Lane) -> Cause | None:
    """Why no live worker could take a task of a lane; None if one could.

    What is told is what is missing at the workers that come nearest.
    """
    live = [worker for worker in workers if worker.state is not WorkerState.DEAD]
    if not live:
        return _no_workers(len(workers))
    serving = [worker for worker in live if lane.queue in worker.queues]
    if not serving:
        return _unserved(lane, live)
    knowing = [worker for worker in serving if _knows(worker, lane)]
    if not knowing:
        return Cause(
            CauseCode.TYPE_UNKNOWN,
            f"no worker of queue {lane.queue} has a handler for the type {lane.type}; {_count(serving)} it",
            {"type": lane.type, "queue": lane.queue, "workers": len(serving)},
            blocks=True,
        )
    fit = [worker for worker in knowing if set(worker.capabilities).issuperset(lane.requires)]
    if not fit:
        return _incapable(lane, knowing)
    if all(worker.state is WorkerState.DRAINING for worker in fit):
        names = [str(name) for name in names_of(fit)]
        return Cause(
            CauseCode.ALL_DRAINING,
            f"every worker that could run it is draining and takes no more tasks{_listed(names, ': ')}",
            {"workers": len(fit), "worker_ids": names},
            blocks=True,
        )
    if not any(worker.takes_tasks for worker in fit):
        resumable = [worker for worker in fit if worker.state is WorkerState.ACTIVE]
        names = [str(name) for name in names_of(resumable)]
        return Cause(
            CauseCode.ALL_PAUSED,
            f"every worker that could run it is paused or draining{_listed(names, '; paused: ')}",
            {"workers": len(resumable), "worker_ids": names},
            blocks=True,
        )
    return None


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


def _incapable(lane: Lane, knowing: Sequence[WorkerRecord]) -> Cause:
    nearest = min((set(lane.requires) - set(worker.capabilities) for worker in knowing), key=len)
    missing = sorted(nearest)
    return Cause(
        CauseCode.CAPABILITY_MISSING,
        f"no worker with a handler for {lane.type} has all of {', '.join(lane.requires)}; "
        f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
        {"required": list(lane.requires), "missing": missing, "workers": len(knowing)},
        blocks=True,
    )


def _count(workers: Sequence[WorkerRecord]) -> str:
    return "1 worker serves" if len(workers) == 1 else f"{len(workers)} workers serve"


def _listed(names: Sequence[str], lead: str) -> str:
    """The first of some names, if there are any to be said."""
    return f"{lead}{', '.join(names[:_SHOWN])}{', …' if len(names) > _SHOWN else ''}" if names else ""


class WorkerCheck:
    """The workers as one engine last saw them."""

    def __init__(self, worker_records: WorkerRecords, clock: Clock) -> None:
        self._worker_records = worker_records
        self._clock = clock
        self._looked_at: Span | None = None
        self._workers: list[WorkerRecord] | None = None
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
            cause = obstacle(visible(self._workers, tenant, spec.queue), task.lane)
            found = self._doubts[kind] = () if cause is None else (cause,)
        return found

    async def look(self) -> None:
        """Look at the workers; who asks meanwhile gets the answer before."""
        self._looked_at = self._clock.monotonic()
        try:
            self._workers = await self._worker_records.workers()
        except StoreError:
            self._workers = None
        self._doubts.clear()
