"""Sentry hears once of each task that fails for good, whatever it failed of and wherever it ran."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk

from fairlead import TaskFailed
from tests.worker import reporting
from tests.worker.building import PATIENCE


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("REPORTS", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    reporting.start()
    yield tmp_path
    sentry_sdk.get_client().close(timeout=0)
    sentry_sdk.get_global_scope().set_client(None)


async def ended(task: Any) -> Any:
    """A task that a worker has run to its end; it is in the trace of its submit."""
    worker = await reporting.app.worker(keeper_process=False)
    running = asyncio.create_task(worker.run())
    try:
        with sentry_sdk.start_transaction(name="checkout"):
            trace_id = (sentry_sdk.get_traceparent() or "").split("-")[0]
            handle = await task.submit()
        with contextlib.suppress(TaskFailed):
            await handle.result(timeout=PATIENCE)
    finally:
        worker.leave()
        await asyncio.wait_for(running, PATIENCE)
    return handle, trace_id


@pytest.mark.parametrize("task", [reporting.on_the_loop, reporting.in_a_thread, reporting.isolated], ids=str)
async def test_a_dead_letter_is_one_event_with_the_task_and_in_the_trace_of_its_submit(task: Any, folder: Path) -> None:
    handle, trace_id = await ended(task)
    (event,) = reporting.events(folder)
    (error,) = event["exception"]["values"]
    assert (error["type"], error["value"]) == ("ValueError", "no such order")
    assert error["stacktrace"]["frames"][-1]["function"] == task.__name__
    told = event["contexts"]["task"]
    assert (told["task_id"], told["task_type"], told["attempt"]) == (handle.id, task.__name__, 2)
    assert (event["tags"]["task_type"], event["tags"]["queue"]) == (task.__name__, "default")
    assert event["contexts"]["trace"]["trace_id"] == trace_id
    attempts = [each for each in reporting.events(folder, "transaction") if each["transaction"] == task.__name__]
    assert {each["contexts"]["trace"]["trace_id"] for each in attempts} == {trace_id}
    assert {each["contexts"]["trace"]["op"] for each in attempts} == {"queue.process"}


async def test_an_error_that_is_retried_is_no_event(folder: Path) -> None:
    await ended(reporting.recovers)
    assert reporting.events(folder) == []


@pytest.mark.parametrize(
    ("task", "error"),
    [
        (reporting.hangs, "Timeout"),
        (reporting.dies, "ProcessDied"),
        (reporting.returns_an_object, "ResultNotEncodable"),
    ],
    ids=str,
)
async def test_what_no_handler_raised_is_one_event_too(task: Any, error: str, folder: Path) -> None:
    handle, _ = await ended(task)
    (event,) = reporting.events(folder)
    assert error in event["logentry"]["formatted"]
    assert event["contexts"]["task"]["task_id"] == handle.id
    assert event["tags"]["task_type"] == task.__name__


async def test_other_lines_of_the_log_are_none_of_its_business(folder: Path) -> None:
    logging.getLogger("application").error("all is lost")
    (event,) = reporting.events(folder)
    assert event["logentry"]["message"] == "all is lost"


def test_without_sentry_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['sentry_sdk'] = None\n"
        "import fairlead\n"
        "try: fairlead.Sentry()\n"
        "except fairlead.InvalidSettings as error: print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "Sentry() needs the package 'sentry_sdk'; pip install 'fairlead[sentry]'"
