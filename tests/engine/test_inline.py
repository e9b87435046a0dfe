"""Driving the engine without an event loop."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.admin.sweeper import Sweeper
from fairlead.core.errors import TaskNotFound
from fairlead.core.events import Completed
from fairlead.core.instant import SECOND
from fairlead.core.task import State
from fairlead.engine.runtime.inline import run_inline
from tests.engine.building import Bench, a_wish
from tests.unit.building import an_id


def test_the_whole_life_of_a_task_needs_no_loop() -> None:
    bench = Bench(batching=False)
    task = run_inline(bench.engine.submit(a_wish(delay=SECOND))).task
    bench.clock.advance(SECOND)
    assert run_inline(Sweeper(bench.engine).once()) == 1
    (claimed,) = run_inline(bench.claim())
    run_inline(bench.settle(claimed, Completed(b"1")))

    assert run_inline(bench.engine.get(task.id)).state is State.COMPLETED


def test_an_error_comes_through() -> None:
    with pytest.raises(TaskNotFound):
        run_inline(Bench(batching=False).engine.get(an_id()))


def test_a_coroutine_that_suspends_is_closed_and_refused() -> None:
    cleaned_up = False

    async def suspends() -> None:
        nonlocal cleaned_up
        try:
            await asyncio.sleep(0)
        finally:
            cleaned_up = True

    with pytest.raises(RuntimeError, match="blocking=True"):
        run_inline(suspends())
    assert cleaned_up


async def test_it_works_inside_a_running_loop_too() -> None:
    bench = Bench(batching=False)

    assert run_inline(bench.engine.submit(a_wish())).task.state is State.QUEUED
