"""Workers over HTTP, as people see them, and how many are wanted: shapes, endpoints and the calls of a client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from fairlead.core.errors import WorkerNotFound
from fairlead.core.health.autoscale import WITHIN, Advice, Load, Scaling
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.instant import LONGEST, SECOND, Instant, span
from fairlead.core.task import Task
from fairlead.core.tenancy import Role
from fairlead.engine.worker_records import KindSlots, WorkerRecord, WorkerState
from fairlead.engine.worker_tasks import LostTask, WorkerReport
from fairlead.wire.endpoint import Ask, Empty, Endpoint
from fairlead.wire.endpoint import named as known
from fairlead.wire.task_shown import TaskBrief, task_of
from fairlead.wire.tasks import Name
from fairlead.wire.text import iso, parse_iso
from fairlead.wire.words import WorkerStateName


class WorkerShown(Struct, frozen=True, kw_only=True):
    """A worker, as it last reported."""

    worker_id: str
    name: str
    status: WorkerStateName
    """`active`; `draining`: it takes no more tasks and leaves when what it runs has ended; or `dead`: it sent no
    heartbeat for one lease length."""
    host: str
    pid: int
    """Its process id; 0 if it reported none."""
    version: str
    queues: list[str]
    capabilities: list[str]
    task_types: list[str] | None
    """The task types that it runs; null for any."""
    capacity: int
    """How many tasks it runs at once."""
    running: int
    """How many it runs."""
    since: str
    """When it joined."""
    seen_at: str
    """When it was last heard of."""
    completed_last_minute: int
    failed_last_minute: int
    paused: bool = False
    """Whether it gets no more tasks until it is resumed. It finishes what it runs, and can be drained."""
    slots: list[KindSlots] = []
    """Its slots by kind of handler, which `capacity` sums up; empty where it has one limit for all it runs."""


class LostTaskShown(Struct, frozen=True, kw_only=True):
    """A task that was taken from a worker because its lease ended."""

    task_id: str
    lost_at: str
    task: TaskBrief | None
    """How it stands now; null if it is no more."""


class WorkerWhole(WorkerShown, frozen=True, kw_only=True):
    """A worker and its tasks."""

    drain_requested: bool
    """Whether it was asked to drain; it learns of it at its next heartbeat."""
    running_tasks: list[TaskBrief]
    """Tasks whose leases it holds, the oldest first, at most 100. A dead worker holds them until the leases end."""
    lost_tasks: list[LostTaskShown]
    """Tasks that were taken from it, the latest first, at most 100."""
    lost_count: int
    """How many were taken from it."""


class WorkerList(Struct, frozen=True, kw_only=True):
    """All workers by id; a dead one is listed for an hour."""

    workers: list[WorkerShown]


def worker_shown(worker: WorkerRecord) -> WorkerShown:
    """A worker, as it last reported."""
    return WorkerShown(**_fields(worker))


def worker_whole(report: WorkerReport, show: Callable[[Task], TaskBrief]) -> WorkerWhole:
    """A worker and its tasks."""
    return WorkerWhole(
        **_fields(report.worker),
        drain_requested=report.drain_asked,
        running_tasks=[show(task) for task in report.running],
        lost_tasks=[
            LostTaskShown(task_id=lost.id, lost_at=iso(lost.at), task=None if lost.task is None else show(lost.task))
            for lost in report.lost
        ],
        lost_count=report.lost_count,
    )


def _fields(worker: WorkerRecord) -> dict[str, Any]:
    return {
        "worker_id": worker.id,
        "name": worker.name,
        "status": worker.state.value,
        "host": worker.host,
        "pid": worker.pid,
        "version": worker.version,
        "queues": list(worker.queues),
        "capabilities": list(worker.capabilities),
        "task_types": None if worker.types is None else list(worker.types),
        "capacity": worker.capacity,
        "running": worker.running,
        "since": iso(worker.since),
        "seen_at": iso(worker.seen_at),
        "completed_last_minute": worker.completed,
        "failed_last_minute": worker.failed,
        "paused": worker.paused,
        "slots": list(worker.slots),
    }


LIST_WORKERS: Final = Endpoint[Empty, None](
    method="GET",
    path="/api/v1/workers",
    summary="List the workers",
    role=Role.READ,
    answers={200: WorkerList},
)
SHOW: Final = Endpoint[Empty, None](
    method="GET",
    path="/api/v1/workers/{worker_id}",
    summary="Show a worker",
    role=Role.READ,
    answers={200: WorkerWhole},
    problems=(404,),
)


def _shown(path: Mapping[str, str], worker: WorkerRecord, now: Instant) -> WorkerShown:
    return worker_shown(worker)


DRAIN: Final = Endpoint[Empty, None](
    method="POST",
    path="/api/v1/workers/{worker_id}/drain",
    summary="Drain a worker",
    role=Role.ADMIN,
    answers={200: WorkerShown},
    problems=(404,),
    calls="workers.drain",
    shows=_shown,
    about="Drain a worker: from its next heartbeat on it takes no more tasks, and it leaves when its tasks have ended.",
)
PAUSE: Final = Endpoint[Empty, None](
    method="POST",
    path="/api/v1/workers/{worker_id}/pause",
    summary="Pause a worker",
    role=Role.ADMIN,
    answers={200: WorkerShown},
    problems=(404,),
    calls="workers.pause",
    shows=_shown,
    about=(
        "Pause a worker: it gets no new tasks until it is resumed. It finishes its running tasks and stays connected. "
        "This takes effect within a second, whatever status the worker reports."
    ),
)
RESUME: Final = Endpoint[Empty, None](
    method="POST",
    path="/api/v1/workers/{worker_id}/resume",
    summary="Resume a worker",
    role=Role.ADMIN,
    answers={200: WorkerShown},
    problems=(404,),
    calls="workers.resume",
    shows=_shown,
    about="Let a paused worker get tasks again.",
)
FORGET: Final = Endpoint[Empty, None](
    method="POST",
    path="/api/v1/workers/{worker_id}/forget",
    summary="Forget a dead worker",
    role=Role.ADMIN,
    answers={200: WorkerShown},
    problems=(404, 409),
    calls="workers.forget",
    shows=_shown,
    about="Take a dead worker off the list at once, instead of an hour after its last heartbeat.",
)


class RemoteWorkers:
    """The workers behind a server."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def all(self) -> list[WorkerRecord]:
        """All workers by id, also those that are dead, until they are forgotten."""
        return [_worker_records(shown) for shown in (await self._ask(LIST_WORKERS, WorkerList)).workers]

    async def get(self, named: str) -> WorkerReport:
        """One worker, by its id or, if no other has it, by its name, and its tasks."""
        whole = await self._ask(SHOW, WorkerWhole, subject=named, worker_id=known(named, WorkerNotFound(named)))
        return WorkerReport(
            worker=_worker_records(whole),
            drain_asked=whole.drain_requested,
            running=tuple(task_of(task) for task in whole.running_tasks),
            lost=tuple(
                LostTask(
                    TaskId(lost.task_id), parse_iso(lost.lost_at), None if lost.task is None else task_of(lost.task)
                )
                for lost in whole.lost_tasks
            ),
            lost_count=whole.lost_count,
        )

    async def drain(self, named: str) -> WorkerRecord:
        """Drain a worker: from its next heartbeat on it claims no more, and it leaves when its tasks have ended."""
        return _worker_records(
            await self._ask(DRAIN, WorkerShown, subject=named, worker_id=known(named, WorkerNotFound(named)))
        )

    async def pause(self, named: str) -> WorkerRecord:
        """Pause a worker: it finishes its running tasks, and claims no more until it is resumed."""
        worker = known(named, WorkerNotFound(named))
        return _worker_records(await self._ask(PAUSE, WorkerShown, subject=named, worker_id=worker))

    async def resume(self, named: str) -> WorkerRecord:
        """Let a paused worker claim tasks again."""
        worker = known(named, WorkerNotFound(named))
        return _worker_records(await self._ask(RESUME, WorkerShown, subject=named, worker_id=worker))

    async def forget(self, named: str) -> WorkerRecord:
        """Take a dead worker off the list at once; how it stood."""
        worker = known(named, WorkerNotFound(named))
        return _worker_records(await self._ask(FORGET, WorkerShown, subject=named, worker_id=worker))


