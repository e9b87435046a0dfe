"""Queues, the circuits of task types, and schedules: set and changed while everything runs."""

from __future__ import annotations

from typing import Any, Final

from fairlead.admin.circuits import api as circuits_api
from fairlead.admin.circuits.api import CircuitList, CircuitRequest, circuit_shown, circuits_shown, settings_of
from fairlead.admin.queues import api as queues_api
from fairlead.admin.queues.api import (
    PurgeNoted,
    PurgeRequest,
    QueueChange,
    QueueList,
    TypeNoted,
    options_of,
    queue_shown,
)
from fairlead.admin.schedules import api as schedules_api
from fairlead.admin.schedules.api import (
    DeclaredSchedules,
    PreviewQuery,
    ScheduleFields,
    ScheduleList,
    ScheduleRequest,
    SchedulesDeclared,
    previewed,
    schedule_of,
    shown,
)
from fairlead.admin.tenants import api as tenants_api
from fairlead.admin.tenants.api import TenantsQuery, tenants_shown
from fairlead.admin.types import api as types_api
from fairlead.admin.types.api import TaskTypeList, TaskTypesPublished, TaskTypesRequest, declaration_in, type_shown
from fairlead.core.circuit import Circuit
from fairlead.core.errors import InvalidTask, ScheduleNotFound
from fairlead.core.identity import check_name
from fairlead.core.queues.queue import QueueSettings
from fairlead.core.tenancy import Role
from fairlead.server.endpoint import Answer, Call, EndpointGroup, called, named, serve
from fairlead.server.http.problems import Refusal
from fairlead.wire.endpoint import Empty
from fairlead.wire.tasks import created

_SHOWN = 64


async def list_schedules(call: Call[Empty, None]) -> Answer:
    """List the schedules by name, each with its state."""
    return Answer(ScheduleList(schedules=[shown(entry) for entry in await call.view.engine.schedules.all()]))


async def add_schedule(call: Call[Empty, ScheduleRequest]) -> Answer:
    """Add a schedule. Servers and workers fire it from its next fire time on, each fire time once."""
    request = call.body
    schedule = schedule_of(request.name, request, call.view.tenant_of(request.task.tenant))
    return Answer(shown(await call.view.engine.schedules.add(schedule, paused=bool(request.paused))), status=201)


async def put_schedule(call: Call[Empty, ScheduleFields]) -> Answer:
    """Add a schedule, or replace the one by this name.

    A replaced schedule keeps its history, and its next fire time changes only if the recurrence changes.
    """
    request, name = call.body, call.path["schedule"]
    schedule = schedule_of(name, request, call.view.tenant_of(request.task.tenant))
    done = await call.view.engine.schedules.put(schedule, paused=request.paused)
    return Answer(shown(done.entry), status=201 if done.created else 200)


async def declare_schedules(call: Call[Empty, DeclaredSchedules]) -> Answer:
    """Put the schedules that a worker's program declares. Besides `work`, the key needs the role `submit`.

    They submit task types that the worker handles, to queues that it serves, and replace none that submits others. One
    that is as it is declared already is left alone.
    """
    view = call.view
    if call.body.schedules and not view.principal.may(Role.SUBMIT):
        raise Refusal(
            "forbidden",
            "a schedule submits tasks, and this key has no role for that; use a key that has the role submit as well",
            remedy="use a key that has the roles work and submit",
        )
    worker = await view.worker(call.path["worker_id"])
    schedules = [schedule_of(each.name, each, view.tenant_of(each.task.tenant)) for each in call.body.schedules]
    await view.engine.schedules.declare(schedules, worker)
    return Answer(SchedulesDeclared(declared=len(schedules)))


async def run_schedule(call: Call[Empty, None]) -> Answer:
    """Submit a schedule's task at once, whether it is paused or not; its fire times stay as they are."""
    task = await call.view.run_schedule(_schedule_name(call))
    return Answer(created(task, None, existing=False), status=201)


async def preview_schedule(call: Call[PreviewQuery, None]) -> Answer:
    """Show the next fire times of a schedule, as if it were not paused, including changes to and from summer time."""
    schedule, times = await call.view.engine.schedules.preview(_schedule_name(call), call.query.count)
    return Answer(previewed(schedule, times))


def _schedule_name(call: Call[Any, Any]) -> str:
    """The name in the path; what cannot be one is that of no schedule."""
    name = call.path["schedule"]
    try:
        return check_name("name", name)
    except InvalidTask:
        raise ScheduleNotFound(name[:_SHOWN]) from None


PURGE_LIMIT: Final = 50_000
"""How many tasks one request removes at most, so that it is answered in time."""


async def list_queues(call: Call[Empty, None]) -> Answer:
    """List the queues that have tasks or settings of their own, and the task types that are paused."""
    view = call.view
    own, stats = await view.engine.queues(), await view.stats()
    names = sorted({*own, *stats.queues})
    shown = [queue_shown(name, own.get(name, QueueSettings()), stats.queues.get(name)) for name in names]
    return Answer(QueueList(queues=shown, paused_types=await view.engine.paused_types(stats)))


async def show_queue(call: Call[Empty, None]) -> Answer:
    """Show a queue. One that nobody has used or changed has no tasks and no settings of its own."""
    name = named(call, "queue")
    return await _queue_answer(call, name, await call.view.engine.queue(name))


