"""Operations: one action on all tasks that match a query, done in batches by whichever process sweeps the store."""

from __future__ import annotations

from typing import Any

from fairlead.admin.operations import api
from fairlead.admin.operations.api import (
    OperationList,
    OperationPreview,
    OperationRequest,
    new_operation,
    operation_shown,
)
from fairlead.server.endpoint import Answer, Call, called, serve
from fairlead.wire.endpoint import Empty
from fairlead.wire.task_shown import brief
from fairlead.wire.times import iso


async def start(call: Call[Empty, OperationRequest]) -> Answer:
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


async def pause(call: Call[Empty, None]) -> Answer:
    """Pause an operation until it is resumed; the current batch is finished first."""
    note = f"{call.principal.name} paused it"
    return Answer(operation_shown(await call.view.engine.operations.pause(_id(call), note)))


async def cancel(call: Call[Empty, None]) -> Answer:
    """Cancel an operation; tasks that were changed stay changed."""
    note = f"{call.principal.name} cancelled it"
    return Answer(operation_shown(await call.view.engine.operations.cancel(_id(call), note)))


def _id(call: Call[Any, Any]) -> str:
    return call.path["operation_id"][:64]


ENDPOINTS = (
    *called(api),
    serve(api.START, start),
    serve(api.LIST_OPERATIONS, list_operations),
    serve(api.PAUSE, pause),
    serve(api.CANCEL, cancel),
)