def _worker_records(shown: WorkerShown) -> WorkerRecord:
    return WorkerRecord(
        id=WorkerId(shown.worker_id),
        name=shown.name,
        host=shown.host,
        pid=shown.pid,
        version=shown.version,
        queues=tuple(shown.queues),
        capabilities=tuple(shown.capabilities),
        types=None if shown.task_types is None else tuple(shown.task_types),
        capacity=shown.capacity,
        running=shown.running,
        state=WorkerState(shown.status),
        since=parse_iso(shown.since),
        seen_at=parse_iso(shown.seen_at),
        completed=shown.completed_last_minute,
        failed=shown.failed_last_minute,
        paused=shown.paused,
        slots=tuple(shown.slots),
    )


class Autoscale(Struct, frozen=True, kw_only=True):
    """How much a queue has to do, and how many workers that takes."""

    queue: str | None
    """The queue; null for all together."""
    suggested_workers: int
    """How many workers there should be."""
    backlog_seconds: float | None
    """How long one slot of a worker would need for what is ready; null while no task has ended within a minute."""
    oldest_claimable_age_seconds: float
    """The longest wait among the tasks that could be claimed now; 0 if there is none."""
    ready: int
    """How many tasks could be claimed now; tasks of paused queues and types do not count."""
    executing: int
    seconds_per_task: float | None
    """How long a task takes, from those that ended within a minute; null if none did."""
    tasks_per_second: float
    """How many tasks ended, over the last minute."""
    workers: int
    """How many workers claim tasks here."""
    capacity_per_worker: float
    """How many tasks each worker is assumed to run at once."""


