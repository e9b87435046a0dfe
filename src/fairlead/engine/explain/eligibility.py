"""Which workers could take a task, or why none can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fairlead.core.explanation import Cause, CauseCode
from fairlead.core.task import Lane
from fairlead.engine.presence import WorkerPresence, WorkerState

_SHOWN: Final = 10
"""How many names a sentence lists."""


def able(workers: Sequence[WorkerPresence], lane: Lane) -> list[WorkerPresence]:
    """The live workers that take tasks of a lane."""
    return [
        worker
        for worker in workers
        if worker.state is WorkerState.ACTIVE and lane.queue in worker.queues and can_run(worker, lane)
    ]


def can_run(worker: WorkerPresence, lane: Lane) -> bool:
    """Whether a worker has what the tasks of a lane need, in whatever queue."""
    return _knows(worker, lane) and set(worker.capabilities).issuperset(lane.requires)


def obstacle(workers: Sequence[WorkerPresence], lane: Lane) -> Cause | None:
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
        names = [str(worker.id) for worker in fit]
        return Cause(
            CauseCode.ALL_DRAINING,
            f"every worker that could run it is draining and takes no more tasks: {_listed(names)}",
            {"workers": len(fit), "worker_ids": names},
            blocks=True,
        )
    return None


def _knows(worker: WorkerPresence, lane: Lane) -> bool:
    return worker.types is None or lane.type in worker.types


def _no_workers(dead: int) -> Cause:
    lost = f"; {dead} {'was' if dead == 1 else 'were'} lost within the last hour" if dead else ""
    return Cause(
        CauseCode.NO_WORKERS,
        f"no worker is running{lost}; start one with `fairlead worker`",
        {"dead": dead},
        blocks=True,
    )


def _unserved(lane: Lane, live: Sequence[WorkerPresence]) -> Cause:
    served = sorted({queue for worker in live for queue in worker.queues})
    return Cause(
        CauseCode.QUEUE_UNSERVED,
        f"no worker serves the queue {lane.queue}; those that run serve {_listed(served)}",
        {"queue": lane.queue, "workers": len(live), "served_queues": served},
        blocks=True,
    )


def _incapable(lane: Lane, knowing: Sequence[WorkerPresence]) -> Cause:
    nearest = min((set(lane.requires) - set(worker.capabilities) for worker in knowing), key=len)
    missing = sorted(nearest)
    return Cause(
        CauseCode.CAPABILITY_MISSING,
        f"no worker with a handler for {lane.type} has all of {', '.join(lane.requires)}; "
        f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
        {"required": list(lane.requires), "missing": missing, "workers": len(knowing)},
        blocks=True,
    )


def _count(workers: Sequence[WorkerPresence]) -> str:
    return "1 worker serves" if len(workers) == 1 else f"{len(workers)} workers serve"


def _listed(names: Sequence[str]) -> str:
    """The first of some names."""
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
