"""The keepers: what they renew, what they tell, when they are silent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from fairlead.admin.engine import AdminEngine
from fairlead.core.errors import StoreUnavailable
from fairlead.core.identity import LeaseToken, TaskId, WorkerId
from fairlead.core.instant import SECOND
from fairlead.core.task import State, Task
from fairlead.storage.memory import MemoryStore
from fairlead.storage.open import open_store
from fairlead.storage.values import Pulse
from fairlead.worker.keeper.keeper import Keeper, ProcessKeeper, ThreadKeeper
from fairlead.worker.keeper.lease_renewal import Beater
from fairlead.worker.keeper.pipe import forget, frame
from fairlead.worker.keeper.process import Ward, doze, is_stopped
from tests.e2e.processes import command_of
from tests.worker.building import PATIENCE, SETTINGS, Crew, eventually

LONG: Final = replace(SETTINGS, lease=60 * SECOND)
"""With leases long enough for a keeper that dozes until one is held."""


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
    await keep_and_tell(crew, ThreadKeeper(AdminEngine(crew.store, SETTINGS, batching=False)))


async def test_a_process_keeps_leases(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    store = await open_store(url)
    try:
        await keep_and_tell(Crew(SETTINGS, store), ProcessKeeper(url, SETTINGS))
    finally:
        await store.close()


async def test_a_worker_without_a_keeper_takes_no_tasks_and_can_still_be_asked_to_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that nobody keeps would be lost, taken again, and lost again, until its crash budget is spent."""
    monkeypatch.setattr("fairlead.worker.keeper.keeper.PROGRAM", "raise SystemExit(1)")
    crew = Crew()

    async def work() -> None: ...

    crew.handle(work)
    task = await crew.submit("work")
    worker = crew.worker(keeper=ProcessKeeper(f"sqlite:///{tmp_path / 'tasks.db'}", SETTINGS))
    running = asyncio.create_task(worker.run())
    asyncio.get_running_loop().call_later(2, worker.leave)
    await asyncio.wait_for(running, PATIENCE)
    assert await crew.engine.get(task.id) == task


async def test_a_keeper_is_asked_before_every_claim_whether_leases_can_be_kept(crew: Crew) -> None:
    turns = asyncio.Semaphore(1)

    class Hesitant(ThreadKeeper):
        async def ready(self) -> None:
            await turns.acquire()

    async def work() -> None: ...

    crew.handle(work)
    first, second = await crew.submit("work"), await crew.submit("work")
    worker = crew.worker(keeper=Hesitant(AdminEngine(crew.store, SETTINGS, batching=False)), concurrency=1)
    running = asyncio.create_task(worker.run())
    try:
        await crew.until_ended(first)
        assert await crew.engine.get(second.id) == second
        turns.release()
        await crew.until_ended(second)
    finally:
        worker.leave()
        await asyncio.wait_for(running, PATIENCE)


def test_what_is_held_for_less_than_a_moment_does_not_wake_a_keeper() -> None:
    def lease(name: str) -> dict[TaskId, LeaseToken]:
        return {TaskId(name): LeaseToken(f"{name}-1")}

    class Scripted(Ward):
        """Each time it is listened to, something is held and something else no more."""

        def listen(self, seconds: float) -> bool:
            held, dropped = script.pop(0)
            self.held.update(held)
            forget(self.held, dropped)
            return True

    script: list[tuple[dict[TaskId, LeaseToken], dict[TaskId, LeaseToken]]] = [
        (lease("a"), {}),
        (lease("b"), lease("a")),
        ({TaskId("b"): LeaseToken("b-2")}, {}),
        (lease("c"), {}),
        ({}, {}),
    ]

    assert doze(Scripted(os.getpid(), 0), moment=1.0)
    assert script == [({}, {})]


linux = pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc to see it in")


def has_woken(process: int) -> bool:
    """Whether a keeper has imported what it takes to open a store."""
    return "msgspec" in Path(f"/proc/{process}/maps").read_text()


async def keeper_process() -> int:
    """The one keeper that this process has started, once it runs its program."""
    found: list[int] = []

    def look() -> bool:
        children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
        found[:] = [int(child) for child in children if b"fairlead.worker.keeper.process" in command_of(int(child))]
        return len(found) == 1

    await eventually(look)
    return found[0]


@linux
async def test_a_keeper_opens_its_store_for_what_is_held_and_is_small_again_when_nothing_was_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.worker.keeper.keeper.REST", 0.5)
    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    store = await open_store(url)
    crew = Crew(LONG, store)
    keeper = ProcessKeeper(url, LONG)
    await keeper.start(lambda task_id, pulse: None, lambda count: None)
    try:
        await keeper.ready()
        process = await keeper_process()
        assert not has_woken(process)
        for _ in range(2):
            task = await claimed(crew)
            keeper.hold([task])
            await crew.until(task, lambda task: task.status.beats >= 2)
            assert has_woken(process)
            keeper.drop([task])
            await eventually(lambda: not has_woken(process))
            assert await keeper_process() == process
    finally:
        await keeper.close()
        await store.close()


@linux
async def test_a_keeper_of_short_leases_opens_its_store_before_any_is_taken(tmp_path: Path) -> None:
    keeper = ProcessKeeper(f"sqlite:///{tmp_path / 'tasks.db'}", SETTINGS)
    await keeper.start(lambda task_id, pulse: None, lambda count: None)
    try:
        await keeper.ready()
        assert has_woken(await keeper_process())
    finally:
        await keeper.close()


