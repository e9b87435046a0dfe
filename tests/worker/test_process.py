"""Several services in one process: they leave together, each in its own time."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys

import pytest

from fairlead.worker.process import Service, serve


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


async def test_inside_a_running_loop_it_is_refused_and_the_remedy_told() -> None:
    async def prepare() -> list[Service]:
        return []

    with pytest.raises(RuntimeError, match=r"an event loop is running here.*await \(await app.worker\(\)\).run\(\)"):
        serve(prepare, nothing)


class Deaf(asyncio.SelectorEventLoop):
    """An event loop that cannot hear signals, as that of Windows."""

    def add_signal_handler(self, *_: object) -> None:
        raise NotImplementedError


def test_ctrl_c_ends_a_loop_that_cannot_hear_signals() -> None:
    # As it is in a process that has only just begun.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    async def prepare() -> list[Service]:
        return [Steady()]

    with pytest.raises(KeyboardInterrupt):
        serve(prepare, nothing, lambda: os.kill(os.getpid(), signal.SIGINT), new_loop=Deaf)


class Stubborn:
    """Runs until it is asked to leave; meanwhile something in its loop says each of these."""

    def __init__(self, *errors: BaseException) -> None:
        self._errors = errors
        self._leaving = asyncio.Event()

    async def run(self) -> None:
        async def fail(error: BaseException) -> None:
            raise error

        tasks = [asyncio.create_task(fail(error)) for error in self._errors]
        await asyncio.wait(tasks)
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
        self.leave()
        await self._leaving.wait()

    def leave(self) -> None:
        self._leaving.set()


def test_what_a_handler_says_of_the_loop_does_not_end_it() -> None:
    ended: list[bool] = []

    async def prepare() -> list[Service]:
        return [Stubborn(SystemExit(3), SystemExit(4), KeyboardInterrupt())]

    async def close() -> None:
        ended.append(True)

    serve(prepare, close)
    assert ended == [True]


SERVICE = """
import asyncio, contextlib, sys
from fairlead.worker.process import serve

class Failing:
    def leave(self): ...

    async def run(self):
        async def stubborn():
            while True:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()

        self.kept = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        if sys.argv[1] == "fail":
            raise OSError("the disk is gone")

async def prepare():
    return [Failing()]

async def close(): ...

serve(prepare, close)
"""


@pytest.mark.parametrize(("how", "code"), [("well", 0), ("fail", 1)])
def test_who_heeds_no_cancel_does_not_keep_a_process_from_its_end_whatever_that_is(how: str, code: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SERVICE, how], capture_output=True, text=True, timeout=90, check=False
    )
    assert ended.returncode == code, ended.stderr
    assert "exiting although handlers" in ended.stderr
    assert ("the disk is gone" in ended.stderr) is (how == "fail")
