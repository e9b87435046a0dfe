"""How long a worker works by itself, and a coroutine that blocks its loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import HOUR
from fairlead.core.task import State
from fairlead.worker.life import WorkerLife, memory_used
from fairlead.worker.loop_watch import LoopWatch
from fairlead.worker.worker import WorkerSettings
from tests.worker.building import PATIENCE, Crew, eventually


async def test_until_empty_runs_all_that_is_ready_and_what_that_submits(crew: Crew) -> None:
    async def parent(children: int) -> None:
        for _ in range(children):
            await crew.submit("child")

    async def child() -> None: ...

    def threaded() -> None: ...

    for handler in (parent, child, threaded):
        crew.handle(handler)
    tasks = [
        await crew.submit("parent", parameters={"children": 5}),
        *[await crew.submit("threaded") for _ in range(30)],
    ]
    later = await crew.submit("child", delay=HOUR)

    worker = crew.worker(until_empty=True)
    await asyncio.wait_for(worker.run(), PATIENCE)

    assert not worker.recycles
    assert [(await crew.engine.get(task.id)).state for task in tasks] == [State.COMPLETED] * 31
    assert (await crew.engine.get(later.id)).state is State.SCHEDULED, "what is due later is not ready"
    completed = [occurrence for occurrence in crew.occurrences if occurrence.task.state is State.COMPLETED]
    assert len(completed) == 36


async def test_a_worker_with_nothing_to_do_until_empty_leaves_at_once(crew: Crew) -> None:
    async def child() -> None: ...

    crew.handle(child)
    await asyncio.wait_for(crew.worker(until_empty=True).run(), PATIENCE)


async def test_a_worker_begins_no_more_tasks_than_it_may_and_is_to_be_replaced(crew: Crew) -> None:
    async def work() -> None: ...

    def threaded() -> None: ...

    crew.handle(work)
    crew.handle(threaded)
    tasks = [await crew.submit(kind) for kind in ("work", "threaded") * 10]

    worker = crew.worker(max_tasks=7)
    await asyncio.wait_for(worker.run(), PATIENCE)

    assert worker.recycles
    states = [(await crew.engine.get(task.id)).state for task in tasks]
    assert (states.count(State.COMPLETED), states.count(State.QUEUED)) == (7, 13)


async def test_a_worker_that_uses_too_much_memory_is_to_be_replaced(crew: Crew) -> None:
    kept: list[bytes] = []

    async def work() -> None:
        kept.append(b"x" * 100_000_000)

    crew.handle(work)
    await crew.submit("work")
    worker = crew.worker(max_memory=memory_used() + 50_000_000)
    await asyncio.wait_for(worker.run(), PATIENCE)
    assert worker.recycles
    assert memory_used() > len(kept[0])


async def test_a_worker_that_may_not_even_begin_is_refused_and_not_replaced_for_ever(crew: Crew) -> None:
    async def work() -> None: ...

    crew.handle(work)
    task = await crew.submit("work")
    worker = crew.worker(max_memory=200)
    with pytest.raises(InvalidSettings, match=r"max_memory 200 is less than the [\d,]+ bytes that this worker uses"):
        await asyncio.wait_for(worker.run(), PATIENCE)
    assert not worker.recycles
    assert (await crew.engine.get(task.id)).state is State.QUEUED


async def test_a_worker_that_is_asked_to_leave_while_it_recycles_drains_and_is_not_replaced(
    crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    release = asyncio.Event()

    async def work() -> str:
        await release.wait()
        return "in time"

    caplog.set_level("INFO", "fairlead.worker")
    crew.handle(work)
    task = await crew.submit("work")
    worker = crew.worker(max_tasks=1)
    running = asyncio.create_task(worker.run())
    await eventually(lambda: "draining" in caplog.text)
    is_replaced = [worker.recycles]
    worker.leave()
    is_replaced.append(worker.recycles)
    release.set()
    await asyncio.wait_for(running, PATIENCE)
    assert is_replaced == [True, False], "somebody wants it gone"
    assert (await crew.engine.get(task.id)).status.result == b'"in time"', "it was asked once"


async def test_a_worker_without_limits_goes_on() -> None:
    life = WorkerLife(None, None)
    life.count(1_000_000)
    keeping = asyncio.create_task(life.keep())
    await asyncio.sleep(0)
    assert not keeping.done()
    life.end("the test is over")
    await asyncio.wait_for(keeping, PATIENCE)
    assert not life.recycles


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "7", True])
@pytest.mark.parametrize("name", ["max_tasks", "max_memory"])
def test_what_cannot_be_a_limit_is_refused(name: str, wrong: Any) -> None:
    with pytest.raises(InvalidSettings, match=name):
        WorkerSettings(**{name: wrong})
    with pytest.raises(InvalidSettings, match="until_empty"):
        WorkerSettings(until_empty=1)  # type: ignore[arg-type]


async def test_a_coroutine_that_blocks_the_loop_is_named_with_its_place(
    crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    told = threading.Event()

    def blocking() -> None:
        # Until the warning has come, whatever the machine does meanwhile.
        while not told.wait(0.01):
            if "blocked the event loop" in caplog.text:
                told.set()

    async def hog() -> None:
        blocking()

    crew.handle(hog)
    task = await crew.submit("hog")
    async with crew.working():
        await crew.until_ended(task)
    (line,) = [each for each in caplog.text.splitlines() if "blocked the event loop" in each]
    assert f"task {task.id} (hog) has blocked the event loop for" in line
    assert "threading.py" in line or f"{__file__}:" in line


async def test_each_time_is_told_of_once_and_a_short_one_never(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    watch = LoopWatch(lambda task: "something", lambda: now)
    watch._loop, watch._thread = asyncio.get_running_loop(), threading.get_ident()
    watch.turn()
    for step in (1.0, 0.1, 0.5, 5.0):
        now += step
        watch.once()
    assert caplog.text.count("something has blocked the event loop for 1.1 s") == 1
    assert caplog.text.count("blocked") == 1
    watch.turn()
    now += 1.5
    watch.once()
    assert caplog.text.count("blocked") == 2
    watch.turn()
    watch.rest()
    now += 9
    watch.once()
    assert caplog.text.count("blocked") == 2, "nothing ran"
    watch.close()
    watch.once()
    assert caplog.text.count("blocked") == 2, "nobody tells it that the loop comes round"
