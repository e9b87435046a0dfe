"""Workers, as people operate them: list them, show what each runs, and drain one."""

from __future__ import annotations

from typing import Any

from fairlead.admin.workers import api
from fairlead.admin.workers.api import WorkerList, WorkerWhole, worker_shown, worker_whole
from fairlead.core.task import Task
from fairlead.engine.worker_tasks import WorkerReport
from fairlead.server.endpoint import Answer, Call, called, serve
from fairlead.wire.endpoint import Empty
from fairlead.wire.task_shown import TaskBrief, brief


async def list_workers(call: Call[Empty, None]) -> Answer:
    """List the workers by id. One without a heartbeat for one lease length is dead, and listed for an hour."""
    return Answer(WorkerList(workers=[worker_shown(worker) for worker in await call.view.engine.workers.all()]))


async def show(call: Call[Empty, None]) -> Answer:
    """Show a worker, what it runs, and what became of the tasks that were taken from it."""
    return Answer(await _whole(call, await call.view.engine.workers.get(call.path["worker_id"])))


async def _whole(call: Call[Any, Any], report: WorkerReport) -> WorkerWhole:
    now, table_of = call.view.now, await call.view.tables()

    def show_task(task: Task) -> TaskBrief:
        return brief(task, table_of(task.spec.queue), now)

    return worker_whole(report, show_task)


ENDPOINTS = (
    serve(api.LIST_WORKERS, list_workers),
    serve(api.SHOW, show),
    *called(api),
)
