"""Workers: how they are shown, over HTTP and by `--json` of the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from fairlead.core.task import Task
from fairlead.engine.fleet import WorkerReport
from fairlead.engine.presence import WorkerPresence
from fairlead.wire.moments import iso
from fairlead.wire.shown import TaskBrief


class WorkerShown(Struct, frozen=True, kw_only=True):
    """A worker, as it last said of itself."""

    worker_id: str
    name: str
    status: str
    """`active`; `draining`: it takes no more tasks and leaves when what it runs has ended; or `dead`: it was not heard
    of for one lease length."""
    host: str
    pid: int
    """The number of its process; 0 if it did not say."""
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


class LostTaskShown(Struct, frozen=True, kw_only=True):
    """A task that was taken from a worker because its lease ended."""

    task_id: str
    lost_at: str
    task: TaskBrief | None
    """How it stands now; null if it is no more."""


class WorkerWhole(WorkerShown, frozen=True, kw_only=True):
    """A worker and its tasks."""

    drain_requested: bool
    """Whether it was asked to drain; it hears of it at its next heartbeat."""
    running_tasks: list[TaskBrief]
    """Tasks whose leases it holds, the oldest first, at most 100. A dead worker holds them until the leases end."""
    lost_tasks: list[LostTaskShown]
    """Tasks that were taken from it, the latest first, at most 100."""
    lost_count: int
    """How many were taken from it."""


class WorkerList(Struct, frozen=True, kw_only=True):
    """All workers by id; a dead one is listed for an hour."""

    workers: list[WorkerShown]


def worker_shown(worker: WorkerPresence) -> WorkerShown:
    """A worker, as it last said of itself."""
    return WorkerShown(**_fields(worker))


def worker_whole(
    report: WorkerReport, show: Callable[[Task], TaskBrief], may_see: Callable[[Task | None], bool] = lambda _: True
) -> WorkerWhole:
    """A worker and those of its tasks that may be seen."""
    return WorkerWhole(
        **_fields(report.worker),
        drain_requested=report.drain_asked,
        running_tasks=[show(task) for task in report.running if may_see(task)],
        lost_tasks=[
            LostTaskShown(task_id=lost.id, lost_at=iso(lost.at), task=None if lost.task is None else show(lost.task))
            for lost in report.lost
            if may_see(lost.task)
        ],
        lost_count=report.lost_count,
    )


def _fields(worker: WorkerPresence) -> dict[str, Any]:
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
    }
