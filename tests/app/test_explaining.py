"""Asking a submitted task why it waits, and being told at submit that nobody could run it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from fairlead import Fairlead, Settings, State
from fairlead.admin.engine import AdminEngine
from fairlead.app import task_type
from fairlead.core.explain.explanation import Cause, CauseCode
from fairlead.core.identity import WorkerId
from fairlead.engine.engine import Submitted
from fairlead.engine.runtime.inline import run_inline


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_type, "_told", set())


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Fairlead]:
    app = Fairlead(f"sqlite:///{tmp_path}/tasks.db", settings=Settings())
    yield app
    app.connection().close_inline()


def double(number: int) -> int:
    return 2 * number


def join(app: Fairlead, *types: str) -> None:
    """Have a worker that knows these types join."""
    worker_records = app.store_connection().inline().worker_records
    run_inline(worker_records.register(WorkerId("w"), queues=["default"], capacity=1, types=types))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_task_explains_itself() -> None:
    app = Fairlead("memory://", settings=Settings())
    task = await app.task(double).submit(21)
    told = await task.explain()
    assert told.task_id == task.id and told.state is State.QUEUED
    assert told.causes[0].code == CauseCode.NO_WORKERS
    assert told.line is not None and (told.line.position, told.line.ahead) == (None, 0)
    await app.close()


def test_the_same_from_synchronous_code(app: Fairlead) -> None:
    define = app.task(double)
    define.submit_sync(1)
    task = define.submit_sync(2)
    line = task.explain_sync().line
    assert line is not None and (line.position, line.ahead) == (None, 1)
    join(app, "double")
    line = task.explain_sync().line
    assert line is not None and line.position == 2


def test_a_type_that_no_live_worker_knows_is_warned_of_once(app: Fairlead, caplog: pytest.LogCaptureFixture) -> None:
    define = app.task(double)
    join(app, "other")
    for number in range(3):
        define.submit_sync(number)
    define.submit_many_sync([define.call(1)])
    (said,) = warnings(caplog)
    assert said.startswith("a task of type double waits until a worker can run it: no worker of queue default has")


def test_whether_anyone_could_run_it_is_asked_every_five_seconds_of_each_task_type(
    app: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    now = 1_000.0

    async def doubts(_: AdminEngine, submitted: Submitted) -> tuple[Cause, ...]:
        asked.append(submitted.task.spec.queue)
        return ()

    monkeypatch.setattr(AdminEngine, "doubts", doubts)
    monkeypatch.setattr(task_type, "time", SimpleNamespace(monotonic=lambda: now))
    define = app.task(double)
    define.submit_sync(1)
    define.submit_sync(2)
    define.options(queue="other").submit_sync(3)
    now += 4.9
    define.submit_sync(4)
    assert asked == ["default", "other"]
    now += 0.1
    define.submit_sync(5)
    assert asked == ["default", "other", "default"]


def test_that_no_worker_runs_yet_is_no_warning(app: Fairlead, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fairlead.submit")
    app.task(double).submit_sync(1)
    assert warnings(caplog) == []
    assert any("no worker is running" in record.getMessage() for record in caplog.records)


async def test_a_worker_that_knows_it_is_no_reason_to_speak(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fairlead.submit")
    app = Fairlead("memory://", settings=Settings())
    define = app.task(double)
    join(app, "double")
    await define.submit(1)
    await define.submit_many([define.call(2)])
    assert [record for record in caplog.records if record.name == "fairlead.submit"] == []
    await app.close()
