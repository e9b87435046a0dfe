"""Schedules: named entries that submit a task again and again."""

from __future__ import annotations

from typing import Any

from fairlead.admin.schedules import api
from fairlead.admin.schedules.api import (
    PreviewQuery,
    ScheduleFields,
    ScheduleList,
    ScheduleRequest,
    previewed,
    schedule_of,
    shown,
)
from fairlead.core.errors import InvalidTask, ScheduleNotFound
from fairlead.core.identity import check_name
from fairlead.server.endpoint import Answer, Call, called, serve
from fairlead.wire.endpoint import Empty
from fairlead.wire.tasks import created

_SHOWN = 64


async def list_schedules(call: Call[Empty, None]) -> Answer:
    """List the schedules by name, each with its state."""
    return Answer(ScheduleList(schedules=[shown(entry) for entry in await call.view.engine.schedules.all()]))


async def add(call: Call[Empty, ScheduleRequest]) -> Answer:
    """Add a schedule. Servers and workers fire it from its next fire time on, each fire time once."""
    request = call.body
    schedule = schedule_of(request.name, request, call.view.tenant_of(request.task.tenant))
    return Answer(shown(await call.view.engine.schedules.add(schedule, paused=bool(request.paused))), status=201)


async def put(call: Call[Empty, ScheduleFields]) -> Answer:
    """Add a schedule, or replace the one by this name.

    A replaced schedule keeps its history, and its next fire time changes only if the recurrence changes.
    """
    request, name = call.body, call.path["schedule"]
    schedule = schedule_of(name, request, call.view.tenant_of(request.task.tenant))
    done = await call.view.engine.schedules.put(schedule, paused=request.paused)
    return Answer(shown(done.entry), status=201 if done.created else 200)


async def run(call: Call[Empty, None]) -> Answer:
    """Submit a schedule's task at once, whether it is paused or not; its fire times stay as they are."""
    task = await call.view.run_schedule(_name(call))
    return Answer(created(task, None, existing=False), status=201)


async def preview(call: Call[PreviewQuery, None]) -> Answer:
    """Show the next fire times of a schedule, as if it were not paused, including changes to and from summer time."""
    schedule, times = await call.view.engine.schedules.preview(_name(call), call.query.count)
    return Answer(previewed(schedule, times))


def _name(call: Call[Any, Any]) -> str:
    """The name in the path; what cannot be one is that of no schedule."""
    name = call.path["schedule"]
    try:
        return check_name("name", name)
    except InvalidTask:
        raise ScheduleNotFound(name[:_SHOWN]) from None


ENDPOINTS = (
    *called(api),
    serve(api.LIST_SCHEDULES, list_schedules),
    serve(api.ADD, add),
    serve(api.PUT, put),
    serve(api.RUN, run),
    serve(api.PREVIEW, preview),
)
