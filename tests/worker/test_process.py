"""Several services in one process: they leave together, each in its own time."""

from __future__ import annotations

import asyncio
import gc
import os
import signal

import pytest

from fairlead.worker.serving import Service, serve


class Steady:
    """Runs until it is asked to leave, and then until another has ended."""

    def __init__(self, before: Steady | None = None) -> None:
        self.asked = 0
        self.ended = asyncio.Event()
        self._leaving = asyncio.Event()
        self._before = before

    async def run(self) -> None:
        await self._leaving.wait()
        if self._before is not None:
            await self._before.ended.wait()
            # Whoever would hurry this one does so as soon as the other has ended.
            for _ in range(10):
                await asyncio.sleep(0)
        self.ended.set()

    def leave(self) -> None:
        self.asked += 1
        self._leaving.set()


async def nothing() -> None: ...


def test_one_that_is_done_first_does_not_hurry_the_others() -> None:
    quick = Steady()
    slow = Steady(before=quick)

    async def prepare() -> list[Service]:
        return [slow, quick]

    serve(prepare, nothing, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert (quick.asked, slow.asked) == (1, 1)
    assert slow.ended.is_set()


def test_one_that_ends_by_itself_takes_the_others_with_it() -> None:
    quick = Steady()
    slow = Steady(before=quick)

    async def prepare() -> list[Service]:
        quick._leaving.set()
        return [slow, quick]

    serve(prepare, nothing)
    assert slow.asked == 1 and slow.ended.is_set()


def test_who_is_asked_to_leave_before_anything_runs_simply_leaves() -> None:
    closed: list[bool] = []

    async def prepare() -> list[Service]:
        os.kill(os.getpid(), signal.SIGTERM)
        return await asyncio.Future()

    async def close() -> None:
        closed.append(True)

    serve(prepare, close, lambda: closed.append(False))
    assert closed == [True]


@pytest.mark.parametrize(
    ("asked_for", "meanwhile"),
    [(700, 10_000), (50_000, 50_000), (0, 0)],
    ids=["python's own", "less often yet", "never"],
)
def test_the_garbage_collector_looks_rarely_while_services_run(asked_for: int, meanwhile: int) -> None:
    seen: list[tuple[int, int, int]] = []
    before = gc.get_threshold()
    gc.set_threshold(asked_for, 7, 8)

    async def prepare() -> list[Service]:
        seen.append(gc.get_threshold())
        done = Steady()
        done.leave()
        return [done]

    try:
        serve(prepare, nothing)
        assert seen == [(meanwhile, 7, 8)]
        assert gc.get_threshold() == (asked_for, 7, 8)
    finally:
        gc.set_threshold(*before)
