"""The keepers: what they renew, what they tell, when they are silent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from fairlead.core.errors import StoreUnavailable
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.task import State, Task
from fairlead.engine.engine import Engine
from fairlead.storage.memory import MemoryStore
from fairlead.storage.opening import open_store
from fairlead.storage.values import Pulse
from fairlead.worker.keeper import HEADER, Beater, Keeper, ProcessKeeper, ThreadKeeper
from fairlead.worker.keeping import is_stopped, messages
from tests.worker.building import PATIENCE, SETTINGS, Crew, eventually


async def claimed(crew: Crew) -> Task:
    await crew.submit("work")
    (task,) = await crew.engine.claim(WorkerId("worker-1"), ["default"], limit=1)
    return task


async def keep_and_tell(crew: Crew, keeper: Keeper) -> None:
    """A keeper renews what it is told of, tells once of a cancel and of a loss, and forgets what is dropped."""
    heard: list[tuple[TaskId, Pulse]] = []
    await keeper.start(lambda task_id, pulse: heard.append((task_id, pulse)), lambda count: None)
    try:
        held, asked, lost, dropped = [await claimed(crew) for _ in range(4)]
        keeper.hold([held, asked, lost, dropped])
        keeper.drop([dropped])
        await crew.until(held, lambda task: task.status.beats >= 3)
        await crew.engine.cancel(asked.id)
        await eventually(lambda: (asked.id, Pulse.CANCEL) in heard)
        await crew.lose_lease(lost)
        await eventually(lambda: (lost.id, Pulse.LOST) in heard)
        beats = (await crew.engine.get(asked.id)).status.beats
        await crew.until(asked, lambda task: task.status.beats >= beats + 3)
        assert (await crew.engine.get(dropped.id)).status.beats <= 1
        assert heard == [(asked.id, Pulse.CANCEL), (lost.id, Pulse.LOST)]
    finally:
        await keeper.close()


async def test_a_thread_keeps_leases(crew: Crew) -> None:
    await keep_and_tell(crew, ThreadKeeper(Engine(crew.store, SETTINGS, batching=False)))


async def test_a_process_keeps_leases(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    store = await open_store(url)
    try:
        await keep_and_tell(Crew(SETTINGS, store), ProcessKeeper(url, SETTINGS))
    finally:
        await store.close()


async def test_a_worker_without_a_keeper_takes_no_tasks_and_can_still_be_asked_to_leave(tmp_path: Path) -> None:
    """A task that nobody keeps would be lost, taken again, and lost again, until its crash budget is spent."""
    crew = Crew()

    async def work() -> None: ...

    crew.handle(work)
    task = await crew.submit("work")
    worker = crew.worker(keeper=ProcessKeeper(f"sqlite:///{tmp_path / 'no' / 'such' / 'folder'}?bad=1", SETTINGS))
    running = asyncio.create_task(worker.run())
    asyncio.get_running_loop().call_later(2, worker.leave)
    await asyncio.wait_for(running, PATIENCE)
    assert await crew.engine.get(task.id) == task


async def test_dropping_an_old_lease_leaves_a_newer_one_alone() -> None:
    store = MemoryStore()
    crew = Crew(SETTINGS, store)
    beater = Beater(Engine(store, SETTINGS, batching=False))
    former = await claimed(crew)
    await crew.lose_lease(former)
    await crew.engine.cancel(former.id)
    await crew.engine.replay(former.id)
    (newer,) = await crew.engine.claim(WorkerId("worker-1"), ["default"], limit=1)
    assert former.status.lease is not None
    assert newer.status.lease is not None

    beater.hold({newer.id: newer.status.lease.token})
    beater.drop({former.id: former.status.lease.token})
    beater.beat()

    assert (await crew.engine.get(newer.id)).status.beats == newer.status.beats + 1


async def test_a_lease_that_is_lost_is_told_once_and_never_asked_for_again(crew: Crew) -> None:
    beater = Beater(Engine(crew.store, SETTINGS, batching=False))
    task = await claimed(crew)
    assert task.status.lease is not None
    beater.hold({task.id: task.status.lease.token})
    await crew.lose_lease(task)

    assert beater.beat() == {task.id: Pulse.LOST}
    assert beater.beat() == {}
    assert (await crew.engine.get(task.id)).state is State.SCHEDULED


async def test_messages_arrive_whole_however_they_are_cut() -> None:
    said = [b"", b"one", b"x" * 100_000, b"last"]
    stream = b"".join(len(each).to_bytes(HEADER, "big") + each for each in said)
    reading, writing = os.pipe()

    def write() -> None:
        for start in (*range(12), *range(12, len(stream), 30_000)):
            end = start + 1 if start < 12 else start + 30_000
            os.write(writing, stream[start:end])
        os.close(writing)

    writer = asyncio.get_running_loop().run_in_executor(None, write)
    try:
        assert await asyncio.to_thread(lambda: list(messages(reading))) == said
    finally:
        await writer
        os.close(reading)


async def test_a_stopped_process_is_told_from_a_running_one() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)", stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        assert not is_stopped(process.pid)
        process.send_signal(signal.SIGSTOP)
        await eventually(lambda: is_stopped(process.pid))
        process.send_signal(signal.SIGCONT)
        await eventually(lambda: not is_stopped(process.pid))
    finally:
        process.kill()
        await process.communicate()
    assert not is_stopped(process.pid)


async def test_heartbeats_that_do_not_arrive_are_counted(crew: Crew) -> None:
    class Unreachable(MemoryStore):
        async def extend(self, *arguments: object, **options: object) -> list[Pulse]:
            raise StoreUnavailable("gone")

    failures: list[int] = []
    keeper = ThreadKeeper(Engine(Unreachable(), SETTINGS, batching=False))
    await keeper.start(lambda task_id, pulse: None, failures.append)
    try:
        keeper.hold([await claimed(crew)])
        await eventually(lambda: sum(failures) >= 2)
    finally:
        await keeper.close()
