"""What an app's owner does with its schedules, from asynchronous and from synchronous code."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Unpack

import msgspec

from fairlead.core.instant import Instant
from fairlead.core.schedule import Schedule, ScheduleEntry
from fairlead.engine.facade import ScheduleFacade
from fairlead.engine.inline import run_inline
from fairlead.sdk.connection import Link
from fairlead.sdk.cron import ScheduleOptions, schedule_of
from fairlead.sdk.definition import Call
from fairlead.sdk.handle import TaskHandle

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class AppSchedules:
    """The schedules of an app."""

    def __init__(self, connect: Callable[[], Link]) -> None:
        self._connect = connect
        self.declared: dict[str, Schedule] = {}
        """Those that `app.cron` declares, by name."""

    async def add(
        self, name: str, cron: str, call: Call[Any], *, replace: bool = False, **options: Unpack[ScheduleOptions]
    ) -> ScheduleEntry:
        """Have a call submitted again and again: `add("nightly", "0 3 * * *", report.call("long"))`."""
        schedule = schedule_of(name, cron, call.submission, options)
        schedules = await self._schedules()
        return (await schedules.put(schedule)).entry if replace else await schedules.add(schedule)

    async def all(self) -> list[ScheduleEntry]:
        """Every schedule of the store, by name."""
        return await (await self._schedules()).all()

    async def get(self, name: str) -> ScheduleEntry:
        """The schedule with this name."""
        return await (await self._schedules()).get(name)

    async def pause(self, name: str) -> ScheduleEntry:
        """Let a schedule fire no more until it is resumed."""
        return await (await self._schedules()).pause(name)

    async def resume(self, name: str) -> ScheduleEntry:
        """Let a paused schedule fire again, from its next fire time on."""
        return await (await self._schedules()).resume(name)

    async def remove(self, name: str) -> ScheduleEntry:
        """Remove a schedule; the answer is how it stood. Its tasks stay."""
        return await (await self._schedules()).remove(name)

    async def run_now(self, name: str) -> TaskHandle[Any]:
        """Submit a schedule's task at once; its fire times stay as they are."""
        task = await (await self._schedules()).run_now(name)
        return TaskHandle(task, self._connect(), _decoded)

    async def preview(self, name: str, count: int = 10) -> list[datetime]:
        """The next fire times of a schedule, in UTC."""
        return [_moment(at) for at in await (await self._schedules()).preview(name, count)]

    def add_sync(
        self, name: str, cron: str, call: Call[Any], *, replace: bool = False, **options: Unpack[ScheduleOptions]
    ) -> ScheduleEntry:
        """`add`, from synchronous code."""
        schedule = schedule_of(name, cron, call.submission, options)
        schedules = self._inline()
        return run_inline(schedules.put(schedule)).entry if replace else run_inline(schedules.add(schedule))

    def all_sync(self) -> list[ScheduleEntry]:
        """`all`, from synchronous code."""
        return run_inline(self._inline().all())

    def get_sync(self, name: str) -> ScheduleEntry:
        """`get`, from synchronous code."""
        return run_inline(self._inline().get(name))

    def pause_sync(self, name: str) -> ScheduleEntry:
        """`pause`, from synchronous code."""
        return run_inline(self._inline().pause(name))

    def resume_sync(self, name: str) -> ScheduleEntry:
        """`resume`, from synchronous code."""
        return run_inline(self._inline().resume(name))

    def remove_sync(self, name: str) -> ScheduleEntry:
        """`remove`, from synchronous code."""
        return run_inline(self._inline().remove(name))

    def run_now_sync(self, name: str) -> TaskHandle[Any]:
        """`run_now`, from synchronous code."""
        return TaskHandle(run_inline(self._inline().run_now(name)), self._connect(), _decoded)

    def preview_sync(self, name: str, count: int = 10) -> list[datetime]:
        """`preview`, from synchronous code."""
        return [_moment(at) for at in run_inline(self._inline().preview(name, count))]

    async def _schedules(self) -> ScheduleFacade:
        return (await self._connect().engine()).schedules

    def _inline(self) -> ScheduleFacade:
        return self._connect().inline().schedules


def _moment(at: Instant) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


def _decoded(result: bytes | None) -> Any:
    return None if result is None else msgspec.json.decode(result)
