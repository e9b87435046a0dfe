"""Isolated handlers answer for themselves: nobody else's answer is taken for theirs."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.admin.engine import AdminEngine
from fairlead.core.instant import SECOND
from fairlead.core.task import Reason, State, Task
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.open import open_store
from fairlead.worker.keeper.keeper import Keeper, ProcessKeeper, ThreadKeeper
from tests.worker import isolated
from tests.worker.building import SETTINGS, Crew


def crash_of(task: Task) -> str:
    assert (task.state, task.status.reason) == (State.DEAD_LETTER, Reason.CRASH_LOOP)
    assert task.status.failure is not None
    assert task.status.failure.type == "ProcessDied"
    return task.status.failure.message


async def test_a_child_that_falls_out_of_its_handler_answers_for_no_task(crew: Crew) -> None:
    crew.handle(isolated.fork_and_return, isolate=True)
    crew.handle(isolated.add, isolate=True)
    async with crew.working(concurrency=1):
        forked = await crew.until_ended(await crew.submit("fork_and_return"))
        sums = [await crew.until_ended(await crew.submit("add", parameters={"left": left})) for left in range(5)]
    assert (forked.status.result, forked.status.attempts) == (b'"parent"', 1)
    assert [(each.status.result, each.status.attempts) for each in sums] == [(b"%d" % (n + 1), 1) for n in range(5)]


async def test_what_a_child_says_that_was_left_behind_harms_no_later_task(crew: Crew, tmp_path: Path) -> None:
    crew.handle(isolated.fork_and_babble, isolate=True)
    crew.handle(isolated.report, isolate=True)
    async with crew.working(concurrency=1):
        await crew.until_ended(await crew.submit("fork_and_babble"))
        task = await crew.submit("report", parameters={"until": str(tmp_path / "go on")})
        asyncio.get_running_loop().call_later(0.5, (tmp_path / "go on").touch)
        end = await crew.until_ended(task)
    assert (end.status.result, end.status.attempts) == (b'"seen"', 1)


@pytest.mark.parametrize("name", ["babble", "promise_much"])
async def test_what_is_no_answer_of_the_task_ends_the_process_and_settles_nothing(crew: Crew, name: str) -> None:
    crew.handle(getattr(isolated, name), isolate=True)
    crew.handle(isolated.add, isolate=True)
    async with crew.working(concurrency=1):
        end = await crew.until_ended(await crew.submit(name, max_crashes=0))
        fine = await crew.until_ended(await crew.submit("add", parameters={"left": 1}))
    assert "said what is no answer of its task" in crash_of(end)
    assert fine.status.result == b"2"


async def test_a_handler_that_closes_every_descriptor_has_lost_its_worker(crew: Crew) -> None:
    crew.handle(isolated.close_everything, isolate=True)
    async with crew.working():
        end = await crew.until_ended(await crew.submit("close_everything", max_crashes=0))
    assert "lost its connection to the worker: its handler closed descriptors" in crash_of(end)


async def test_a_child_that_holds_what_a_killed_process_had_open_does_not_hide_its_end(crew: Crew) -> None:
    crew.handle(isolated.leave_a_child_and_die, isolate=True)
    async with crew.working():
        end = await crew.until_ended(await crew.submit("leave_a_child_and_die", max_crashes=0, timeout=50))
    assert "killed by SIGKILL" in crash_of(end)


async def test_a_thread_that_a_task_left_behind_reports_nothing_of_the_next(crew: Crew, tmp_path: Path) -> None:
    crew.handle(isolated.report_late, isolate=True)
    crew.handle(isolated.wait_for, isolate=True)
    note = tmp_path / "go on"
    async with crew.working(concurrency=1):
        await crew.until_ended(await crew.submit("report_late", parameters={"until": str(note)}))
        waiting = await crew.submit("wait_for", parameters={"until": str(note)})
        await crew.until(waiting, lambda task: task.status.beats >= 3)
        assert (await crew.engine.get(waiting.id)).status.progress is None
        note.touch()
        end = await crew.until_ended(waiting)
    assert (end.status.result, end.status.progress, end.status.attempts) == (b'"waited"', None, 1)


async def test_a_process_that_died_while_it_was_idle_costs_the_next_task_nothing(crew: Crew) -> None:
    crew.handle(isolated.process_id, isolate=True)
    async with crew.working(concurrency=1):
        first = await crew.until_ended(await crew.submit("process_id"))
        assert first.status.result is not None
        os.kill(int(first.status.result), signal.SIGKILL)
        second = await crew.until_ended(await crew.submit("process_id", max_crashes=0))
    assert (second.state, second.status.attempts) == (State.COMPLETED, 1)


def lazily(name: str) -> Any:
    """A handler of a module that is imported nowhere yet."""

    def stand_in() -> None: ...

    stand_in.__module__, stand_in.__qualname__ = "tests.worker.slow_to_import", name
    return stand_in


BRISK = replace(SETTINGS, grace=2 * SECOND)
"""Shorter than the import takes, as ten seconds are where that takes fifteen."""


@pytest.fixture(params=["thread", "process"])
def brisk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Crew, Keeper]]:
    """A crew whose leases a thread keeps, or a process."""
    if request.param == "thread":
        crew = Crew(BRISK)
        yield crew, ThreadKeeper(AdminEngine(crew.store, BRISK, batching=False))
    else:
        url = f"sqlite:///{tmp_path / 'tasks.db'}"
        crew = Crew(BRISK, run_inline(open_store(url)))
        yield crew, ProcessKeeper(url, BRISK)


@pytest.mark.slow
async def test_a_handler_has_its_whole_timeout_however_long_its_process_takes_to_get_ready(
    brisk: tuple[Crew, Keeper],
) -> None:
    """An import of three seconds and a handler of three, where the attempt may take four and the grace is two."""
    crew, keeper = brisk
    dawdle = lazily("dawdle")
    dawdle.__name__ = "dawdle"
    crew.handle(dawdle, isolate=True)
    async with crew.working(keeper=keeper):
        end = await crew.until_ended(await crew.submit("dawdle", timeout=4, max_retries=0, max_crashes=0))
    assert (end.state, end.status.result, end.status.attempts) == (State.COMPLETED, b'"at last"', 1), end.status


@pytest.mark.slow
async def test_the_time_of_an_attempt_begins_when_its_process_is_ready() -> None:
    crew = Crew()
    answer, linger = lazily("answer"), lazily("linger")
    answer.__name__, linger.__name__ = "answer", "linger"
    crew.handle(answer, isolate=True)
    crew.handle(linger, isolate=True)
    async with crew.working():
        tasks = [await crew.submit(name, timeout=2, max_retries=0) for name in ("answer", "linger")]
        done, late = [await crew.until_ended(task) for task in tasks]
    assert (done.state, done.status.result, done.status.attempts) == (State.COMPLETED, b"42", 1)
    assert late.status.failure is not None
    assert (late.status.reason, late.status.failure.type) == (Reason.RETRIES_USED_UP, "Timeout")


async def test_a_process_that_never_gets_ready_is_a_crash_that_says_so(crew: Crew) -> None:
    answer = lazily("answer")
    answer.__name__ = "answer"
    crew.handle(answer, isolate=True)
    async with crew.working(ready_seconds=0.5):
        end = await crew.until_ended(await crew.submit("answer", timeout=0.2, max_crashes=0))
    assert (end.state, end.status.reason) == (State.DEAD_LETTER, Reason.CRASH_LOOP)
    assert end.status.failure is not None
    assert end.status.failure.type == "ProcessNotReady"
    assert "importing tests.worker.slow_to_import took too long" in end.status.failure.message


SETUP = """
import fairlead_identity_state

fairlead_identity_state.ready = True

from fairlead_identity_tasks import app
"""

TASKS = """
from fairlead import Fairlead
import fairlead_identity_state

assert fairlead_identity_state.ready, "the settings are not configured"
app = Fairlead("memory://")

@app.task(isolate=True)
def work() -> str:
    return "well"
"""


async def test_an_isolated_process_imports_first_what_the_worker_was_started_with(
    crew: Crew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Django wants it: whoever imports the tasks before the application is set up dies of it."""
    for name, text in (("state", "ready = False"), ("setup", SETUP), ("tasks", TASKS)):
        (tmp_path / f"fairlead_identity_{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    setup = importlib.import_module("fairlead_identity_setup")
    crew.handlers.add(setup.app.handlers.get("work"))
    try:
        async with crew.working(app="fairlead_identity_setup"):
            end = await crew.until_ended(await crew.submit("work", max_retries=0))
    finally:
        for name in [name for name in sys.modules if name.startswith("fairlead_identity_")]:
            del sys.modules[name]
    assert (end.state, end.status.result) == (State.COMPLETED, b'"well"'), end.status.failure
