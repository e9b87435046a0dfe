"""A soft timeout is raised within a handler, once, wherever it runs; what it does then is its own."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from fairlead import Fairlead, InvalidSettings, SoftTimeout
from fairlead.core.task import State
from fairlead.worker.soft_timeout import with_soft_timeout
from tests.worker import isolated
from tests.worker.building import PATIENCE, Crew


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_a_coroutine_ends_in_its_own_way(crew: Crew) -> None:
    async def saves() -> str:
        try:
            await asyncio.gather(forever(), forever())
        except SoftTimeout:
            await asyncio.sleep(0)
            return "saved"
        return "not told"

    async def goes_on() -> str:
        try:
            await forever()
        except SoftTimeout:
            return "once" if await asyncio.sleep(0.02, "more") else ""
        return ""

    async def lets_it_through() -> None:
        await forever()

    async def quick() -> str:
        return await asyncio.sleep(0, "done")

    for handler in (saves, goes_on, lets_it_through):
        crew.handle(handler, soft_timeout=0.01)
    crew.handle(quick, soft_timeout=PATIENCE)
    async with crew.working():
        ended = {
            name: await crew.until_ended(await crew.submit(name, max_retries=0))
            for name in ("saves", "goes_on", "lets_it_through", "quick")
        }
    assert [ended[name].status.result for name in ("saves", "goes_on", "quick")] == [b'"saved"', b'"once"', b'"done"']
    failed = ended["lets_it_through"].status
    assert failed.failure is not None
    assert (failed.state, failed.failure.type) == (State.DEAD_LETTER, "SoftTimeout")


async def test_a_thread_is_told_between_two_steps_and_goes_on_to_other_tasks(crew: Crew) -> None:
    def saves() -> str:
        try:
            while True:
                time.sleep(0.001)
        except SoftTimeout:
            return "saved"

    def quick() -> int:
        return threading.get_ident()

    crew.handle(saves, soft_timeout=0.01)
    crew.handle(quick)
    async with crew.working(thread_concurrency=1):
        saved = await crew.until_ended(await crew.submit("saves"))
        after = [await crew.until_ended(await crew.submit("quick")) for _ in range(3)]
    assert saved.status.result == b'"saved"'
    assert [task.state for task in after] == [State.COMPLETED] * 3


async def test_an_isolated_handler_is_told_before_it_is_killed() -> None:
    async with isolated.soft_app.testing() as rehearsal:
        task = await isolated.spin_softly.submit()
        await rehearsal.run()
        assert (await task.info()).result == "saved"


async def test_a_cancel_is_a_cancel_also_at_that_moment() -> None:
    reached: list[str] = []

    async def work() -> None:
        try:
            await forever()
        except SoftTimeout:
            reached.append("soft")
            await forever()

    limited = with_soft_timeout(work, 0.0)
    task = asyncio.create_task(limited())
    while not reached:  # noqa: ASYNC110 - the coroutine has no event to set for others
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    both = asyncio.create_task(with_soft_timeout(work, PATIENCE)())
    await asyncio.sleep(0)
    both.cancel()
    with pytest.raises(asyncio.CancelledError):
        await both
    assert reached == ["soft"]


def test_what_has_ended_in_time_is_told_of_nothing() -> None:
    limited = with_soft_timeout(lambda: "done", PATIENCE)
    before = threading.active_count()
    assert limited() == "done"
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(PATIENCE)
    assert threading.active_count() <= before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"soft_timeout": 0}, "soft_timeout"),
        ({"soft_timeout": -1}, "soft_timeout"),
        ({"soft_timeout": "soon"}, "soft_timeout"),
        ({"soft_timeout": 30, "timeout": 30}, "soft_timeout 30 is no less than the timeout 30"),
    ],
)
def test_what_cannot_be_one_is_refused(options: Any, message: str) -> None:
    with pytest.raises(InvalidSettings, match=message):
        Fairlead("memory://").task(name="work", **options)(lambda: None)
