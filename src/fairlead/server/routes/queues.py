"""Queues: paused and resumed, bounded, ordered, purged, while everything runs. A change applies within a second."""

from __future__ import annotations

from typing import Any, Final

from fairlead.admin.queues import api
from fairlead.admin.queues.api import (
    PurgeNoted,
    PurgeRequest,
    QueueChange,
    QueueList,
    TypeNoted,
    options_of,
    queue_shown,
)
from fairlead.core.queues.queue import QueueSettings
from fairlead.server.endpoint import Answer, Call, named, serve
from fairlead.server.http.problems import Refusal
from fairlead.wire.endpoint import Empty

PURGE_LIMIT: Final = 50_000
"""How many tasks one request removes at most, so that it is answered in time."""


async def list_queues(call: Call[Empty, None]) -> Answer:
    """List the queues that have tasks or settings of their own, and the task types that are paused."""
    view = call.view
    own, stats = await view.engine.queues(), await view.stats()
    names = sorted({*own, *stats.queues})
    shown = [queue_shown(name, own.get(name, QueueSettings()), stats.queues.get(name)) for name in names]
    return Answer(QueueList(queues=shown, paused_types=await view.engine.paused_types(stats)))


async def show(call: Call[Empty, None]) -> Answer:
    """Show a queue. One that nobody has used or changed has no tasks and no settings of its own."""
    name = named(call, "queue")
    return await _answer(call, name, await call.view.engine.queue(name))


async def change(call: Call[Empty, QueueChange]) -> Answer:
    """Change a queue's bound, its order of service, the defaults of its tasks or its tenant.

    It applies from the next claim or submit on. A queue that is bound to a tenant takes that tenant's tasks only: a
    task that names none becomes its own. To be bound it must hold no task of others, ended ones included.
    """
    state, name = call.state, named(call, "queue")
    return await _answer(call, name, await state.engine.queues.change(name, **options_of(call.body)))


async def pause(call: Call[Empty, None]) -> Answer:
    """Pause a queue: its tasks wait until it is resumed. It still takes tasks, and running ones continue."""
    state, name = call.state, named(call, "queue")
    return await _answer(call, name, await state.engine.queues.pause(name))


async def resume(call: Call[Empty, None]) -> Answer:
    """Resume a paused queue: its tasks are claimed again."""
    state, name = call.state, named(call, "queue")
    return await _answer(call, name, await state.engine.queues.resume(name))


async def purge(call: Call[Empty, PurgeRequest]) -> Answer:
    """Delete the waiting tasks of a queue for good, the oldest first. Running tasks continue.

    One request removes at most 50,000; `complete` says whether there may be more.
    """
    state, name = call.state, named(call, "queue")
    if call.body.confirm != name:
        remedy = "name the queue again to confirm that its tasks are to be removed"
        raise Refusal(
            "invalid-value",
            f"confirm is not {name!r}; {remedy}",
            field="confirm",
            value=call.body.confirm,
            remedy=remedy,
        )
    done = await state.engine.queues.purge(name, PURGE_LIMIT)
    return Answer(PurgeNoted(queue=name, scheduled=done.scheduled, queued=done.queued, complete=done.complete))


async def pause_type(call: Call[Empty, None]) -> Answer:
    """Pause a task type: its tasks wait, in every queue, until it is resumed; running ones continue."""
    state, name = call.state, named(call, "task_type")
    await state.engine.queues.pause_type(name)
    return Answer(TypeNoted(task_type=name, paused=True))


async def resume_type(call: Call[Empty, None]) -> Answer:
    """Resume a paused task type: its tasks are claimed again."""
    state, name = call.state, named(call, "task_type")
    await state.engine.queues.resume_type(name)
    return Answer(TypeNoted(task_type=name, paused=False))


async def _answer(call: Call[Any, Any], name: str, own: QueueSettings) -> Answer:
    stats = await call.view.stats()
    return Answer(queue_shown(name, own, stats.queues.get(name)))


ENDPOINTS = (
    serve(api.LIST_QUEUES, list_queues),
    serve(api.SHOW, show),
    serve(api.CHANGE, change),
    serve(api.PAUSE, pause),
    serve(api.RESUME, resume),
    serve(api.PURGE, purge),
    serve(api.PAUSE_TYPE, pause_type),
    serve(api.RESUME_TYPE, resume_type),
)
