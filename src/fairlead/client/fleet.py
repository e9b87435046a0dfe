"""Workers behind a server: what `engine.fleet` does, over the API."""

from __future__ import annotations

from urllib.parse import quote

from fairlead.client.queues import Asking
from fairlead.client.tasks import task_of
from fairlead.core.identity import TaskId, WorkerId
from fairlead.engine.fleet import LostTask, WorkerReport
from fairlead.engine.presence import WorkerPresence, WorkerState
from fairlead.wire.fleet import WorkerList, WorkerShown, WorkerWhole
from fairlead.wire.moments import parse_iso


class RemoteFleet(Asking):
    """The workers behind a server."""

    async def all(self) -> list[WorkerPresence]:
        """All workers by id, also those that are dead, until they are forgotten."""
        return [_presence(shown) for shown in (await self.ask("GET", "/api/v1/workers", WorkerList)).workers]

    async def get(self, named: str) -> WorkerReport:
        """One worker, by its id or, if no other has it, by its name, and its tasks."""
        whole = await self.ask("GET", _worker_path(named), WorkerWhole, subject=named)
        return WorkerReport(
            worker=_presence(whole),
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

    async def drain(self, named: str) -> WorkerPresence:
        """Have a worker claim no more and leave when what it runs has ended; it hears of it at its next beat."""
        return _presence(await self.ask("POST", f"{_worker_path(named)}/drain", WorkerShown, subject=named))


def _worker_path(named: str) -> str:
    return f"/api/v1/workers/{quote(named, safe='')}"


def _presence(shown: WorkerShown) -> WorkerPresence:
    return WorkerPresence(
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
    )
