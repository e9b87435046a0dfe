"""What a submitter can do with a task it has submitted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead import Fairlead, Reject, Settings, State, TaskFailed, TaskNotFound, WrongState
from fairlead.core.task import Reason

SETTINGS = Settings(lease=3, heartbeat=0.2, sweep_interval=0.05)
PATIENCE = 60.0
app = Fairlead("memory://", settings=SETTINGS)
gate: asyncio.Event
started: asyncio.Event


@app.task
async def double(number: int) -> int:
    return 2 * number


@app.task
async def wait() -> str:
    started.set()
    await gate.wait()
    return "let go"


@app.task
async def refuse() -> None:
    raise Reject("not this one")


@pytest.fixture(autouse=True)
async def working() -> AsyncIterator[None]:
    global gate, started
    gate, started = asyncio.Event(), asyncio.Event()
    worker = await app.worker(keeper_process=False)
    running = asyncio.create_task(worker.run())
    yield
    worker.leave()
    worker.leave()
    await running
    await app.close()


async def test_a_result_is_waited_for_and_typed() -> None:
    task = await double.submit(21)
    assert await task.result(timeout=PATIENCE) == 42
    assert task.status is State.COMPLETED
    assert await task.result() == 42


async def test_a_result_that_does_not_come_in_time_is_a_timeout_and_the_task_goes_on() -> None:
    task = await wait.submit()
    with pytest.raises(
        TimeoutError, match=rf"task {task.id} has not ended after 0.05 s; it is still waiting or running"
    ):
        await task.result(timeout=0.05)
    gate.set()
    assert await task.result(timeout=PATIENCE) == "let go"


async def test_a_task_that_failed_has_no_result_but_a_reason() -> None:
    task = await refuse.submit()
    with pytest.raises(TaskFailed, match=r"ended as failed \(rejected\): Reject: not this one") as failed:
        await task.result(timeout=PATIENCE)
    assert (failed.value.task_id, failed.value.state, failed.value.reason) == (task.id, State.FAILED, Reason.REJECTED)
    assert task.failure is not None
    assert task.failure.message == "not this one"


async def test_a_waiting_task_is_cancelled_at_once() -> None:
    task = await double.options(delay=3_600).submit(1)
    assert await task.cancel() is State.CANCELLED
    with pytest.raises(TaskFailed, match="ended as cancelled"):
        await task.result()
    with pytest.raises(WrongState, match="is cancelled: cancel is possible only if it is"):
        await task.cancel()


async def test_a_running_task_is_asked_to_stop() -> None:
    task = await wait.submit()
    await asyncio.wait_for(started.wait(), PATIENCE)
    assert await task.cancel() is State.EXECUTING
    with pytest.raises(TaskFailed, match="ended as cancelled"):
        await task.result(timeout=PATIENCE)


async def test_a_status_is_what_was_last_seen() -> None:
    task = await double.submit(1)
    assert task.status is State.QUEUED
    assert repr(task) == f"<task {task.id} double queued>"
    await task.result(timeout=PATIENCE)
    assert task.snapshot.status.attempts == 1


async def test_many_results_are_waited_for_at_once() -> None:
    tasks = await double.submit_many(double.call(number) for number in range(50))
    assert await asyncio.gather(*(task.result(PATIENCE) for task in tasks)) == [2 * number for number in range(50)]


async def test_a_task_that_is_forgotten_is_not_found() -> None:
    task = await double.submit(1)
    await task.result(timeout=PATIENCE)
    await (await app.connection().engine()).discard(task.id)
    with pytest.raises(TaskNotFound):
        await task.result()


async def test_the_synchronous_words_work_inside_a_running_loop() -> None:
    """Not advisable, for they block it; but a library that is called from both worlds must not break."""
    task = double.submit_sync(1)
    assert task.refresh_sync().status in State
    assert double.options(delay=60).submit_sync(1).cancel_sync() is State.CANCELLED
    assert await asyncio.to_thread(task.result_sync, PATIENCE) == 2
