"""A worker keeps its leases while it works, and drops what it no longer holds."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from pathlib import Path

import msgspec
import pytest

from fairlead import current_task
from fairlead.core.instant import SECOND
from fairlead.core.retry import Backoff
from fairlead.core.settings import Defaults, Settings
from fairlead.core.task import Reason, State
from tests.worker import isolated
from tests.worker.building import Crew, eventually, reasons
from tests.worker.test_timeouts import is_gone

SHORT = Settings(lease=2 * SECOND, heartbeat=SECOND // 10, sweep_interval=SECOND // 20)
LATER = Settings(
    defaults=Defaults(backoff=Backoff(initial=3_600 * SECOND, ceiling=3_600 * SECOND)),
    lease=3 * SECOND,
    heartbeat=SECOND // 5,
)


async def test_a_handler_that_blocks_the_loop_for_two_leases_runs_once() -> None:
    crew = Crew(SHORT)

    async def block() -> int:
        time.sleep(4)  # noqa: ASYNC251 - the very mistake that is tested
        return current_task().attempt

    crew.handle(block)
    # Another worker waits for its chance.
    other = crew.worker()
    async with crew.working():
        rival = asyncio.create_task(other.run())
        end = await crew.until_ended(await crew.submit("block"))
        other.leave()
        await rival
    assert (end.status.result, reasons(end)) == (b"1", [Reason.COMPLETED])


async def test_a_waiting_handler_outlives_its_lease_by_heartbeats() -> None:
    crew = Crew(SHORT)
    release = asyncio.Event()

    async def wait() -> None:
        await release.wait()

    crew.handle(wait)
    async with crew.working():
        task = await crew.submit("wait")
        await crew.until(task, lambda stored: stored.status.beats >= 25)
        release.set()
        end = await crew.until_ended(task)
    assert reasons(end) == [Reason.COMPLETED]


async def test_a_lost_lease_stops_the_attempt_and_nothing_is_overwritten(caplog: pytest.LogCaptureFixture) -> None:
    crew = Crew(LATER)
    stopped = asyncio.Event()

    async def wait() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    crew.handle(wait)
    with caplog.at_level(logging.WARNING, "fairlead.worker"):
        async with crew.working():
            task = await crew.until(await crew.submit("wait"), State.EXECUTING)
            await crew.lose_lease(task)
            await asyncio.wait_for(stopped.wait(), 30)
            lost = await crew.engine.get(task.id)
    assert (lost.state, lost.status.reason, lost.status.crashes) == (State.SCHEDULED, Reason.WORKER_LOST, 1)
    assert [record.getMessage() for record in caplog.records] == [f"task {task.id}: lease lost; stopping its attempt"]


async def test_what_an_attempt_says_after_its_lease_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    crew = Crew(LATER)
    release = asyncio.Event()

    async def deaf() -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "too late"

    crew.handle(deaf)
    async with crew.working():
        task = await crew.until(await crew.submit("deaf"), State.EXECUTING)
        await crew.lose_lease(task)
        lost = await crew.engine.get(task.id)
        release.set()
        await eventually(lambda: f"task {task.id}: lease lost before its outcome was stored" in caplog.text)
        assert await crew.engine.get(task.id) == lost


async def test_a_thread_whose_lease_is_lost_is_told_and_its_result_dropped() -> None:
    crew = Crew(LATER)
    told = threading.Event()

    def work() -> str:
        context = current_task()
        deadline = time.monotonic() + 30
        while not context.cancel_asked and time.monotonic() < deadline:
            time.sleep(0.005)
        told.set()
        return "too late"

    crew.handle(work)
    async with crew.working():
        task = await crew.until(await crew.submit("work"), State.EXECUTING)
        await crew.lose_lease(task)
        lost = await crew.engine.get(task.id)
        await eventually(told.is_set)
    assert await crew.engine.get(task.id) == lost


async def test_an_isolated_handler_whose_lease_is_lost_is_killed(tmp_path: Path) -> None:
    crew = Crew(LATER)
    crew.handle(isolated.spin, isolate=True)
    note = tmp_path / "pid"
    async with crew.working():
        task = await crew.submit("spin", parameters={"note": str(note)})
        await eventually(note.exists)
        await crew.lose_lease(task)
        await eventually(lambda: is_gone(int(note.read_text())))


async def test_progress_is_seen_while_the_attempt_runs(crew: Crew, tmp_path: Path) -> None:
    release = asyncio.Event()
    let_go = threading.Event()
    file = tmp_path / "go on"

    async def on_loop() -> None:
        current_task().progress(10, "first")
        current_task().progress(42, "half way")
        await release.wait()

    def in_thread() -> None:
        current_task().progress(42, "half way")
        let_go.wait(60)

    crew.handle(on_loop)
    crew.handle(in_thread)
    crew.handle(isolated.report, isolate=True)
    async with crew.working():
        for task, go_on in (
            (await crew.submit("on_loop"), release.set),
            (await crew.submit("in_thread"), let_go.set),
            (await crew.submit("report", parameters={"until": str(file)}), file.touch),
        ):
            seen = await crew.until(task, lambda stored: stored.status.progress is not None)
            assert seen.status.progress is not None
            assert (seen.status.progress.percent, seen.status.progress.message) == (42, "half way")
            assert seen.status.progress.at >= (seen.status.started_at or 0)
            go_on()
            assert (await crew.until_ended(task)).state is State.COMPLETED


async def test_impossible_progress_is_an_error_of_the_handler(crew: Crew) -> None:
    async def boast() -> None:
        current_task().progress(110)

    crew.handle(boast)
    async with crew.working():
        end = await crew.until_ended(await crew.submit("boast", max_retries=0))
    assert end.status.failure is not None
    assert end.status.failure.message == "progress of 110 % is not possible; use 0 to 100"


@pytest.mark.parametrize("isolate", [False, True], ids=["thread", "process"])
async def test_whatever_a_handler_says_of_its_progress_no_worker_ends_of_it(
    crew: Crew, tmp_path: Path, isolate: bool
) -> None:
    crew.handle(isolated.report_oddly, isolate=isolate)
    async with crew.working():
        task = await crew.submit("report_oddly", parameters={"until": str(tmp_path / "go on")}, max_retries=0)
        seen = await crew.until(task, lambda stored: stored.status.progress is not None)
        (tmp_path / "go on").touch()
        end = await crew.until_ended(task)
    assert seen.status.progress is not None and seen.status.progress.message == "half way"
    refused = msgspec.json.decode(end.status.result or b"[]")
    assert len(refused) == len(isolated.NO_PROGRESS)
    assert all((said.startswith("progress ") and "; use" in said) or "; write" in said for said in refused)


def test_there_is_no_current_task_outside_a_handler() -> None:
    with pytest.raises(LookupError, match="no task runs here"):
        current_task()


async def test_an_attempt_whose_task_is_given_to_its_own_worker_again_is_stopped(crew: Crew) -> None:
    attempts: list[int] = []
    stopped: list[int] = []

    async def work() -> None:
        attempt = current_task().attempt
        attempts.append(attempt)
        try:
            if attempt == 1:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append(attempt)
            raise

    crew.handle(work)
    async with crew.working():
        task = await crew.submit("work")
        await eventually(lambda: attempts == [1])
        await crew.lose_lease(task)
        await crew.until(task, State.COMPLETED)
        await eventually(lambda: stopped == [1])
    assert attempts == [1, 2]