async def change_queue(call: Call[Empty, QueueChange]) -> Answer:
    """Change a queue's bound, its order of service, the defaults of its tasks or its tenant.

    It applies from the next claim or submit on. A queue that is bound to a tenant takes that tenant's tasks only: a
    task that names none becomes its own. To be bound it must hold no task of others, ended ones included.
    """
    state, name = call.state, named(call, "queue")
    return await _queue_answer(call, name, await state.engine.queues.change(name, **options_of(call.body)))


async def pause_queue(call: Call[Empty, None]) -> Answer:
    """Pause a queue: its tasks wait until it is resumed. It still takes tasks, and running ones continue."""
    state, name = call.state, named(call, "queue")
    return await _queue_answer(call, name, await state.engine.queues.pause(name))


async def resume_queue(call: Call[Empty, None]) -> Answer:
    """Resume a paused queue: its tasks are claimed again."""
    state, name = call.state, named(call, "queue")
    return await _queue_answer(call, name, await state.engine.queues.resume(name))


async def purge_queue(call: Call[Empty, PurgeRequest]) -> Answer:
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


async def _queue_answer(call: Call[Any, Any], name: str, own: QueueSettings) -> Answer:
    stats = await call.view.stats()
    return Answer(queue_shown(name, own, stats.queues.get(name)))


async def list_types(call: Call[Empty, None]) -> Answer:
    """List the task types that workers have published, with the options that a submit of each gets."""
    return Answer(TaskTypeList(types=[type_shown(each) for each in await call.view.engine.types.all()]))


async def declare_types(call: Call[Empty, TaskTypesRequest]) -> Answer:
    """Publish task types, in place of what was published of them before: the newest word counts.

    Workers in Python do so when they start. A submit over HTTP, by the command line or by name gets these options
    unless it says otherwise. A caller that is bound to a tenant publishes them for that tenant's submits only.
    """
    for each in call.body.types:
        call.view.tenant_of(each.options.tenant)
    types = call.view.engine.types
    await types.declare(declaration_in(each, call.body.worker_id) for each in call.body.types)
    return Answer(TaskTypesPublished(published=len(call.body.types)))


async def list_tenants(call: Call[TenantsQuery, None]) -> Answer:
    """List who shares the queues that are shared by fair keys, such as tenants: what waits and runs of each.

    With a key that is bound to a tenant, only the shares of that tenant are listed.
    """
    return Answer(tenants_shown(await call.view.engine.tenants.all(call.query.queue)))


async def list_circuits(call: Call[Empty, None]) -> Answer:
    """List the circuit breakers and their states."""
    engine = call.state.engine
    return Answer(CircuitList(circuits=circuits_shown(await engine.circuits.all(), engine.clock.now())))


async def put_circuit(call: Call[Empty, CircuitRequest]) -> Answer:
    """Set the circuit breaker of a task type, or change its settings; its state stays as it is."""
    circuits, name = call.state.engine.circuits, named(call, "task_type")
    settings = settings_of(call.body)
    if call.body.declared:
        await circuits.declare({name: settings})
        return _circuit_answer(call, name, await circuits.get(name))
    return _circuit_answer(call, name, await circuits.set(name, settings))


def _circuit_answer(call: Call[Any, Any], name: str, circuit: Circuit) -> Answer:
    return Answer(circuit_shown(name, circuit, call.state.engine.clock.now()))


ENDPOINTS = (
    *EndpointGroup("schedules", "Schedules: named entries that submit a task again and again.").of(
        *called(schedules_api),
        serve(schedules_api.LIST_SCHEDULES, list_schedules),
        serve(schedules_api.ADD, add_schedule, "add"),
        serve(schedules_api.PUT, put_schedule, "put"),
        serve(schedules_api.DECLARE, declare_schedules, "declare"),
        serve(schedules_api.RUN, run_schedule, "run"),
        serve(schedules_api.PREVIEW, preview_schedule, "preview"),
    ),
    *EndpointGroup(
        "queues",
        "Queues: paused and resumed, bounded, ordered, purged, while everything runs. "
        "A change applies within a second.",
    ).of(
        serve(queues_api.LIST_QUEUES, list_queues),
        serve(queues_api.SHOW, show_queue, "show"),
        serve(queues_api.CHANGE, change_queue, "change"),
        serve(queues_api.PAUSE, pause_queue, "pause"),
        serve(queues_api.RESUME, resume_queue, "resume"),
        serve(queues_api.PURGE, purge_queue, "purge"),
        serve(queues_api.PAUSE_TYPE, pause_type),
        serve(queues_api.RESUME_TYPE, resume_type),
    ),
    *EndpointGroup("types", "Task types, as workers have published them, for submits that know a name only.").of(
        *called(types_api),
        serve(types_api.LIST_TYPES, list_types),
        serve(types_api.DECLARE_TYPES, declare_types),
    ),
    *EndpointGroup("tenants", "Tenants, or other fair keys: who shares a queue, turn by turn.").of(
        serve(tenants_api.LIST_TENANTS, list_tenants),
    ),
    *EndpointGroup(
        "circuits",
        "Circuit breakers: a task type that keeps failing is not claimed for a while. "
        "A change applies within a second.",
    ).of(
        *called(circuits_api),
        serve(circuits_api.LIST_CIRCUITS, list_circuits),
        serve(circuits_api.PUT, put_circuit, "put"),
    ),
)
