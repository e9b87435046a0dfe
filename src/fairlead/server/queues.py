"""Queues: paused and resumed, bounded, ordered, purged, while everything runs. A change counts within a second."""

from __future__ import annotations

from typing import Any, Final

from fairlead.core.errors import InvalidTask
from fairlead.core.identity import check_name
from fairlead.core.queue import QueueSettings
from fairlead.server.endpoint import Answer, Call, Empty, Endpoint
from fairlead.server.principal import Role
from fairlead.server.refusals import Refusal
from fairlead.wire.queues import (
    PurgeNoted,
    PurgeRequest,
    QueueChange,
    QueueList,
    QueueShown,
    TypeNoted,
    changes_of,
    queue_shown,
)

PURGE_LIMIT: Final = 50_000
"""How many tasks one request removes at most, so that it is answered in time."""

_SHOWN: Final = 64


async def list_queues(call: Call[Empty, None]) -> Answer:
    """List the queues that have tasks or settings of their own, and the task types that are paused."""
    queues = call.hub.engine.queues
    own, stats = await queues.all(), await call.hub.depths.stats()
    names = sorted({*own, *stats.queues})
    shown = [queue_shown(name, own.get(name, QueueSettings()), stats.queues.get(name)) for name in names]
    return Answer(QueueList(queues=shown, paused_types=await queues.paused_types()))


async def show(call: Call[Empty, None]) -> Answer:
    """Show a queue. One that nobody has used or changed has no tasks and no settings of its own."""
    name = _queue(call)
    return await _answer(call, name, await call.hub.engine.queues.get(name))


async def change(call: Call[Empty, QueueChange]) -> Answer:
    """Change a queue's bound, its order of service or the defaults of its tasks, from the next claim or submit on."""
    name = _changed_queue(call)
    return await _answer(call, name, await call.hub.engine.queues.change(name, **changes_of(call.body)))


async def pause(call: Call[Empty, None]) -> Answer:
    """Have a queue's tasks wait until it is resumed. It still takes tasks, and what runs goes on."""
    name = _changed_queue(call)
    return await _answer(call, name, await call.hub.engine.queues.pause(name))


async def resume(call: Call[Empty, None]) -> Answer:
    """Let a paused queue's tasks be claimed again."""
    name = _changed_queue(call)
    return await _answer(call, name, await call.hub.engine.queues.resume(name))


async def purge(call: Call[Empty, PurgeRequest]) -> Answer:
    """Remove the tasks that wait in a queue, for good, the oldest first. What runs goes on.

    One request removes at most 50,000; `complete` says whether there may be more.
    """
    name = _changed_queue(call)
    if call.body.confirm != name:
        remedy = "name the queue again to confirm that its tasks are to be removed"
        raise Refusal(
            "invalid-value",
            f"confirm is not {name!r}; {remedy}",
            field="confirm",
            value=call.body.confirm,
            remedy=remedy,
        )
    done = await call.hub.engine.queues.purge(name, PURGE_LIMIT)
    return Answer(PurgeNoted(queue=name, scheduled=done.scheduled, queued=done.queued, complete=done.complete))


async def pause_type(call: Call[Empty, None]) -> Answer:
    """Have the tasks of a type wait, in whatever queue, until it is resumed; what runs goes on."""
    name = changed_task_type(call)
    await call.hub.engine.queues.pause_type(name)
    return Answer(TypeNoted(task_type=name, paused=True))


async def resume_type(call: Call[Empty, None]) -> Answer:
    """Let the tasks of a paused type be claimed again."""
    name = changed_task_type(call)
    await call.hub.engine.queues.resume_type(name)
    return Answer(TypeNoted(task_type=name, paused=False))


async def _answer(call: Call[Any, Any], name: str, own: QueueSettings) -> Answer:
    stats = await call.hub.depths.stats()
    return Answer(queue_shown(name, own, stats.queues.get(name)))


def _queue(call: Call[Any, Any]) -> str:
    return named(call, "queue")


def _changed_queue(call: Call[Any, Any]) -> str:
    check_everybodys(call)
    return named(call, "queue")


def changed_task_type(call: Call[Any, Any]) -> str:
    """The task type in the path, of a caller who may change what concerns all tenants."""
    check_everybodys(call)
    return named(call, "task_type")


def check_everybodys(call: Call[Any, Any]) -> None:
    """Refuse a caller whose key is bound to a tenant: what it wants concerns the tasks of all tenants."""
    if call.principal.tenant is not None:
        remedy = "use a key that is bound to none"
        raise Refusal("forbidden", f"this concerns all tenants, and the key is bound to one; {remedy}", remedy=remedy)


def named(call: Call[Any, Any], what: str) -> str:
    """The name in the path; what cannot be one is the name of nothing."""
    name = call.path[what]
    try:
        return check_name(what, name)
    except InvalidTask:
        raise Refusal(
            "not-found",
            f"there can be no {what} {name[:_SHOWN]!r}; check its name",
            field=what,
            remedy="check its name",
        ) from None


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/queues",
        handler=list_queues,
        summary="List the queues",
        role=Role.READ,
        answers={200: QueueList},
    ),
    Endpoint(
        method="GET",
        path="/api/v1/queues/{queue}",
        handler=show,
        summary="Show a queue",
        role=Role.READ,
        answers={200: QueueShown},
        problems=(404,),
    ),
    Endpoint(
        method="PATCH",
        path="/api/v1/queues/{queue}",
        handler=change,
        summary="Change a queue",
        role=Role.ADMIN,
        body=QueueChange,
        answers={200: QueueShown},
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/api/v1/queues/{queue}/pause",
        handler=pause,
        summary="Pause a queue",
        role=Role.ADMIN,
        answers={200: QueueShown},
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/api/v1/queues/{queue}/resume",
        handler=resume,
        summary="Resume a queue",
        role=Role.ADMIN,
        answers={200: QueueShown},
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/api/v1/queues/{queue}/purge",
        handler=purge,
        summary="Purge a queue",
        role=Role.ADMIN,
        body=PurgeRequest,
        answers={200: PurgeNoted},
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/api/v1/task-types/{task_type}/pause",
        handler=pause_type,
        summary="Pause a task type",
        role=Role.ADMIN,
        answers={200: TypeNoted},
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/api/v1/task-types/{task_type}/resume",
        handler=resume_type,
        summary="Resume a task type",
        role=Role.ADMIN,
        answers={200: TypeNoted},
        problems=(404,),
    ),
)
