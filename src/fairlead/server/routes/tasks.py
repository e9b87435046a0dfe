"""Tasks: submitted, listed and cancelled; dead letters; and operations on all tasks that a query means."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

from fairlead.admin.dead_letters import api as dead_letters_api
from fairlead.admin.dead_letters.api import DeadLetterPage, DeadLetterQuery, GroupsQuery, ReplayRequest, groups_shown
from fairlead.admin.operations import api as operations_api
from fairlead.admin.operations.api import (
    OperationList,
    OperationPreview,
    OperationRequest,
    new_operation,
    operation_shown,
)
from fairlead.core.errors import WrongState
from fairlead.core.identity import TaskId, WorkerId, check_name
from fairlead.core.query.parser import parse_query
from fairlead.core.query.query import EVERYTHING
from fairlead.core.task import Priority, State, Task
from fairlead.core.tenancy import Role
from fairlead.core.transitions import cancelled_at, has_heard_of_cancel
from fairlead.engine.runtime.event_loop import Turn
from fairlead.engine.search import Found
from fairlead.server.caller_view import View
from fairlead.server.endpoint import Answer, Call, EndpointGroup, called, serve, task_id_of
from fairlead.server.http.problems import Refusal
from fairlead.server.submit import traceparent_of
from fairlead.storage.values import Filter
from fairlead.wire import task_endpoints
from fairlead.wire.endpoint import Empty
from fairlead.wire.explanations import explanation_shown
from fairlead.wire.task_endpoints import (
    CancelQuery,
    ListQuery,
    Order,
    PageQuery,
    ShowQuery,
    SubmitQuery,
    TaskCancelled,
    TaskPage,
    cursor_after,
    place_of,
)
from fairlead.wire.task_shown import TaskListed, brief, listed, whole
from fairlead.wire.tasks import SubmitRequest, submission_of
from fairlead.wire.text import instant_of, iso, maybe_iso

MOST_PARAMETERS = 8 * 1024 * 1024
"""How many bytes of parameters one page tells; a page that would tell more ends early."""


def filter_of(query: ListQuery) -> Filter:
    """The tasks asked for."""
    return Filter(
        states=frozenset(_state(word) for word in query.status.split(",")) if query.status is not None else frozenset(),
        queue=_name("queue", query.queue),
        type=_name("task_type", query.task_type),
        priority=None if query.priority is None else Priority.parse(query.priority),
        worker=None if query.worker is None else _worker(query.worker),
        tag=_name("tag", query.tag),
        created_from=None if query.created_from is None else instant_of(query.created_from),
        created_before=None if query.created_before is None else instant_of(query.created_before),
    )


async def page(call: Call[Any, Any], matching: Filter, query: PageQuery, q: str | None = None) -> TaskPage:
    """The page that is asked for, of what is there for the caller.

    A search looks at a bounded number of tasks, so its page may not be full and still not be the last.
    """
    view = call.view
    place = None if query.cursor is None else _place(query.cursor, query.order)
    newest_first = query.order == "newest"
    if q is None:
        found = await view.engine.find(matching, limit=query.limit, newest_first=newest_first, after=place)
    else:
        sought = parse_query(q)
        found = await view.engine.search(
            sought, within=matching, limit=query.limit, newest_first=newest_first, after=place
        )
    if query.include_parameters:
        found = _bounded(found)
    return TaskPage(
        tasks=await _shown(view, found.tasks, parameters=query.include_parameters),
        next_cursor=None if found.cursor is None else cursor_after(found.cursor, query.order),
    )


async def _shown(view: View, tasks: Sequence[Task], *, parameters: bool) -> list[TaskListed]:
    now, table_of = view.now, await view.tables()
    turn = Turn(len(tasks))
    shown: list[TaskListed] = []
    for task in tasks:
        if turn.is_over:
            await turn.next()
        shown.append(listed(task, table_of(task.spec.queue), now, parameters=parameters))
    return shown


def _bounded(found: Found) -> Found:
    """A page cut after the task with which its parameters reach their limit."""
    sizes = itertools.accumulate(len(task.spec.parameters) for task in found.tasks)
    kept = 1 + sum(size < MOST_PARAMETERS for size in sizes)
    return Found(found.tasks[:kept], found.tasks[kept - 1].id) if kept < len(found.tasks) else found


def _place(cursor: str, order: Order) -> TaskId:
    place = place_of(cursor, order)
    if place is not None:
        return place
    remedy = "use next_cursor of the page before, in the same order, or leave it out"
    raise Refusal(
        "invalid-value",
        f"cursor {cursor[:64]!r} does not belong to this order; {remedy}",
        field="cursor",
        value=cursor[:64],
        remedy=remedy,
    )


def _state(word: str) -> State:
    try:
        return State(word)
    except ValueError:
        raise _invalid("status", word, f"use one or more of {', '.join(State)}, separated by commas") from None


def _name(field: str, name: str | None) -> str | None:
    return None if name is None else check_name(field, name)


def _worker(worker: str) -> WorkerId:
    if not (1 <= len(worker) <= 200 and worker.isascii() and worker.isprintable() and " " not in worker):
        raise _invalid("worker", worker, "use the id of a worker, as a task that it executes shows it")
    return WorkerId(worker)


def _invalid(field: str, value: str, remedy: str) -> Refusal:
    shown = value[:64]
    return Refusal("invalid-value", f"{field} {shown!r} is unknown; {remedy}", field=field, value=shown, remedy=remedy)


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


REPLAYABLE = (State.DEAD_LETTER, State.FAILED, State.CANCELLED)


async def list_dead_letters(call: Call[DeadLetterQuery, None]) -> Answer:
    """List the dead letters, with their attempts, their last error and the reason, in pages like those of all tasks."""
    query, matching = call.query, _dead(call.query)
    found = await page(call, matching, query, query.q)
    sought = EVERYTHING if query.q is None else parse_query(query.q)
    total = await call.view.engine.count_dead_letters(sought, within=matching)
    return Answer(DeadLetterPage(tasks=found.tasks, next_cursor=found.next_cursor, total_count=total))


async def group_dead_letters(call: Call[GroupsQuery, None]) -> Answer:
    """Count the dead letters by type and by error: errors that differ only in ids, numbers and the like are one.

    A type that has reached its alert threshold, the setting `dead_letter_alert` or `dead_letter_alerts`, is marked. The
    `fingerprint` of a group finds its tasks: `q=fingerprint:…`.
    """
    sought = EVERYTHING if call.query.q is None else parse_query(call.query.q)
    return Answer(groups_shown(await call.view.engine.groups(sought, within=_dead(call.query))))


def _dead(query: DeadLetterQuery | GroupsQuery) -> Filter:
    return Filter(
        states=frozenset({State.DEAD_LETTER}),
        queue=None if query.queue is None else check_name("queue", query.queue),
        type=None if query.task_type is None else check_name("task_type", query.task_type),
    )


async def replay_dead_letter(call: Call[Empty, ReplayRequest]) -> Answer:
    """Queue a dead letter again; also a task that failed or was cancelled. Its crashes are forgotten."""
    view, request = call.view, call.body
    priority = None if request.new_priority is None else Priority.parse(request.new_priority)
    task = await view.engine.replay(task_id_of(call), reset_retries=request.reset_retry_count, priority=priority)
    return Answer(brief(task, (await view.tables())(task.spec.queue), view.now))


async def discard_dead_letter(call: Call[Empty, None]) -> Answer:
    """Remove a dead letter for good, or a task that failed or was cancelled; the answer is how it stood."""
    view = call.view
    task = await view.engine.get(task_id_of(call))
    if task.state not in REPLAYABLE:
        raise WrongState(task.id, task.state, "discard", REPLAYABLE)
    table = (await view.tables())(task.spec.queue)
    return Answer(brief(await view.engine.discard(task.id), table, view.now))


async def start_operation(call: Call[Empty, OperationRequest]) -> Answer:
    """Start an operation; with `dry_run`, only count the tasks that it would act on, with status 200.

    It continues by itself, even when the server is restarted; show it to see its progress. The set of tasks is fixed at
    `as_of`: tasks that are submitted, or end, later are left alone. A mistake in the query is a problem of type
    `invalid-query`, with carets under it.
    """
    view = call.view
    wanted = new_operation(call.body, who=call.principal.name)
    if not call.body.dry_run:
        return Answer(operation_shown(await view.engine.operations.start(wanted)), status=201)
    preview = await view.engine.operations.preview(wanted)
    now, table_of = view.now, await view.tables()
    sample = [brief(task, table_of(task.spec.queue), now) for task in preview.sample]
    return Answer(OperationPreview(as_of=iso(preview.as_of), count=preview.count, exact=preview.exact, sample=sample))


async def list_operations(call: Call[Empty, None]) -> Answer:
    """List the operations, the newest first. An operation is kept until 30 days after its end."""
    kept = await call.view.engine.operations.all()
    return Answer(OperationList(operations=[operation_shown(each) for each in kept]))


async def pause_operation(call: Call[Empty, None]) -> Answer:
    """Pause an operation until it is resumed; the current batch is finished first."""
    note = f"{call.principal.name} paused it"
    return Answer(operation_shown(await call.view.engine.operations.pause(_operation_id(call), note)))


async def cancel_operation(call: Call[Empty, None]) -> Answer:
    """Cancel an operation; tasks that were changed stay changed."""
    note = f"{call.principal.name} cancelled it"
    return Answer(operation_shown(await call.view.engine.operations.cancel(_operation_id(call), note)))


def _operation_id(call: Call[Any, Any]) -> str:
    return call.path["operation_id"][:64]


TASKS: Final = EndpointGroup("tasks", "Submitting tasks, looking at them and cancelling them.")

ENDPOINTS = (
    *TASKS.of(
        serve(task_endpoints.SUBMIT_TASK, submit),
        serve(task_endpoints.LIST_TASKS, list_tasks),
        serve(task_endpoints.SHOW_TASK, show),
        serve(task_endpoints.EXPLAIN_TASK, explain),
        serve(task_endpoints.CANCEL_TASK, cancel),
    ),
    *EndpointGroup(
        "dead_letters",
        "The dead letters: tasks whose retries are used up. They can be looked at, replayed and discarded.",
    ).of(
        serve(dead_letters_api.LIST_DEAD_LETTERS, list_dead_letters),
        serve(dead_letters_api.GROUPS, group_dead_letters, "groups"),
        serve(dead_letters_api.REPLAY, replay_dead_letter, "replay"),
        serve(dead_letters_api.DISCARD, discard_dead_letter, "discard"),
    ),
    *EndpointGroup(
        "operations",
        "Operations: one action on all tasks that match a query, "
        "done in batches by whichever process sweeps the store.",
    ).of(
        *called(operations_api),
        serve(operations_api.START, start_operation, "start"),
        serve(operations_api.LIST_OPERATIONS, list_operations),
        serve(operations_api.PAUSE, pause_operation, "pause"),
        serve(operations_api.CANCEL, cancel_operation, "cancel"),
    ),
)
