"""`@app.cron`: schedules that a program declares, put when its worker starts and fired under time travel."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fairlead import Fairlead, InvalidTask
from fairlead.core.instant import MINUTE, SECOND
from fairlead.core.schedule import Missed, Overlap
from fairlead.core.task import Priority
from fairlead.worker.worker import WorkerSettings


def an_app(store: str = "memory://") -> Fairlead:
    return Fairlead(store)


async def test_a_declared_schedule_runs_at_each_of_its_times_while_time_passes() -> None:
    app = an_app()
    runs: list[str] = []

    @app.cron("*/5 * * * *", timezone="Europe/Berlin", parameters={"what": "all"})
    @app.task(priority="low")
    async def tidy_up(what: str) -> None:
        runs.append(what)

    async with app.testing() as rehearsal:
        assert await rehearsal.travel(4 * 60) == 0
        assert await rehearsal.travel(60 * 60) == 12
        assert await rehearsal.travel(60) == 1
    assert runs == ["all"] * 13
    assert app.schedules.declared["tidy_up"].submission.priority is Priority.LOW


def test_the_same_from_a_synchronous_test() -> None:
    app = an_app()

    @app.cron("every 10 seconds")
    def beat() -> None: ...

    with app.testing() as rehearsal:
        assert rehearsal.travel_sync(60) == 6


@pytest.mark.parametrize(("missed", "runs"), [("skip", 0), ("run_once", 1), ("run_all", 12)])
async def test_time_that_passes_while_nobody_works_is_a_stop(missed: str, runs: int) -> None:
    app = an_app()

    @app.cron("*/5 * * * *", missed=missed)
    async def report() -> None: ...

    async with app.testing() as rehearsal:
        rehearsal.advance(60 * 60 + 120)
        assert await rehearsal.run() == runs


async def test_a_task_still_runs_when_called_and_submitted() -> None:
    app = an_app()

    @app.cron("@daily", name="nightly", parameters={"number": 1})
    @app.task
    async def double(number: int) -> int:
        return 2 * number

    assert await double(4) == 8
    async with app.testing() as rehearsal:
        task = await double.submit(5)
        await rehearsal.run()
        assert await task.result() == 10


def test_all_that_can_be_said_of_a_schedule_is_taken_over() -> None:
    app = an_app()

    @app.task
    def report(kind: str = "short") -> None: ...

    app.cron(
        "0 9 * * MON-FRI",
        name="morning",
        parameters={"kind": "long"},
        timezone="America/New_York",
        missed="run_all",
        missed_cap=7,
        overlap="skip",
        jitter=30,
        start=datetime(2026, 1, 1, tzinfo=UTC),
        end=datetime(2027, 1, 1, tzinfo=UTC),
    )(report.options(queue="reports", tags=["eu"]))
    schedule = app.schedules.declared["morning"]
    assert (schedule.missed, schedule.missed_cap, schedule.overlap) == (Missed.RUN_ALL, 7, Overlap.SKIP)
    assert (schedule.jitter, schedule.timezone) == (30 * SECOND, "America/New_York")
    assert (schedule.start, schedule.end) == (1_767_225_600 * SECOND, 1_798_761_600 * SECOND)
    submission = schedule.submission
    assert (submission.queue, submission.tags, submission.parameters) == ("reports", ("eu",), b'{"kind":"long"}')


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"cron": "61 * * * *"}, "cron"),
        ({"timezone": "Nowhere"}, "timezone"),
        ({"missed": "never"}, "missed"),
        ({"overlap": "maybe"}, "overlap"),
        ({"jitter": float("nan")}, "jitter"),
        ({"start": datetime(2026, 1, 1)}, "start"),
        ({"retries": 3}, "retries"),
        ({"name": "two words"}, "name"),
        ({"parameters": {"unknown": 1}}, "parameters"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_declared(options: dict[str, Any], field: str) -> None:
    app = an_app()
    cron = options.pop("cron", "@daily")
    with pytest.raises(InvalidTask) as raised:

        @app.cron(cron, **options)
        def work() -> None: ...

    assert raised.value.field == field


def test_two_schedules_of_one_name_are_refused() -> None:
    app = an_app()

    @app.task
    def work() -> None: ...

    app.cron("@daily")(work)
    app.cron("@weekly", name="work.weekly")(work)
    with pytest.raises(InvalidTask, match="declared twice"):
        app.cron("@hourly")(work)


async def test_a_worker_that_starts_puts_what_its_app_declares(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"

    async def start(cron: str, *, with_extra: bool) -> Fairlead:
        app = an_app(url)

        @app.cron(cron)
        @app.task
        def work() -> None: ...

        if with_extra:
            app.cron("@weekly", name="extra")(work)
        worker = await app.worker(settings=WorkerSettings(concurrency=1), keeper_process=False)
        await worker.close()
        return app

    app = await start("@hourly", with_extra=True)
    schedules = (await app.store_connection().engine()).schedules
    assert [entry.name for entry in await schedules.all()] == ["extra", "work"]
    await schedules.pause("work")
    await app.close()

    app = await start("*/10 * * * *", with_extra=False)
    schedules = (await app.store_connection().engine()).schedules
    entry = await schedules.get("work")
    assert entry.status.paused, "a deploy resumes nothing"
    assert entry.schedule.cron == "*/10 * * * *"
    assert entry.status.next_at is not None and entry.status.next_at % (10 * MINUTE) == 0
    assert [entry.name for entry in await schedules.all()] == ["extra", "work"], "a deploy removes nothing"
    assert (await schedules.get("extra")).status.next_at is not None
    await app.close()
