"""Where handlers run, how many at once, and what becomes of their results."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Sequence

from fairlead import current_task
from fairlead.core.instant import Instant
from fairlead.core.settings import Settings
from fairlead.core.task import Priority, State, Task
from fairlead.storage.memory import MemoryStore
from fairlead.storage.values import Change, Claim, Verdict
from tests.worker import isolated
from tests.worker.building import Crew, eventually


async def test_an_async_handler_runs_on_the_loop(crew: Crew) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def look() -> None:
        loops.append(asyncio.get_running_loop())

    crew.handle(look)
    async with crew.working():
        await crew.until(await crew.submit("look"), State.COMPLETED)
    assert loops == [asyncio.get_running_loop()]


async def test_a_plain_handler_runs_in_a_thread_of_its_own(crew: Crew) -> None:
    def look() -> int:
        return threading.get_ident()

    crew.handle(look)
    async with crew.working():
        task = await crew.until(await crew.submit("look"), State.COMPLETED)
    assert int(task.status.result or b"0") not in (0, threading.get_ident())


async def test_an_isolated_handler_runs_in_another_process(crew: Crew) -> None:
    crew.handle(isolated.process_id, isolate=True)
    async with crew.working():
        task = await crew.until(await crew.submit("process_id"), State.COMPLETED)
    assert int(task.status.result or b"0") not in (0, os.getpid())


async def test_a_result_is_stored_as_json_and_none_as_nothing(crew: Crew) -> None:
    async def numbers(upto: int) -> dict[str, list[int]]:
        return {"numbers": list(range(upto))}

    def nothing() -> None: ...

    crew.handle(numbers)
    crew.handle(nothing)
    async with crew.working():
        some = await crew.until(await crew.submit("numbers", parameters={"upto": 3}), State.COMPLETED)
        none = await crew.until(await crew.submit("nothing"), State.COMPLETED)
    assert (some.status.result, none.status.result) == (b'{"numbers":[0,1,2]}', None)


async def test_a_handler_knows_its_task(crew: Crew) -> None:
    async def on_loop() -> list[object]:
        return whoami()

    def in_thread() -> list[object]:
        return whoami()

    def whoami() -> list[object]:
        context = current_task()
        return [context.id, context.type, context.queue, context.attempt, context.trace, context.cancel_asked]

    for handler in (on_loop, in_thread):
        crew.handle(handler)
        async with crew.working():
            task = await crew.until(await crew.submit(handler.__name__, trace="00-abc"), State.COMPLETED)
        expected = f'["{task.id}","{handler.__name__}","default",1,"00-abc",false]'
        assert task.status.result == expected.encode()


async def test_concurrent_handlers_never_outnumber_the_slots(crew: Crew) -> None:
    running, most = 0, 0

    async def on_loop() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1

    def in_thread() -> None:
        with lock:
            seen.append(len(inside))
            inside.add(threading.get_ident())
        pause.wait(0.002)
        with lock:
            inside.remove(threading.get_ident())

    lock, pause, inside, seen = threading.Lock(), threading.Event(), set[int](), list[int]()
    crew.handle(on_loop)
    crew.handle(in_thread)
    for name in ("on_loop", "in_thread"):
        tasks = [await crew.submit(name) for _ in range(40)]
        async with crew.working(concurrency=3):
            for task in tasks:
                await crew.until(task, State.COMPLETED)
    assert most == 3
    assert max(seen) == 2


async def test_a_worker_claims_only_for_its_free_slots(crew: Crew) -> None:
    release = asyncio.Event()

    async def hold() -> None:
        await release.wait()

    crew.handle(hold)
    tasks = [await crew.submit("hold") for _ in range(5)]
    async with crew.working(concurrency=2) as worker:
        await crew.until(tasks[1], State.EXECUTING)
        # However often it is asked for more, there is no slot: the others wait for whoever has one.
        assert await worker.once() == 0
        assert [(await crew.engine.get(task.id)).state for task in tasks[2:]] == [State.QUEUED] * 3
        release.set()
        for task in tasks:
            await crew.until(task, State.COMPLETED)


async def test_the_more_urgent_task_runs_first(crew: Crew) -> None:
    order: list[str] = []

    async def note(name: str) -> None:
        order.append(name)

    crew.handle(note)
    for priority in reversed(Priority):
        await crew.submit("note", parameters={"name": priority.word}, priority=priority)
    async with crew.working(concurrency=1):
        await eventually(lambda: len(order) == 4)
    assert order == ["critical", "high", "medium", "low"]


async def test_a_result_over_the_limit_fails_the_task_without_a_retry() -> None:
    crew = Crew(Settings(payload_limit=1_000))

    async def verbose() -> str:
        return "x" * 2_000

    crew.handle(verbose)
    async with crew.working():
        task = await crew.until_ended(await crew.submit("verbose"))
    assert (task.state, task.status.attempts) == (State.FAILED, 1)
    assert task.status.failure is not None
    assert task.status.failure.message.startswith("result is 2,002 bytes, over the limit of 1,000")
    assert task.status.result is None


async def test_a_result_without_a_json_form_fails_the_task_without_a_retry(crew: Crew) -> None:
    async def on_loop() -> object:
        return object()

    def in_thread() -> object:
        return {1j: 2}

    def too_deep() -> object:
        nested: object = 0
        for _ in range(61):
            nested = [nested]
        return nested

    for handler in (on_loop, in_thread, too_deep, isolated.unspeakable):
        crew.handle(handler, isolate=handler is isolated.unspeakable)
    async with crew.working():
        for name in ("on_loop", "in_thread", "too_deep", "unspeakable"):
            task = await crew.until_ended(await crew.submit(name))
            assert (task.state, task.status.attempts) == (State.FAILED, 1)
            assert task.status.failure is not None
            why = "cannot be stored as JSON" if name == "too_deep" else "has no JSON form"
            assert f"the result of {name} {why}" in task.status.failure.message


async def test_tasks_that_share_a_key_follow_each_other_without_a_pause(crew: Crew) -> None:
    """A place that comes free rings no bell: the worker that has freed it looks who was waiting for it."""
    running = most = 0

    async def step() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    crew.handle(step)
    tasks = [await crew.submit("step", concurrency_key="k") for _ in range(200)]
    # With a look only every second, this would take longer than anyone waits.
    async with crew.working(concurrency=8):
        for task in tasks:
            await crew.until(task, State.COMPLETED)
    assert most == 1


class ServedStore(MemoryStore):
    """A store that is a server, by its own clock; notes in which turn of the event loop it is asked for what."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = 0
        self.asked: list[tuple[str, int]] = []

    def count_turns(self) -> None:
        self.turn += 1
        asyncio.get_running_loop().call_soon(self.count_turns)

    async def time(self) -> Instant | None:
        return time.time_ns() // 1_000

    async def claim(self, claim: Claim) -> list[Task]:
        self.asked.append(("claim", self.turn))
        return await super().claim(claim)

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        self.asked.append(("settle", self.turn))
        return await super().apply(changes)


async def test_a_server_is_asked_for_more_before_it_is_told_what_has_ended() -> None:
    store = ServedStore()
    crew = Crew(store=store)

    async def work() -> None: ...

    crew.handle(work)
    await crew.engine.follow_clock()
    tasks = [await crew.submit("work") for _ in range(15)]
    store.count_turns()
    async with crew.working(concurrency=5):
        for task in tasks:
            await crew.until_ended(task)

    asked = [operation for operation, _ in store.asked]
    settles = [at for at, operation in enumerate(asked) if operation == "settle"]
    assert asked[:2] == ["claim", "claim"]
    assert len(settles) == 3
    for at in settles:
        (before, claimed), (_, settled) = store.asked[at - 1 : at + 1]
        assert before == "claim"
        assert claimed < settled
