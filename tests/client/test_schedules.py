"""Schedules over the API: the same calls as on a store, and what a worker behind a server declares."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from fairlead.admin.keys.service import Keyring
from fairlead.core.errors import InvalidTask, ScheduleExists, ScheduleNotFound
from fairlead.core.instant import SECOND
from fairlead.core.retry import Backoff
from fairlead.core.task import State
from fairlead.core.tenancy import Role
from tests.client.serving import Port


async def test_a_schedule_is_added_shown_paused_run_and_removed(port: Port) -> None:
    app = port.app()

    @app.task(priority="low", timeout=2.5, tags=["eu"], requires={"gpu"}, backoff=Backoff(initial=SECOND, jitter=0.5))
    def report(kind: str) -> str:
        return kind

    added = await app.schedules.add(
        "nightly",
        "0 3 * * *",
        report.call("long"),
        timezone="Europe/Berlin",
        missed="run_all",
        missed_cap=3,
        overlap="skip",
        jitter=1.5,
        start=datetime(2020, 1, 1, tzinfo=UTC),
        end=datetime(2200, 1, 1, tzinfo=UTC),
    )
    assert added == await port.engine.schedules.get("nightly") == await app.schedules.get("nightly")
    assert added.schedule.submission == report.call("long").submission
    assert await app.schedules.all() == [added]
    with pytest.raises(ScheduleExists):
        await app.schedules.add("nightly", "@daily", report.call("long"))
    replaced = await app.schedules.add("nightly", "@daily", report.call("short"), replace=True)
    assert replaced.schedule.submission.parameters == b'{"kind":"short"}'
    assert (await app.schedules.pause("nightly")).status.paused
    assert not (await app.schedules.resume("nightly")).status.paused
    handle = await app.schedules.run_now("nightly")
    assert (handle.status, handle.snapshot.spec.tags) == (State.QUEUED, ("eu", "schedule:nightly"))
    first, second = await app.schedules.preview("nightly", 2)
    assert (second - first).days == 1
    assert (await app.schedules.remove("nightly")).status.fired == 1
    for ask in (app.schedules.get, app.schedules.pause, app.schedules.run_now, app.schedules.remove):
        with pytest.raises(ScheduleNotFound):
            await ask("nightly")
        with pytest.raises(ScheduleNotFound):
            await ask("not a name")


async def test_what_cannot_be_is_refused_as_on_a_store(port: Port) -> None:
    app = port.app()

    @app.task
    def work() -> None: ...

    with pytest.raises(InvalidTask, match="no fire time between now and its end"):
        await app.schedules.add("a", "@daily", work.call(), end=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidTask, match="out of range"):
        await app.schedules.add("a", "61 * * * *", work.call())


async def test_the_same_from_synchronous_code(port: Port) -> None:
    app = port.app()

    @app.task
    def work() -> None: ...

    def synchronously() -> None:
        app.schedules.add_sync("a", "@hourly", work.call())
        app.schedules.pause_sync("a")
        app.schedules.resume_sync("a")
        assert [entry.name for entry in app.schedules.all_sync()] == ["a"]
        assert app.schedules.get_sync("a").schedule.cron == "@hourly"
        assert app.schedules.preview_sync("a", 1)[0].minute == 0
        assert app.schedules.run_now_sync("a").status is State.QUEUED
        app.schedules.add_sync("a", "@daily", work.call(), replace=True)
        app.schedules.remove_sync("a")

    await asyncio.to_thread(synchronously)
    assert await port.engine.schedules.all() == []


async def test_a_worker_behind_a_server_declares_what_its_app_does(port: Port) -> None:
    app = port.app()

    @app.cron("every 5 minutes")
    @app.task
    def work() -> None: ...

    @app.cron("@daily", end=datetime(2020, 1, 1, tzinfo=UTC))
    @app.task
    def what_is_over() -> None: ...

    async with port.hired(app):
        assert [entry.name for entry in await port.engine.schedules.all()] == ["work"]


async def test_a_key_for_workers_only_declares_nothing_and_works_all_the_same(
    port: Port, caplog: pytest.LogCaptureFixture
) -> None:
    made = await Keyring(port.engine).create("worker", [Role.WORK])
    app = port.app(made.text)

    @app.cron("every 5 minutes")
    @app.task
    def work() -> None: ...

    async with port.hired(app):
        assert await port.engine.schedules.all() == []
    assert "the schedules work are not stored" in caplog.text
