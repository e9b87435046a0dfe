"""Schedules: named entries that submit a task again and again."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from fairlead.core.errors import InvalidTask, ScheduleNotFound
from fairlead.core.identity import check_name
from fairlead.core.schedule import ScheduleEntry
from fairlead.engine.scheduling import MOST_PREVIEWED
from fairlead.server.endpoint import Answer, Call, Empty, Endpoint
from fairlead.server.principal import Principal, Role
from fairlead.server.refusals import Refusal
from fairlead.server.tenancy import tenant_of
from fairlead.wire.schedules import (
    ScheduleFields,
    ScheduleList,
    SchedulePreview,
    ScheduleRequest,
    ScheduleShown,
    previewed,
    schedule_of,
    shown,
)
from fairlead.wire.tasks import TaskCreated, created

_SHOWN = 64


class PreviewQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far to look ahead."""

    count: Annotated[int, Meta(ge=1, le=MOST_PREVIEWED)] = 10
    """How many fire times."""


async def list_schedules(call: Call[Empty, None]) -> Answer:
    """List the schedules by name, and how each stands."""
    entries = await call.hub.engine.schedules.all()
    return Answer(ScheduleList(schedules=[shown(entry) for entry in entries if _may_see(call.principal, entry)]))


async def add(call: Call[Empty, ScheduleRequest]) -> Answer:
    """Add a schedule. Servers and workers fire it from its next fire time on, each fire time once."""
    request = call.body
    schedule = schedule_of(request.name, request, tenant_of(call.principal, request.task.tenant))
    return Answer(shown(await call.hub.engine.schedules.add(schedule, paused=bool(request.paused))), status=201)


async def show(call: Call[Empty, None]) -> Answer:
    """Show a schedule and how it stands."""
    return Answer(shown(await _seen(call)))


async def put(call: Call[Empty, ScheduleFields]) -> Answer:
    """Add a schedule, or replace the one by this name.

    That one's past is kept. Its next fire time changes only if the times at which it recurs do.
    """
    request, name = call.body, call.path["schedule"]
    if call.principal.tenant is not None:
        await _check_own(call, name)
    schedule = schedule_of(name, request, tenant_of(call.principal, request.task.tenant))
    done = await call.hub.engine.schedules.put(schedule, paused=request.paused)
    return Answer(shown(done.entry), status=201 if done.created else 200)


async def remove(call: Call[Empty, None]) -> Answer:
    """Remove a schedule; the answer is how it stood. The tasks that it has submitted stay."""
    entry = await _seen(call)
    return Answer(shown(await call.hub.engine.schedules.remove(entry.name)))


async def pause(call: Call[Empty, None]) -> Answer:
    """Let a schedule fire no more until it is resumed."""
    entry = await _seen(call)
    return Answer(shown(await call.hub.engine.schedules.pause(entry.name)))


async def resume(call: Call[Empty, None]) -> Answer:
    """Let a paused schedule fire again, from its next fire time on. Those that passed meanwhile were not missed."""
    entry = await _seen(call)
    return Answer(shown(await call.hub.engine.schedules.resume(entry.name)))


async def run(call: Call[Empty, None]) -> Answer:
    """Submit a schedule's task at once, whether it is paused or not; its fire times stay as they are."""
    entry = await _seen(call)
    task = await call.hub.engine.schedules.run_now(entry.name)
    return Answer(created(task, None, existing=False), status=201)


async def preview(call: Call[PreviewQuery, None]) -> Answer:
    """Show the next fire times of a schedule, as if it were not paused; through changes to and from summer time too."""
    entry = await _seen(call)
    engine = call.hub.engine
    times = engine.schedules.foresee(entry.schedule, call.query.count, after=engine.clock.now())
    return Answer(previewed(entry.schedule, times))


def _may_see(principal: Principal, entry: ScheduleEntry) -> bool:
    return principal.tenant is None or entry.schedule.submission.tenant == principal.tenant


async def _seen(call: Call[Any, Any]) -> ScheduleEntry:
    """The schedule in the path, which must be there for the caller; what cannot be a name is that of none."""
    name = call.path["schedule"]
    try:
        entry = await call.hub.engine.schedules.get(check_name("name", name))
    except InvalidTask:
        raise ScheduleNotFound(name[:_SHOWN]) from None
    if not _may_see(call.principal, entry):
        raise ScheduleNotFound(name)
    return entry


async def _check_own(call: Call[Any, Any], name: str) -> None:
    for entry in await call.hub.engine.schedules.all():
        if entry.name == name and not _may_see(call.principal, entry):
            remedy = "choose another name"
            raise Refusal(
                "forbidden", f"the schedule {name!r} is another tenant's; {remedy}", field="name", remedy=remedy
            )


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/schedules",
        handler=list_schedules,
        summary="List the schedules",
        role=Role.READ,
        answers={200: ScheduleList},
    ),
    Endpoint(
        method="POST",
        path="/api/v1/schedules",
        handler=add,
        summary="Add a schedule",
        role=Role.ADMIN,
        body=ScheduleRequest,
        answers={201: ScheduleShown},
        problems=(409,),
    ),
    Endpoint(
        method="GET",
        path="/api/v1/schedules/{schedule}",
        handler=show,
        summary="Show a schedule",
        role=Role.READ,
        answers={200: ScheduleShown},
        problems=(404,),
    ),
    Endpoint(
        method="PUT",
        path="/api/v1/schedules/{schedule}",
        handler=put,
        summary="Add or replace a schedule",
        role=Role.ADMIN,
        body=ScheduleFields,
        answers={200: ScheduleShown, 201: ScheduleShown},
    ),
    Endpoint(
        method="DELETE",
        path="/api/v1/schedules/{schedule}",
        handler=remove,
        summary="Remove a schedule",
        role=Role.ADMIN,
        answers={200: ScheduleShown},
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/api/v1/schedules/{schedule}/pause",
        handler=pause,
        summary="Pause a schedule",
        role=Role.ADMIN,
        answers={200: ScheduleShown},
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/api/v1/schedules/{schedule}/resume",
        handler=resume,
        summary="Resume a schedule",
        role=Role.ADMIN,
        answers={200: ScheduleShown},
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/api/v1/schedules/{schedule}/run",
        handler=run,
        summary="Run a schedule now",
        role=Role.ADMIN,
        answers={201: TaskCreated},
        problems=(404,),
    ),
    Endpoint(
        method="GET",
        path="/api/v1/schedules/{schedule}/preview",
        handler=preview,
        summary="Show the next fire times of a schedule",
        role=Role.READ,
        query=PreviewQuery,
        answers={200: SchedulePreview},
        problems=(404,),
    ),
)
