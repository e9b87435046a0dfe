"""An attempt that takes too long is stopped, tried again, and given more time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from pathlib import Path

import pytest

from fairlead import current_task
from fairlead.core.task import Reason, State, Task
from fairlead.engine.events.types import Happening
from tests.worker import isolated
from tests.worker.building import Crew, eventually, reasons


async def test_an_async_attempt_is_cancelled_and_retried_with_more_time(crew: Crew) -> None:
    cancelled: list[int] = []

    async def first_slow() -> int:
        if current_task().attempt == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(current_task().attempt)
                raise
        return current_task().attempt

    crew.handle(first_slow)
    async with crew.working():
        task = await crew.until(await crew.submit("first_slow", timeout=0.2), State.COMPLETED)
    assert cancelled == [1]
    assert (task.status.attempts, task.status.retries, task.status.result) == (2, 1, b"2")
    assert task.status.timeout == 300_000
    assert reasons(task) == [Reason.TIMED_OUT, Reason.DUE, Reason.COMPLETED]


async def test_an_attempt_that_times_out_for_ever_uses_up_its_retries(crew: Crew) -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    crew.handle(stuck)
    async with crew.working():
        task = await crew.until_ended(await crew.submit("stuck", timeout=0.1, max_retries=1))
    assert (task.state, task.status.reason) == (State.DEAD_LETTER, Reason.RETRIES_USED_UP)
    assert task.status.failure is not None
    assert task.status.failure.message == "the attempt was stopped after its timeout of 0.15 s"


async def test_time_is_kept_again_after_a_while_in_which_nothing_ran(crew: Crew) -> None:
    async def quick() -> None: ...

    async def stuck() -> None:
        await asyncio.Event().wait()

    crew.handle(quick)
    crew.handle(stuck)
    async with crew.working() as worker:
        await crew.until_ended(await crew.submit("quick"))
        await eventually(lambda: not worker._busy.is_set())
        task = await crew.until_ended(await crew.submit("stuck", timeout=0.1, max_retries=0))
    assert task.status.reason is Reason.RETRIES_USED_UP


async def test_a_handler_that_fails_while_it_is_stopped_has_timed_out(crew: Crew) -> None:
    async def clumsy() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("it broke when it was cancelled") from None

    crew.handle(clumsy)
    async with crew.working():
        task = await crew.until_ended(await crew.submit("clumsy", timeout=0.1, max_retries=0))
    assert task.status.failure is not None
    assert task.status.failure.type == "Timeout"


async def test_an_async_handler_may_still_finish_when_it_is_stopped(crew: Crew) -> None:
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done after all"
        return "never"

    crew.handle(stubborn)
    async with crew.working():
        task = await crew.until_ended(await crew.submit("stubborn", timeout=0.1))
    assert (task.state, task.status.result) == (State.COMPLETED, b'"done after all"')


class Hold:
    """A thread's handler that does not return until it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.told = threading.Event()
        self.inside = 0

    def hold(self) -> str:
        context = current_task()
        self.inside += 1
        try:
            while not self.let_go.wait(0.005):
                if context.cancel_asked:
                    self.told.set()
        finally:
            self.inside -= 1
        return "late"


@pytest.fixture
def holding() -> Hold:
    return Hold()


async def test_a_thread_is_told_and_left_behind_and_keeps_its_slot_until_it_returns(crew: Crew, holding: Hold) -> None:
    def hold() -> str:
        return holding.hold()

    async def quick() -> None: ...

    crew.handle(hold)
    crew.handle(quick)
    async with crew.working(concurrency=1) as worker:
        held = await crew.submit("hold", timeout=0.2, max_retries=0)
        ended = await crew.until_ended(held)
        assert (ended.state, ended.status.result) == (State.DEAD_LETTER, None)
        await eventually(holding.told.is_set)
        # Its slot is the thread's for as long as that runs: one slot never runs two handlers.
        waiting = await crew.submit("quick")
        assert holding.inside == 1
        assert await worker.once() == 0
        assert (await crew.engine.get(waiting.id)).state is State.QUEUED
        holding.let_go.set()
        await crew.until(waiting, State.COMPLETED)
    # What the thread returned in the end is of no interest any more.
    assert await crew.engine.get(held.id) == ended
    assert Happening.REFUSED not in crew.happened(held)


async def test_a_thread_left_behind_does_not_keep_the_worker_from_leaving(crew: Crew, holding: Hold) -> None:
    def hold() -> str:
        return holding.hold()

    crew.handle(hold)
    async with crew.working():
        await crew.until_ended(await crew.submit("hold", timeout=0.1, max_retries=0))
    assert holding.inside == 1
    holding.let_go.set()


async def test_an_isolated_attempt_is_killed_for_real(crew: Crew, tmp_path: Path) -> None:
    crew.handle(isolated.spin, isolate=True)
    note = tmp_path / "pid"
    async with crew.working():
        task = await crew.submit("spin", parameters={"note": str(note)}, timeout=1.5, max_retries=0)
        ended = await crew.until_ended(task)
        assert ended.status.failure is not None
        assert (ended.state, ended.status.failure.type) == (State.DEAD_LETTER, "Timeout")
        await eventually(note.exists, "the process' note")
        assert is_gone(int(note.read_text()))


async def test_a_stopped_cell_does_not_disturb_the_next_task(crew: Crew, tmp_path: Path) -> None:
    crew.handle(isolated.spin, isolate=True)
    crew.handle(isolated.add, isolate=True)
    async with crew.working(concurrency=1):
        slow = await crew.submit("spin", parameters={"note": str(tmp_path / "pid")}, timeout=0.3, max_retries=0)
        quick = await crew.submit("add", parameters={"left": 1})
        assert (await crew.until_ended(slow)).state is State.DEAD_LETTER
        assert result_of(await crew.until_ended(quick)) == b"2"


def result_of(task: Task) -> bytes | None:
    assert task.state is State.COMPLETED, task.status.failure
    return task.status.result


def is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


async def test_a_coroutine_that_swallows_its_cancel_times_out_and_keeps_its_slot_until_it_ends(crew: Crew) -> None:
    released = asyncio.Event()

    async def stubborn() -> str:
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()
        return "late"

    async def quick() -> None: ...

    crew.handle(stubborn)
    crew.handle(quick)
    async with crew.working(concurrency=1) as worker:
        ended = await crew.until_ended(await crew.submit("stubborn", timeout=0.1, max_retries=0))
        assert ended.status.failure is not None
        assert (ended.status.reason, ended.status.failure.type) == (Reason.RETRIES_USED_UP, "Timeout")
        waiting = await crew.submit("quick")
        assert await worker.once() == 0
        released.set()
        await crew.until(waiting, State.COMPLETED)
    assert await crew.engine.get(ended.id) == ended


async def test_what_should_cancel_and_does_not_is_stopped_for_good_at_its_timeout(crew: Crew) -> None:
    released = threading.Event()
    entered = threading.Event()

    def deaf() -> None:
        entered.set()
        released.wait(60)

    crew.handle(deaf)
    async with crew.working():
        task = await crew.submit("deaf", timeout=1)
        await eventually(entered.is_set)
        await crew.engine.cancel(task.id)
        ended = await crew.until_ended(task)
        released.set()
    assert ended.state is State.CANCELLED
    assert ended.status.failure is not None
    assert ended.status.failure.type == "Timeout"
