"""Submitting tasks, looking at them and cancelling them."""

from __future__ import annotations

from fairlead.core.task import State
from fairlead.core.tenancy import Role
from fairlead.core.transitions import cancelled_at, has_heard_of_cancel
from fairlead.server.endpoint import Answer, Call, serve, task_id_of
from fairlead.server.routes.batch_submit import traceparent_of
from fairlead.server.routes.pagination import filter_of, page
from fairlead.wire import task_endpoints
from fairlead.wire.endpoint import Empty
from fairlead.wire.explanations import explanation_shown
from fairlead.wire.task_endpoints import CancelQuery, ListQuery, ShowQuery, SubmitQuery, TaskCancelled
from fairlead.wire.task_shown import whole
from fairlead.wire.tasks import SubmitRequest, submission_of
from fairlead.wire.times import maybe_iso


async def submit(call: Call[SubmitQuery, SubmitRequest]) -> Answer:
    """Store a task; it is durable when this is answered.

    If the `idempotency_key` is known, the answer is the task that it first named, with status 200. If no live worker
    could run the task, it is stored all the same and `warnings` says why. With `estimate=true` the answer also
    estimates when the task will start, where that is possible; this takes as long as an `explain`.
    """
    view, request = call.view, call.body
    traceparent = traceparent_of(call.scope["headers"])
    told = await view.submit(submission_of(request, view.tenant_of(request.tenant), traceparent))
    status = 200 if told.existing else 201
    return Answer(await view.estimate(told) if call.query.estimate else told, status=status)


async def show(call: Call[ShowQuery, None]) -> Answer:
    """Show everything about a task.

    With `wait`, the answer comes when the task has ended, or after that many seconds with the task as it is then.
    """
    view, query = call.view, call.query
    task_id = task_id_of(call)
    task = await view.engine.get(task_id)
    if query.wait and not task.state.ended:
        task = await view.wait(task_id, query.wait)
        await view.recheck(call.scope, Role.READ)
    table = (await view.tables())(task.spec.queue)
    (told,) = await view.engine.told([task])
    return Answer(whole(told, table, view.now, history=query.include_history))


async def explain(call: Call[Empty, None]) -> Answer:
    """Say why a task waits, or why it ran when it ran.

    For a queued task: its place in line, when it is promoted, when new tasks can no longer pass it, which workers could
    take it or why none can, and when it will start, with the assumptions. For an executing or ended task: each attempt,
    how long the task had waited, and what came before.
    """
    told = await call.view.engine.explain(task_id_of(call))
    return Answer(explanation_shown(told))


async def list_tasks(call: Call[ListQuery, None]) -> Answer:
    """List tasks, the newest first unless asked otherwise.

    `next_cursor` of one page, as `cursor`, gives the next one; it is null on the last. With a key that is bound to a
    tenant, or with `q`, a page may have fewer tasks than asked for, or none, and still not be the last: one request
    looks at a bounded number of tasks. A mistake in `q` is a problem of type `invalid-query`, with carets under it.
    """
    return Answer(await page(call, filter_of(call.query), call.query, call.query.q))


async def cancel(call: Call[CancelQuery, None]) -> Answer:
    """Cancel a task: at once if it waits; if it is executing, its worker is asked to stop it.

    The answer waits briefly for that worker. If it has not stopped the task by then, the answer is 202 with the status
    `cancel_requested`; the task ends when the worker does stop it, or loses its lease. A task that has ended cannot be
    cancelled.
    """
    asked = task = await call.view.engine.cancel(task_id_of(call))
    was_executing = asked.state is State.EXECUTING
    if was_executing and call.query.wait:
        task = await call.view.wait(task.id, call.query.wait)
    waits = task.state is State.EXECUTING
    answer = TaskCancelled(
        task_id=task.id,
        status="cancel_requested" if waits else task.state.value,
        was_executing=was_executing,
        worker_notified=has_heard_of_cancel(asked, task),
        cancellation_time=maybe_iso(cancelled_at(asked)),
    )
    return Answer(answer, status=202 if waits else 200)


ENDPOINTS = (
    serve(task_endpoints.SUBMIT_TASK, submit),
    serve(task_endpoints.LIST_TASKS, list_tasks),
    serve(task_endpoints.SHOW_TASK, show),
    serve(task_endpoints.EXPLAIN_TASK, explain),
    serve(task_endpoints.CANCEL_TASK, cancel),
)