async def test_a_keeper_that_never_could_open_its_store_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that waits for it takes nothing: without a word nobody would know why."""
    way = tmp_path / "way"
    failures: list[int] = []
    keeper = ProcessKeeper(f"sqlite:///{way / 'tasks.db'}", SETTINGS)
    await keeper.start(lambda task_id, pulse: None, failures.append)
    try:
        await eventually(lambda: len(failures) > 1)
        assert caplog.text.count("cannot open the store; claiming no tasks until it can") == 1
        way.mkdir()
        await asyncio.wait_for(keeper.ready(), PATIENCE)
    finally:
        await keeper.close()


async def test_a_store_that_cannot_be_opened_at_first_is_opened_in_time_and_nothing_is_taken_before(
    tmp_path: Path,
) -> None:
    store = await open_store(f"sqlite:///{tmp_path / 'tasks.db'}")
    crew = Crew(LONG, store)
    failures: list[int] = []
    # The keeper's way to the same store is not there yet.
    way = tmp_path / "way"
    keeper = ProcessKeeper(f"sqlite:///{way / 'tasks.db'}", LONG)
    await keeper.start(lambda task_id, pulse: None, failures.append)
    try:
        await keeper.ready()
        task = await claimed(crew)
        assert task.status.lease is not None
        keeper.hold([task])
        await eventually(lambda: sum(failures) >= 2)
        ready = asyncio.create_task(keeper.ready())
        await asyncio.sleep(0)
        assert not ready.done()

        way.symlink_to(tmp_path)

        await asyncio.wait_for(ready, PATIENCE)
        kept = await crew.until(task, lambda task: task.status.beats >= 1)
        assert kept.status.lease is not None
        assert kept.status.lease.token == task.status.lease.token
        assert kept.status.lease.until > task.status.lease.until
    finally:
        await keeper.close()
        await store.close()


@linux
async def test_a_keeper_that_takes_the_place_of_another_opens_its_store_before_it_says_that_it_is_there(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    store = await open_store(url)
    crew = Crew(LONG, store)
    keeper = ProcessKeeper(url, LONG)
    await keeper.start(lambda task_id, pulse: None, lambda count: None)
    try:
        await keeper.ready()
        task = await claimed(crew)
        keeper.hold([task])
        former = await keeper_process()
        os.kill(former, signal.SIGKILL)
        beats = (await crew.engine.get(task.id)).status.beats
        await crew.until(task, lambda task: task.status.beats >= beats + 2)
        await asyncio.wait_for(keeper.ready(), PATIENCE)
        assert await keeper_process() != former
    finally:
        await keeper.close()
        await store.close()


async def test_dropping_an_old_lease_leaves_a_newer_one_alone() -> None:
    store = MemoryStore()
    crew = Crew(SETTINGS, store)
    former = await claimed(crew)
    await crew.lose_lease(former)
    await crew.engine.cancel(former.id)
    await crew.engine.replay(former.id)
    (newer,) = await crew.engine.claim(WorkerId("worker-1"), ["default"], limit=1)
    assert former.status.lease is not None
    assert newer.status.lease is not None

    held = {newer.id: newer.status.lease.token}
    forget(held, {former.id: former.status.lease.token})
    Beater(AdminEngine(store, SETTINGS, batching=False), held).beat()

    assert (await crew.engine.get(newer.id)).status.beats == newer.status.beats + 1


async def test_a_lease_that_is_lost_is_told_once_and_never_asked_for_again(crew: Crew) -> None:
    task = await claimed(crew)
    assert task.status.lease is not None
    beater = Beater(AdminEngine(crew.store, SETTINGS, batching=False), {task.id: task.status.lease.token})
    await crew.lose_lease(task)

    assert beater.beat() == {task.id: Pulse.LOST}
    assert beater.beat() == {}
    assert (await crew.engine.get(task.id)).state is State.SCHEDULED


async def test_each_of_several_tasks_of_one_claim_is_told_to_stop(crew: Crew) -> None:
    for _ in range(3):
        await crew.submit("work")
    tasks = await crew.engine.claim(WorkerId("worker-1"), ["default"], limit=3)
    beater = Beater(
        AdminEngine(crew.store, SETTINGS, batching=False),
        {task.id: task.status.lease.token for task in tasks if task.status.lease},
    )
    first, second, third = (task.id for task in tasks)

    await crew.engine.cancel(first)
    assert beater.look() == {first: Pulse.CANCEL}
    for task_id in (second, third):
        await crew.engine.cancel(task_id)

    assert beater.look() == {second: Pulse.CANCEL, third: Pulse.CANCEL}
    assert beater.beat() == {}


async def test_messages_arrive_whole_however_they_are_cut() -> None:
    many = {TaskId(f"{number:032x}"): LeaseToken(str(number)) for number in range(2_000)}
    few = {TaskId("few"): LeaseToken("one")}
    stream = frame((many, {})) + frame(({}, {})) + frame((few, many))
    reading, writing = os.pipe()
    ward = Ward(os.getppid(), reading)

    def write() -> None:
        for start in (*range(12), *range(12, len(stream), 30_000)):
            end = start + 1 if start < 12 else start + 30_000
            os.write(writing, stream[start:end])
        os.close(writing)

    writer = asyncio.get_running_loop().run_in_executor(None, write)
    try:
        assert not await asyncio.to_thread(ward.listen, PATIENCE)
    finally:
        await writer
        os.close(reading)
    assert ward.held == few
    assert ward.is_gone


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
    keeper = ThreadKeeper(AdminEngine(Unreachable(), SETTINGS, batching=False))
    await keeper.start(lambda task_id, pulse: None, failures.append)
    try:
        keeper.hold([await claimed(crew)])
        await eventually(lambda: sum(failures) >= 2)
    finally:
        await keeper.close()
