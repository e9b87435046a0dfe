"""A worker that is asked to leave loses nothing and spends no retry."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from fairlead import SECOND
from fairlead.core.errors import InvalidSettings, StoreRefused, StoreUnavailable
from fairlead.core.task import Priority, Reason, State, Task
from fairlead.storage.values import Claim
from fairlead.worker.worker import WorkerSettings
from tests.conformance.prompt_store import PromptStore
from tests.worker import isolated
from tests.worker.building import PATIENCE, SETTINGS, Crew, eventually, reasons
from tests.worker.faults import FaultyStore
from tests.worker.test_timeouts import is_gone


async def leave(crew: Crew, tasks: list[Task], times: int = 1, drain_seconds: float = 30.0) -> float:
    """Have a worker start tasks and leave; how long leaving took."""
    worker = crew.worker(drain_seconds=drain_seconds)
    running = asyncio.create_task(worker.run())
    for task in tasks:
        await crew.until(task, State.EXECUTING)
    started = time.monotonic()
    for _ in range(times):
        worker.leave()
    await asyncio.wait_for(running, PATIENCE)
    return time.monotonic() - started


def assert_handed_back(task: Task) -> None:
    assert (task.state, task.status.retries, task.status.crashes) == (State.QUEUED, 0, 0)
    assert reasons(task) == [Reason.HANDED_BACK]


async def test_running_tasks_may_end(crew: Crew) -> None:
    release = asyncio.Event()

    async def wait() -> str:
        asyncio.get_running_loop().call_later(0.2, release.set)
        await release.wait()
        return "in time"

    crew.handle(wait)
    task = await crew.submit("wait")
    await leave(crew, [task])
    assert (await crew.engine.get(task.id)).status.result == b'"in time"'


async def test_no_more_is_claimed(crew: Crew) -> None:
    release = asyncio.Event()

    async def wait() -> None:
        await release.wait()

    crew.handle(wait)
    worker = crew.worker(concurrency=1)
    running = asyncio.create_task(worker.run())
    task, waiting = await crew.submit("wait"), await crew.submit("wait")
    await crew.until(task, State.EXECUTING)
    worker.leave()
    release.set()
    await asyncio.wait_for(running, PATIENCE)
    assert (await crew.engine.get(task.id)).state is State.COMPLETED
    assert await crew.engine.get(waiting.id) == waiting


async def test_what_does_not_end_in_time_is_handed_back_wherever_it_runs(crew: Crew, tmp_path: Path) -> None:
    let_go = threading.Event()

    async def on_loop() -> None:
        await asyncio.Event().wait()

    async def clumsy() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionError("it broke when it was cancelled") from None

    def in_thread() -> None:
        let_go.wait(60)

    note = tmp_path / "pid"
    for handler in (on_loop, clumsy, in_thread):
        crew.handle(handler)
    crew.handle(isolated.spin, isolate=True)
    tasks = [await crew.submit(name, priority=Priority.HIGH) for name in ("on_loop", "clumsy", "in_thread")]
    tasks.append(await crew.submit("spin", parameters={"note": str(note)}))
    worker = crew.worker(drain_seconds=0.3)
    running = asyncio.create_task(worker.run())
    await eventually(note.exists)
    for task in tasks:
        await crew.until(task, State.EXECUTING)

    worker.leave()
    await asyncio.wait_for(running, PATIENCE)

    for task in tasks:
        back = await crew.engine.get(task.id)
        assert_handed_back(back)
        assert back.status.ready_at == task.status.ready_at, "a deploy must not cost a task its place in the line"
    assert is_gone(int(note.read_text()))
    let_go.set()


async def test_a_worker_does_not_leave_before_what_it_hands_back_is_stored() -> None:
    store = FaultyStore()
    crew = Crew(SETTINGS, store)

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.1)

    crew.handle(wait)
    task = await crew.submit("wait")
    store.delay = 0.2
    await leave(crew, [task], drain_seconds=0.0)
    assert_handed_back(await crew.engine.get(task.id))


async def test_a_second_word_is_heeded_at_once(crew: Crew) -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    crew.handle(wait)
    task = await crew.submit("wait")
    assert await leave(crew, [task], times=2, drain_seconds=3_600.0) < PATIENCE
    assert_handed_back(await crew.engine.get(task.id))


async def test_what_a_claim_brings_while_the_worker_leaves_is_handed_back() -> None:
    store = FaultyStore()
    crew = Crew(SETTINGS, store)
    ran: list[str] = []

    async def work() -> None:
        ran.append("work")

    crew.handle(work)
    worker = crew.worker()
    task = await crew.submit("work")
    store.after_claim = worker.leave
    await asyncio.wait_for(worker.run(), PATIENCE)
    assert_handed_back(await crew.engine.get(task.id))
    assert ran == []


class HeldStore(FaultyStore):
    """A store that answers claims when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.let_go = asyncio.Event(), asyncio.Event()
        self.last_word: Exception | None = None

    async def claim(self, claim: Claim) -> list[Task]:
        tasks = await super().claim(claim)
        self.asked.set()
        await self.let_go.wait()
        if self.last_word is not None:
            raise self.last_word
        return tasks


