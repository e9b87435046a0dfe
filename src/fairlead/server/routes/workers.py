"""Workers, how they and the queues stand, and how many workers are wanted."""

from __future__ import annotations

from typing import Any

from fairlead.admin import stats
from fairlead.admin.stats import History, StatsQuery
from fairlead.admin.workers import api as workers_api
from fairlead.admin.workers.api import AutoscaleQuery, WorkerList, WorkerWhole, autoscale, worker_shown, worker_whole
from fairlead.core.identity import check_name
from fairlead.core.task import Task
from fairlead.core.validation import span_of
from fairlead.engine.worker_tasks import WorkerReport
from fairlead.server.endpoint import Answer, Call, EndpointGroup, called, serve
from fairlead.server.live.queue_depths import INTERVAL
from fairlead.wire.endpoint import Empty
from fairlead.wire.task_shown import TaskBrief, brief


async def list_workers(call: Call[Empty, None]) -> Answer:
    """List the workers by id. One without a heartbeat for one lease length is dead, and listed for an hour."""
    return Answer(WorkerList(workers=[worker_shown(worker) for worker in await call.view.engine.workers.all()]))


async def show_worker(call: Call[Empty, None]) -> Answer:
    """Show a worker, what it runs, and what became of the tasks that were taken from it."""
    return Answer(await _whole(call, await call.view.engine.workers.get(call.path["worker_id"])))


async def _whole(call: Call[Any, Any], report: WorkerReport) -> WorkerWhole:
    now, table_of = call.view.now, await call.view.tables()

    def show_task(task: Task) -> TaskBrief:
        return brief(task, table_of(task.spec.queue), now)

    return worker_whole(report, show_task)


async def show_stats(call: Call[StatsQuery, None]) -> Answer:
    """Show how many tasks wait and how long, by priority; the workers; and what became of tasks lately.

    The cost does not depend on the number of tasks, except for the percentiles of their ages. These are counted at most
    once a second, and less often where counting is slow, so that it takes at most a twentieth of the time; they are at
    most a minute old, and null if they are not known.
    """
    queue = None if call.query.queue is None else check_name("queue", call.query.queue)
    if queue is not None:
        await call.view.engine.check_queues([queue])
    return Answer(await call.view.standing(queue))


async def show_history(call: Call[Empty, None]) -> Answer:
    """Show the statistics of the last hour, as far as this server has recorded them."""
    return Answer(History(interval_seconds=INTERVAL, samples=list(call.state.history.samples)))


async def show_autoscale(call: Call[AutoscaleQuery, None]) -> Answer:
    """Show the backlog, and suggest a number of workers: for KEDA, or whatever starts and stops workers.

    It costs the same however many tasks there are.
    """
    query = call.query
    within = span_of("within_seconds", query.within_seconds)
    return Answer(autoscale(await call.view.engine.autoscale(query.queue, within=within, capacity=query.capacity)))


ENDPOINTS = (
    *EndpointGroup("fleet", "Workers, as people operate them: list them, show what each runs, and drain one.").of(
        serve(workers_api.LIST_WORKERS, list_workers),
        serve(workers_api.SHOW, show_worker, "show"),
        *called(workers_api),
    ),
    *EndpointGroup("stats", "Statistics of the queues and the workers.").of(
        serve(stats.SHOW_STATS, show_stats),
        serve(stats.SHOW_HISTORY, show_history),
    ),
    *EndpointGroup("scaling", "How many workers are wanted: for KEDA, or another autoscaler.").of(
        serve(workers_api.SHOW_AUTOSCALE, show_autoscale),
    ),
)
