"""Operations: one action on all tasks that a query means, done in batches by whichever process sweeps the store."""

from __future__ import annotations

from typing import Any

from fairlead.core.errors import OperationNotFound
from fairlead.core.operation import Operation
from fairlead.server.endpoint import Answer, Call, Empty, Endpoint
from fairlead.server.principal import Role
from fairlead.wire.moments import iso
from fairlead.wire.operations import (
    OperationList,
    OperationPreview,
    OperationRequest,
    OperationShown,
    operation_shown,
    wish_of,
)
from fairlead.wire.shown import brief


async def start(call: Call[Empty, OperationRequest]) -> Answer:
    """Begin an operation, or with `dry_run` say what it would act on, with status 200.

    It goes on by itself, also when the server is restarted; look at it to see how far it is. What the query means is
    fixed at `as_of`: tasks that are submitted, or end, later are left alone. A mistake in the query is a problem of
    type `invalid-query`, with carets under it.
    """
    hub, principal = call.hub, call.principal
    wish = wish_of(call.body, who=principal.name, tenant=principal.tenant)
    if not call.body.dry_run:
        return Answer(operation_shown(await hub.engine.operations.start(wish)), status=201)
    preview = await hub.engine.operations.preview(wish)
    now, table_of = hub.engine.clock.now(), await hub.tables()
    sample = [brief(task, table_of(task.spec.queue), now) for task in preview.sample]
    return Answer(OperationPreview(as_of=iso(preview.as_of), count=preview.count, exact=preview.exact, sample=sample))


async def list_operations(call: Call[Empty, None]) -> Answer:
    """List the operations, the newest first. An operation is kept until 30 days after its end."""
    kept = await call.hub.engine.operations.all()
    return Answer(OperationList(operations=[operation_shown(each) for each in kept if _may_see(call, each)]))


async def show(call: Call[Empty, None]) -> Answer:
    """Show how far an operation is."""
    return Answer(operation_shown(await _seen(call)))


async def pause(call: Call[Empty, None]) -> Answer:
    """Stop an operation until it is resumed; the batch under way is still done."""
    operation = await _seen(call)
    note = f"{call.principal.name} paused it"
    return Answer(operation_shown(await call.hub.engine.operations.pause(operation.id, note)))


async def resume(call: Call[Empty, None]) -> Answer:
    """Let an operation go on from where it was; also past its canary."""
    operation = await _seen(call)
    return Answer(operation_shown(await call.hub.engine.operations.resume(operation.id)))


async def cancel(call: Call[Empty, None]) -> Answer:
    """End an operation; what is done stays done."""
    operation = await _seen(call)
    note = f"{call.principal.name} cancelled it"
    return Answer(operation_shown(await call.hub.engine.operations.cancel(operation.id, note)))


def _may_see(call: Call[Any, Any], operation: Operation) -> bool:
    return call.principal.tenant is None or operation.tenant == call.principal.tenant


async def _seen(call: Call[Any, Any]) -> Operation:
    """The operation in the path, which must be there for the caller."""
    named = call.path["operation_id"]
    operation = await call.hub.engine.operations.get(named[:64])
    if not _may_see(call, operation):
        raise OperationNotFound(named[:64])
    return operation


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/v1/operations",
        handler=start,
        summary="Begin an operation",
        role=Role.ADMIN,
        body=OperationRequest,
        answers={201: OperationShown, 200: OperationPreview},
        problems=(409,),
    ),
    Endpoint(
        method="GET",
        path="/api/v1/operations",
        handler=list_operations,
        summary="List the operations",
        role=Role.READ,
        answers={200: OperationList},
    ),
    Endpoint(
        method="GET",
        path="/api/v1/operations/{operation_id}",
        handler=show,
        summary="Show an operation",
        role=Role.READ,
        answers={200: OperationShown},
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/api/v1/operations/{operation_id}/pause",
        handler=pause,
        summary="Pause an operation",
        role=Role.ADMIN,
        answers={200: OperationShown},
        problems=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/api/v1/operations/{operation_id}/resume",
        handler=resume,
        summary="Resume an operation",
        role=Role.ADMIN,
        answers={200: OperationShown},
        problems=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/api/v1/operations/{operation_id}/cancel",
        handler=cancel,
        summary="Cancel an operation",
        role=Role.ADMIN,
        answers={200: OperationShown},
        problems=(404, 409),
    ),
)