def autoscale(scaling: Scaling) -> Autoscale:
    """A load and its advice, as JSON has them."""
    load, advice = scaling.load, scaling.advice
    return Autoscale(
        queue=scaling.queue,
        suggested_workers=advice.workers,
        backlog_seconds=advice.backlog_seconds,
        oldest_claimable_age_seconds=load.oldest_age / SECOND,
        ready=load.ready,
        executing=load.executing,
        seconds_per_task=advice.seconds_per_task,
        tasks_per_second=load.ended / 60,
        workers=load.workers,
        capacity_per_worker=advice.capacity,
    )


def scaling_of(shown: Autoscale) -> Scaling:
    """The same as an engine would give it."""
    ended = round(shown.tasks_per_second * 60)
    return Scaling(
        shown.queue,
        Load(
            ready=shown.ready,
            executing=shown.executing,
            oldest_age=span(shown.oldest_claimable_age_seconds),
            ended=ended,
            spent=span(ended * (shown.seconds_per_task or 0)),
            workers=shown.workers,
            slots=round(shown.workers * shown.capacity_per_worker),
        ),
        Advice(
            seconds_per_task=shown.seconds_per_task,
            backlog_seconds=shown.backlog_seconds,
            capacity=shown.capacity_per_worker,
            workers=shown.suggested_workers,
        ),
    )


class AutoscaleQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose workers, and how many tasks they should be for."""

    queue: Name | None = None
    """The queue that the workers serve; all queues by default."""
    within_seconds: Annotated[float, Meta(ge=0.001, le=LONGEST / SECOND)] = WITHIN / SECOND
    """How soon the backlog should be done."""
    capacity: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """How many tasks a worker runs at once; by default, as many as the current workers."""


SHOW_AUTOSCALE: Final = Endpoint[AutoscaleQuery, None](
    method="GET",
    path="/api/v1/autoscale",
    summary="Suggest a number of workers",
    role=Role.READ,
    query=AutoscaleQuery,
    answers={200: Autoscale},
)
