"""Schedules behind a server: what `engine.schedules` does, over the API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from fairlead.client.problems import decoded
from fairlead.client.queues import Asking
from fairlead.client.tasks import task_of
from fairlead.core.errors import ScheduleNotFound
from fairlead.core.identity import TaskId, check_name
from fairlead.core.instant import Instant
from fairlead.core.schedule import Schedule, ScheduleEntry, ScheduleStatus
from fairlead.core.task import Task
from fairlead.engine.scheduling import Put
from fairlead.wire.moments import parse_iso
from fairlead.wire.schedules import (
    ScheduleFields,
    ScheduleList,
    SchedulePreview,
    ScheduleShown,
    fields_of,
    schedule_of,
)
from fairlead.wire.shown import TaskWhole
from fairlead.wire.tasks import TaskCreated

_PATH: Final = "/api/v1/schedules"
_CREATED: Final = 201
_FIELDS: Final = frozenset(ScheduleFields.__struct_fields__)


class RemoteSchedules(Asking):
    """The schedules behind a server."""

    async def add(self, schedule: Schedule, *, paused: bool = False) -> ScheduleEntry:
        """Store a new schedule; raises ScheduleExists if there is one by this name."""
        body = {**fields_of(schedule), "name": schedule.name, "paused": paused}
        return _entry(await self.ask("POST", _PATH, ScheduleShown, body, schedule.name))

    async def put(self, schedule: Schedule, *, paused: bool | None = None) -> Put:
        """Store a schedule, new or in place of the one by this name."""
        body = msgspec.json.encode({**fields_of(schedule), "paused": paused})
        reply = await self._transport.ask("PUT", f"{_PATH}/{check_name('name', schedule.name)}", body)
        shown = decoded(reply, ScheduleShown, self._transport.address, schedule.name)
        return Put(_entry(shown), created=reply.status == _CREATED)

    async def declare(self, schedules: Iterable[Schedule]) -> None:
        """Put the schedules that a program declares."""
        for schedule in schedules:
            await self.put(schedule)

    async def all(self) -> list[ScheduleEntry]:
        """Every schedule, by name."""
        return [_entry(shown) for shown in (await self.ask("GET", _PATH, ScheduleList)).schedules]

    async def get(self, name: str) -> ScheduleEntry:
        """The schedule with this name."""
        return _entry(await self.ask("GET", _path(name), ScheduleShown, subject=name))

    async def pause(self, name: str) -> ScheduleEntry:
        """Let a schedule fire no more until it is resumed."""
        return _entry(await self.ask("POST", f"{_path(name)}/pause", ScheduleShown, subject=name))

    async def resume(self, name: str) -> ScheduleEntry:
        """Let a paused schedule fire again, from its next fire time on."""
        return _entry(await self.ask("POST", f"{_path(name)}/resume", ScheduleShown, subject=name))

    async def remove(self, name: str) -> ScheduleEntry:
        """Remove a schedule; the answer is how it stood. Its tasks stay."""
        return _entry(await self.ask("DELETE", _path(name), ScheduleShown, subject=name))

    async def run_now(self, name: str) -> Task:
        """Submit a schedule's task at once; its fire times stay as they are."""
        created = await self.ask("POST", f"{_path(name)}/run", TaskCreated, subject=name)
        return task_of(await self.ask("GET", f"/api/v1/tasks/{created.task_id}", TaskWhole, subject=created.task_id))

    async def preview(self, name: str, count: int = 10) -> list[Instant]:
        """The next fire times of a schedule, as if it were not paused."""
        reply = await self._transport.ask("GET", f"{_path(name)}/preview", query={"count": str(count)})
        shown = decoded(reply, SchedulePreview, self._transport.address, name)
        return [parse_iso(fire.at) for fire in shown.fire_times]


def _path(name: str) -> str:
    try:
        return f"{_PATH}/{check_name('name', name)}"
    except ValueError:
        raise ScheduleNotFound(name) from None


def _entry(shown: ScheduleShown) -> ScheduleEntry:
    """A schedule as the engine has it, but for what is pending, which only the server knows."""
    known = {name: value for name, value in msgspec.structs.asdict(shown).items() if name in _FIELDS}
    fields = msgspec.convert({**known, "task": shown.task}, ScheduleFields)
    status = ScheduleStatus(
        next_at=_maybe(shown.next_fire_at),
        paused=shown.paused,
        last_at=_maybe(shown.last_fire_at),
        last_task=None if shown.last_task_id is None else TaskId(shown.last_task_id),
        fired=shown.fired,
        failure=shown.failure,
    )
    return ScheduleEntry(schedule_of(shown.name, fields, shown.task.tenant), status, parse_iso(shown.created_at))


def _maybe(text: str | None) -> Instant | None:
    return None if text is None else parse_iso(text)
