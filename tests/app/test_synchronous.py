"""The same from plain synchronous code: threads, forks, and one event loop after the other."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairlead import Fairlead, State, TaskFailed
from fairlead.core.identity import TaskId
from fairlead.core.settings import Settings


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Fairlead]:
    app = Fairlead(f"sqlite:///{tmp_path / 'tasks.db'}", settings=Settings())
    yield app
    asyncio.run(app.close())


def test_eight_threads_submit_at_once(app: Fairlead) -> None:
    @app.task
    def work(number: int) -> int:
        return number

    def submit(first: int) -> list[TaskId]:
        one_by_one = [work.submit_sync(number).id for number in range(first, first + 20)]
        many = work.submit_many_sync([work.call(number) for number in range(first + 20, first + 40)])
        return one_by_one + [task.id for task in many]

    with ThreadPoolExecutor(8) as pool:
        ids = [task_id for batch in pool.map(submit, range(0, 320, 40)) for task_id in batch]
    assert len(set(ids)) == 320

    async def count() -> int:
        stats = await (await app.connection().engine()).stats()
        await app.close()
        return stats.queues["default"].states[State.QUEUED]

    assert asyncio.run(count()) == 320


def test_a_result_is_waited_for_and_cancel_asked(app: Fairlead) -> None:
    @app.task
    def work(number: int) -> int:
        return 2 * number

    async def run_for_a_while() -> None:
        worker = await app.worker(keeper_process=False)
        running = asyncio.create_task(worker.run())
        await asyncio.to_thread(over.wait)
        worker.leave()
        await running
        await app.close()

    over = threading.Event()
    worker = threading.Thread(target=asyncio.run, args=[run_for_a_while()])
    task = work.submit_sync(4)
    with pytest.raises(TimeoutError):
        task.result_sync(timeout=0.01)
    worker.start()
    try:
        assert task.result_sync(timeout=60) == 8
    finally:
        over.set()
        worker.join()
    later = work.options(delay=60).submit_sync(1)
    assert later.cancel_sync() is State.CANCELLED
    with pytest.raises(TaskFailed, match="cancelled"):
        later.result_sync()


def test_one_event_loop_after_the_other_leaves_nothing_behind(app: Fairlead) -> None:
    """A synchronous program that calls asyncio.run for every submit must not gather threads and files."""

    @app.task
    async def work(number: int) -> None: ...

    async def submit(number: int) -> str:
        return (await work.submit(number)).id

    ids = [asyncio.run(submit(0))]
    threads, files = threading.active_count(), open_files()
    ids += [asyncio.run(submit(number)) for number in range(1, 15)]
    assert len(set(ids)) == 15
    assert threading.active_count() <= threads
    # SQLite keeps a few to itself; each loop would have added several.
    assert open_files() <= files + 4


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_several_event_loops_at_once(app: Fairlead) -> None:
    @app.task
    async def work(number: int) -> None: ...

    async def submit(first: int) -> list[str]:
        try:
            tasks = await asyncio.gather(*(work.submit(number) for number in range(first, first + 25)))
            return [(await task.refresh()).id for task in tasks]
        finally:
            await app.close()

    with ThreadPoolExecutor(4) as pool:
        ids = [one for batch in pool.map(lambda first: asyncio.run(submit(first)), range(0, 100, 25)) for one in batch]
    assert len(set(ids)) == 100


async def test_an_app_can_be_used_again_after_it_was_closed(app: Fairlead) -> None:
    @app.task
    async def work() -> None: ...

    first = await work.submit()
    await app.close()
    second = await work.submit()
    assert await second.cancel() is State.CANCELLED
    assert (await first.refresh()).status is State.QUEUED
    await app.close()


FORKING = """
import asyncio, os, sys
from fairlead import Fairlead

app = Fairlead(sys.argv[1])

@app.task
def work(number: int) -> int:
    return number

before = work.submit_sync(0)
children = []
for number in (1, 2, 3):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            ids = {work.submit_sync(number * 100 + each).id for each in range(20)}
            assert len(ids) == 20
            assert before.refresh_sync().status == "queued"
            async def submit():
                return await work.submit(number)
            asyncio.run(submit())
            status = 0
        finally:
            os._exit(status)
    children.append(child)
ids = {work.submit_sync(each).id for each in range(20)}
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]

async def count():
    stats = await (await app.connection().engine()).stats()
    await app.close()
    return sum(stats.queues["default"].states.values())

print(codes, asyncio.run(count()))
"""


def test_forked_processes_submit_beside_their_parent(tmp_path: Path) -> None:
    script = tmp_path / "forking.py"
    script.write_text(textwrap.dedent(FORKING))
    ran = subprocess.run(
        [sys.executable, str(script), f"sqlite:///{tmp_path / 'tasks.db'}"],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (ran.stdout, ran.stderr) == ("[0, 0, 0] 84\n", "")
