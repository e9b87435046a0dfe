"""The workers, as people see them: who there is, what each runs, and how to have one leave."""

from __future__ import annotations

from typing import Any

from fairlead.core.errors import WorkerNotFound
from fairlead.core.task import Task
from fairlead.engine.fleet import WorkerReport
from fairlead.server.endpoint import Answer, Call, Empty, Endpoint
from fairlead.server.principal import Role
from fairlead.server.queues import check_everybodys
from fairlead.server.refusals import Refusal
from fairlead.server.tenancy import may_see
from fairlead.wire.fleet import WorkerList, WorkerShown, WorkerWhole, worker_shown, worker_whole
from fairlead.wire.shown import TaskBrief, brief


async def list_workers(call: Call[Empty, None]) -> Answer:
    """List the workers by id. One that was not heard of for one lease length is dead, and listed for an hour."""
    return Answer(WorkerList(workers=[worker_shown(worker) for worker in await call.hub.engine.workers.all()]))


async def show(call: Call[Empty, None]) -> Answer:
    """Show a worker, what it runs, and what became of the tasks that were taken from it."""
    return Answer(await _whole(call, await _report(call)))


async def drain(call: Call[Empty, None]) -> Answer:
    """Have a worker take no more tasks, and leave when what it runs has ended. It learns so at its next heartbeat."""
    check_everybodys(call)
    try:
        worker = await call.hub.engine.workers.drain(call.path["worker_id"])
    except WorkerNotFound as error:
        raise _unknown(error) from None
    return Answer(worker_shown(worker))


async def _report(call: Call[Any, Any]) -> WorkerReport:
    try:
        return await call.hub.engine.workers.get(call.path["worker_id"])
    except WorkerNotFound as error:
        raise _unknown(error) from None


async def _whole(call: Call[Any, Any], report: WorkerReport) -> WorkerWhole:
    principal, now, table_of = call.principal, call.hub.engine.clock.now(), await call.hub.tables()

    def show_task(task: Task) -> TaskBrief:
        return brief(task, table_of(task.spec.queue), now)

    def seen(task: Task | None) -> bool:
        return principal.tenant is None or (task is not None and may_see(principal, task))

    return worker_whole(report, show_task, seen)


def _unknown(error: WorkerNotFound) -> Refusal:
    return Refusal(
        "not-found",
        f"no worker {error.worker_id[:200]!r}: it left, or was not heard of for long; list those there are",
        field="worker_id",
        remedy="list those there are",
    )


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/workers",
        handler=list_workers,
        summary="List the workers",
        role=Role.READ,
        answers={200: WorkerList},
    ),
    Endpoint(
        method="GET",
        path="/api/v1/workers/{worker_id}",
        handler=show,
        summary="Show a worker",
        role=Role.READ,
        answers={200: WorkerWhole},
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/api/v1/workers/{worker_id}/drain",
        handler=drain,
        summary="Drain a worker",
        role=Role.ADMIN,
        answers={200: WorkerShown},
        problems=(404,),
    ),
)