@pytest.mark.parametrize("answer", ["the tasks", "an error", "none"])
async def test_a_claim_that_is_not_answered_when_the_worker_is_asked_to_leave(
    answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for within the grace; and if it says nothing of the tasks that it took, the worker says that."""
    if answer == "none":
        monkeypatch.setattr("fairlead.worker.worker._LAST_WORDS", 0.1)
    store = HeldStore()
    crew = Crew(SETTINGS, store)

    async def work() -> None: ...

    crew.handle(work)
    task = await crew.submit("work")
    worker = crew.worker(drain_seconds=0.1 if answer == "none" else PATIENCE)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(store.asked.wait(), PATIENCE)
    worker.leave()
    if answer == "the tasks":
        store.let_go.set()
        await asyncio.wait_for(running, PATIENCE)
        assert_handed_back(await crew.engine.get(task.id))
        return
    if answer == "an error":
        store.last_word = StoreUnavailable("it hangs")
        store.let_go.set()
    with pytest.raises(
        StoreUnavailable, match=r"tasks may have been granted .* run again when their leases have ended"
    ):
        await asyncio.wait_for(running, PATIENCE)
    assert (await crew.engine.get(task.id)).state is State.EXECUTING


async def test_a_claim_that_is_refused_or_answered_later_leaves_nothing_in_doubt() -> None:
    store = HeldStore()
    crew = Crew(SETTINGS, store)

    async def work() -> None: ...

    crew.handle(work)
    worker = crew.worker()
    store.last_word = StoreUnavailable("it hangs")
    store.let_go.set()
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(store.asked.wait(), PATIENCE)
    store.last_word = None
    task = await crew.submit("work")
    await crew.until_ended(task)
    store.last_word = StoreRefused("not with this password")
    worker.leave()
    await asyncio.wait_for(running, PATIENCE)


class LastMinuteStore(PromptStore):
    """A store that has just taken a task when a wait is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = asyncio.Event()

    async def wait_and_claim(self, claim: Claim, timeout: float) -> list[Task] | None:
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if tasks := await self.claim(claim):
                return tasks
            raise
        return None


async def test_what_a_wait_brings_while_the_worker_leaves_is_handed_back() -> None:
    store = LastMinuteStore()
    crew = Crew(SETTINGS, store)
    ran: list[str] = []

    async def work() -> None:
        ran.append("work")

    crew.handle(work)
    await crew.engine.follow_clock()
    worker = crew.worker()
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(store.waiting.wait(), PATIENCE)
    task = await crew.submit("work")
    worker.leave()
    await asyncio.wait_for(running, PATIENCE)
    assert_handed_back(await crew.engine.get(task.id))
    assert ran == []


async def test_a_worker_that_cannot_hand_back_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.worker.worker._LAST_WORDS", 0.5)
    store = FaultyStore()
    crew = Crew(SETTINGS, store)

    async def wait() -> None:
        await asyncio.Event().wait()

    crew.handle(wait)
    task = await crew.submit("wait")
    worker = crew.worker(drain_seconds=0.0)
    running = asyncio.create_task(worker.run())
    await crew.until(task, State.EXECUTING)
    store.error = StoreUnavailable("the cable was cut")
    worker.leave()
    with pytest.raises(StoreUnavailable, match="1 tasks were neither settled nor handed back when the worker left"):
        await asyncio.wait_for(running, PATIENCE)


async def test_a_coroutine_that_swallows_its_cancel_is_handed_back_all_the_same(
    crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    released = asyncio.Event()

    async def stubborn() -> None:
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()

    crew.handle(stubborn)
    task = await crew.submit("stubborn")
    await leave(crew, [task], times=2)
    assert_handed_back(await crew.engine.get(task.id))
    assert f"task {task.id}: its handler ignores the request to stop (hand back); leaving it running" in caplog.text
    released.set()


async def test_a_handed_back_task_is_run_by_the_next_worker(crew: Crew) -> None:
    starts = 0

    async def second_time() -> str:
        nonlocal starts
        starts += 1
        if starts == 1:
            await asyncio.Event().wait()
        return "well"

    crew.handle(second_time)
    task = await crew.submit("second_time", max_retries=0, max_crashes=0)
    await leave(crew, [task], times=2)
    async with crew.working():
        end = await crew.until_ended(task)
    assert (end.state, end.status.attempts, end.status.retries) == (State.COMPLETED, 2, 0)


async def test_a_worker_is_idle_when_all_is_settled(crew: Crew) -> None:
    async def work() -> None: ...

    crew.handle(work)
    worker = crew.worker()
    task = await crew.submit("work")
    assert await worker.once() == 1
    await worker.idle()
    assert (await crew.engine.get(task.id)).state is State.COMPLETED


def test_settings_that_make_no_sense_are_refused() -> None:
    for concurrency in (0, -1, 2.5, True, "3", None, float("nan")):
        with pytest.raises(InvalidSettings, match=r"concurrency .*; use .*1 to "):
            WorkerSettings(concurrency=concurrency)  # type: ignore[arg-type]
    for drain in (-1.0, float("nan"), float("inf"), "x", True, None, timedelta(-1)):
        with pytest.raises(InvalidSettings, match=r"drain_seconds .*; use "):
            WorkerSettings(drain_seconds=drain)  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings, match="app 5 is not a text; "):
        WorkerSettings(app=5)  # type: ignore[arg-type]


def test_how_long_a_worker_drains_is_said_in_seconds_or_as_a_timedelta() -> None:
    said = (0, 2.5, 90 * SECOND, timedelta(minutes=2))
    assert [WorkerSettings(drain_seconds=each).drain for each in said] == [0.0, 2.5, 90.0, 120.0]
