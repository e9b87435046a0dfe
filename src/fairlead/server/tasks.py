"""Submitting tasks, looking at them and cancelling them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from fairlead.core.task import State
from fairlead.server.endpoint import Answer, Call, Empty, Endpoint
from fairlead.server.intake import traceparent_of
from fairlead.server.listing import ListQuery, TaskPage, page
from fairlead.server.principal import Role
from fairlead.server.refusals import Refusal
from fairlead.server.tenancy import check_holder, check_seen, may_await, seen_task_id, task_id_of, tenant_of
from fairlead.wire.explanations import ExplanationShown, explanation_shown
from fairlead.wire.shown import TaskWhole, whole
from fairlead.wire.tasks import SubmitRequest, TaskCreated, created, submission_of

CANCEL_WAIT = 2.0
"""How long the answer to a cancel waits for the worker, in seconds, unless it is asked to wait otherwise."""


class ShowQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a task is shown, and when."""

    include_history: bool = False
    """Whether to tell every transition too."""
    wait: Annotated[float, Meta(ge=0)] = 0.0
    """How many seconds to wait for the task to end; the server may wait for less."""


class CancelQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a cancel waits."""

    wait: Annotated[float, Meta(ge=0)] = CANCEL_WAIT
    """How many seconds to wait for the worker of an executing task to stop it; the server may wait for less."""


class TaskCancelled(Struct, frozen=True, kw_only=True):
    """How a task stands after it was cancelled."""

    task_id: str
    status: str
    """`cancelled`, or `cancel_requested` while its worker has yet to stop it. An executing task may also have ended
    before the worker heard of it; then this is how."""
    was_executing: bool
    """Whether a worker had it when cancel was asked."""


async def submit(call: Call[Empty, SubmitRequest]) -> Answer:
    """Store a task; it is durable when this is answered.

    With an `idempotency_key` that is known, the first task that it named is answered, with status 200. If no live
    worker could run the task, it is stored all the same and `warnings` says why.
    """
    hub, request = call.hub, call.body
    tenant, traceparent = tenant_of(call.principal, request.tenant), traceparent_of(call.scope["headers"])
    submission = submission_of(request, tenant, traceparent)
    if submission.after:
        (refused,) = await may_await(hub, call.principal, [submission])
        if isinstance(refused, Refusal):
            raise refused
    counted = await hub.depths.ready()
    submitted = await hub.engine.submit(submission)
    task = submitted.task
    if submitted.existing:
        return Answer(created(check_holder(call.principal, task), None, existing=True))
    position = hub.depths.position(task) if counted else None
    return Answer(created(task, position, existing=False, warnings=await hub.warnings(submitted)), status=201)


async def show(call: Call[ShowQuery, None]) -> Answer:
    """Show everything about a task.

    With `wait`, the answer comes when the task has ended, or after so many seconds as it then stands.
    """
    hub, query = call.hub, call.query
    task_id = task_id_of(call)
    task = check_seen(call, await hub.engine.get(task_id))
    if query.wait and not task.state.ended:
        task = await hub.endings.wait(task_id, min(query.wait, hub.settings.wait_seconds))
    table = (await hub.tables())(task.spec.queue)
    return Answer(whole(task, table, hub.engine.clock.now(), history=query.include_history))


async def explain(call: Call[Empty, None]) -> Answer:
    """Say why a task waits, or why it ran when it ran.

    Of a queued task: its place in line, when it is promoted, from when on nothing new can pass it, who could take it or
    why nobody can, and when it will start, with what is assumed. Of an executing or ended one: each attempt, how long
    it had waited, and what it came after.
    """
    told = await call.hub.engine.explain(await seen_task_id(call))
    return Answer(explanation_shown(told))


async def list_tasks(call: Call[ListQuery, None]) -> Answer:
    """List tasks, the newest first unless asked otherwise.

    `next_cursor` of one page, as `cursor`, gives the next one; it is null on the last. With a key that is bound to a
    tenant, or with `q`, a page may have fewer tasks than asked for, or none, and still not be the last: one request
    looks at a bounded number of tasks. A mistake in `q` is a problem of type `invalid-query`, with carets under it.
    """
    return Answer(await page(call, call.query.filter(), call.query, call.query.q))


async def cancel(call: Call[CancelQuery, None]) -> Answer:
    """Cancel a task: at once if it waits; if it is executing, its worker is asked to stop it.

    The answer waits a little for that worker. If it has not stopped the task by then the status is 202 and
    `cancel_requested`; the task ends when the worker does stop it, or loses its lease. A task that has ended cannot be
    cancelled.
    """
    hub = call.hub
    task = await hub.engine.cancel(await seen_task_id(call))
    was_executing = task.state is State.EXECUTING
    if was_executing and call.query.wait:
        task = await hub.endings.wait(task.id, min(call.query.wait, hub.settings.wait_seconds))
    waits = task.state is State.EXECUTING
    answer = TaskCancelled(
        task_id=task.id, status="cancel_requested" if waits else task.state.value, was_executing=was_executing
    )
    return Answer(answer, status=202 if waits else 200)


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/v1/tasks",
        handler=submit,
        summary="Submit a task",
        role=Role.SUBMIT,
        body=SubmitRequest,
        answers={201: TaskCreated, 200: TaskCreated},
    ),
    Endpoint(
        method="GET",
        path="/api/v1/tasks",
        handler=list_tasks,
        summary="List tasks",
        role=Role.READ,
        query=ListQuery,
        answers={200: TaskPage},
    ),
    Endpoint(
        method="GET",
        path="/api/v1/tasks/{task_id}",
        handler=show,
        summary="Show a task",
        role=Role.READ,
        query=ShowQuery,
        answers={200: TaskWhole},
        problems=(404,),
    ),
    Endpoint(
        method="GET",
        path="/api/v1/tasks/{task_id}/explain",
        handler=explain,
        summary="Explain a task",
        role=Role.READ,
        answers={200: ExplanationShown},
        problems=(404,),
    ),
    Endpoint(
        method="DELETE",
        path="/api/v1/tasks/{task_id}",
        handler=cancel,
        summary="Cancel a task",
        role=Role.SUBMIT,
        query=CancelQuery,
        answers={200: TaskCancelled, 202: TaskCancelled},
        problems=(404, 409),
    ),
)
