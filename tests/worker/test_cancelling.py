"""A running task whose cancel was asked is stopped, and its result is not kept."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path

from fairlead import current_task
from fairlead.core.errors import WrongState
from fairlead.core.task import Reason, State
from tests.worker import isolated
from tests.worker.building import Crew, eventually, reasons
from tests.worker.test_timeouts import is_gone


async def test_a_running_coroutine_is_cancelled(crew: Crew) -> None:
    cleaned = asyncio.Event()

    async def stuck() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    crew.handle(stuck)
    async with crew.working():
        task = await crew.until(await crew.submit("stuck"), State.EXECUTING)
        await crew.engine.cancel(task.id)
        ended = await crew.until_ended(task)
    assert cleaned.is_set()
    assert (ended.state, ended.status.retries) == (State.CANCELLED, 0)
    assert reasons(ended) == [Reason.CANCEL_ASKED, Reason.CANCELLED]


async def test_a_thread_is_told_and_confirms_by_returning(crew: Crew) -> None:
    let_go, told = threading.Event(), threading.Event()

    def work() -> str:
        context = current_task()
        while not let_go.wait(0.005):
            if context.cancel_asked:
                told.set()
        return "a result that nobody wants any more"

    crew.handle(work)
    async with crew.working():
        task = await crew.until(await crew.submit("work"), State.EXECUTING)
        await crew.engine.cancel(task.id)
        await eventually(told.is_set)
        # Told is not yet stopped: until the thread returns the task runs, and says so.
        assert (await crew.engine.get(task.id)).state is State.EXECUTING
        let_go.set()
        ended = await crew.until_ended(task)
    assert (ended.state, ended.status.result) == (State.CANCELLED, None)


async def test_an_isolated_handler_is_killed(crew: Crew, tmp_path: Path) -> None:
    crew.handle(isolated.spin, isolate=True)
    note = tmp_path / "pid"
    async with crew.working():
        task = await crew.submit("spin", parameters={"note": str(note)})
        await eventually(note.exists)
        await crew.engine.cancel(task.id)
        ended = await crew.until_ended(task)
        assert is_gone(int(note.read_text()))
    assert ended.state is State.CANCELLED
    assert ended.status.crashes == 0


async def test_the_result_of_a_coroutine_that_heeds_no_cancel_is_not_kept(crew: Crew) -> None:
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done after all"
        return "never"

    crew.handle(stubborn)
    async with crew.working():
        task = await crew.until(await crew.submit("stubborn"), State.EXECUTING)
        await crew.engine.cancel(task.id)
        ended = await crew.until_ended(task)
    assert (ended.state, ended.status.result) == (State.CANCELLED, None)


async def test_a_handler_that_fails_while_it_is_cancelled_is_cancelled(crew: Crew) -> None:
    async def clumsy() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("it broke when it was cancelled")

    crew.handle(clumsy)
    async with crew.working():
        task = await crew.until(await crew.submit("clumsy"), State.EXECUTING)
        await crew.engine.cancel(task.id)
        ended = await crew.until_ended(task)
    assert (ended.state, ended.status.attempts) == (State.CANCELLED, 1)


async def test_a_cancel_asked_while_the_attempt_ends_by_itself_may_come_too_late(crew: Crew) -> None:
    """Whichever was stored first counts; the other is answered, never lost."""

    async def quick() -> str:
        return "done"

    crew.handle(quick)
    tasks = [await crew.submit("quick") for _ in range(20)]
    async with crew.working(concurrency=5):
        for task in tasks:
            await crew.until(task, lambda stored: stored.state is not State.QUEUED)
            stored = await crew.engine.get(task.id)
            if stored.state is State.EXECUTING:
                # Too late, if its end is stored first.
                with contextlib.suppress(WrongState):
                    await crew.engine.cancel(task.id)
        ends = [await crew.until_ended(task) for task in tasks]
    assert {end.state for end in ends} <= {State.COMPLETED, State.CANCELLED}
    assert [end.status.attempts for end in ends] == [1] * 20
