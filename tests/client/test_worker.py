"""The Python worker over the worker protocol: unchanged, but for where its tasks come from."""

from __future__ import annotations

import asyncio
import json
import logging
import threading

import pytest

from fairlead.admin.keys.service import Keyring
from fairlead.app.remote import RemoteConnection
from fairlead.core.errors import LeaseLost, StoreRefused, TaskFailed
from fairlead.core.events import HandedBack
from fairlead.core.retry import Reject
from fairlead.core.task import Reason, State, Task
from fairlead.core.tenancy import Role
from fairlead.engine.engine import Settlement
from fairlead.engine.worker_records import KindSlots
from fairlead.worker.context import current_task
from fairlead.worker.logs import LogHandler, LogSetup
from fairlead.worker.task_log import TransitionLog
from tests.client.serving import Port
from tests.worker.building import PATIENCE, eventually


async def test_handlers_run_and_their_results_come_back(port: Port) -> None:
    app = port.app()
    odd = "ü \U0001f6a2"

    @app.task
    async def greet(name: str, number: float) -> dict[str, object]:
        return {"hello": name, "number": number}

    @app.task
    def add(one: int, two: int) -> int:
        return one + two

    @app.task
    async def nothing() -> None:
        return None

    async with port.hired(app):
        assert await (await greet.submit(odd, number=1.5)).result(30) == {"hello": odd, "number": 1.5}
        assert await (await add.submit(10**30, 1)).result(30) == 10**30 + 1
        handle = await nothing.submit()
        await handle.result(30)
        assert (await port.engine.get(handle.id)).status.result is None


async def test_a_worker_with_the_key_of_a_tenant_runs_its_tasks_from_its_queue(port: Port) -> None:
    await port.engine.queues.change("mine", tenant="acme")
    ring = Keyring(port.engine)
    app = port.app((await ring.create("acme", [Role.SUBMIT, Role.READ, Role.WORK], tenant="acme")).text)

    @app.task(queue="mine")
    async def whose() -> str | None:
        return current_task().id

    worker = await app.worker(queues=["mine"], keeper_process=False)
    running = asyncio.create_task(worker.run())
    try:
        handle = await whose.submit()
        assert await handle.result(30) == handle.id
        (present,) = await port.engine.worker_records.workers()
        assert (present.tenant, present.queues) == ("acme", ("mine",))
    finally:
        worker.leave()
        await asyncio.wait_for(running, PATIENCE)
    assert (await port.engine.get(handle.id)).spec.tenant == "acme"


async def test_a_worker_with_the_key_of_a_tenant_is_told_what_to_do_for_another_queue(port: Port) -> None:
    made = await Keyring(port.engine).create("acme", [Role.WORK], tenant="acme")
    app = port.app(made.text)

    @app.task
    async def work() -> None: ...

    with pytest.raises(StoreRefused, match="have an admin bind it with `fairlead queues set default --tenant acme`"):
        await (await app.worker(keeper_process=False)).run()


async def test_retry_rules_know_what_an_error_derives_from_over_http_too(port: Port) -> None:
    app = port.app()

    @app.task(retry_rules={OSError: "reject"})
    async def missing() -> None:
        raise FileNotFoundError("no such file")

    async with port.hired(app):
        handle = await missing.submit()
        with pytest.raises(TaskFailed):
            await handle.result(30)
    assert (await port.engine.get(handle.id)).status.reason is Reason.REJECTED_BY_RULE


async def test_a_failure_is_retried_and_a_rejection_is_not(port: Port) -> None:
    app = port.app()

    @app.task
    async def fickle() -> int:
        if current_task().attempt < 3:
            raise RuntimeError("not yet \ud800")
        return current_task().attempt

    @app.task
    async def hopeless() -> None:
        raise Reject("never")

    async with port.hired(app):
        assert await (await fickle.submit()).result(30) == 3
        handle = await hopeless.submit()
        task = await port.until_state(handle.id, State.FAILED)
        assert task.status.failure is not None and task.status.failure.message == "never"
        history = [entry.reason for entry in (await port.engine.get(handle.id)).status.history]
        assert history == [Reason.REJECTED]


async def test_a_handler_submits_further_tasks_through_the_same_server(port: Port) -> None:
    app = port.app()

    @app.task
    async def child(number: int) -> int:
        return number * 2

    @app.task
    async def parent(number: int) -> list[int]:
        handles = await child.submit_many([child.call(each) for each in range(number)])
        return [await handle.result(30) for handle in handles]

    @app.task
    def parent_in_thread(number: int) -> int:
        return child.submit_sync(number).result_sync(30)

    async with port.hired(app):
        assert await (await parent.submit(3)).result(30) == [0, 2, 4]
        assert await (await parent_in_thread.submit(4)).result(30) == 8


async def test_progress_and_cancel_pass_through(port: Port) -> None:
    app = port.app()
    began = asyncio.Event()

    @app.task
    async def long() -> None:
        current_task().progress(25, "a quarter")
        began.set()
        await asyncio.Event().wait()

    async with port.hired(app):
        handle = await long.submit()
        await began.wait()
        task = await port.until_state(handle.id, lambda task: task.status.progress is not None)
        assert task.status.progress is not None and task.status.progress.message == "a quarter"
        await handle.cancel()
        await port.until_state(handle.id, State.CANCELLED)


async def test_a_thread_is_told_to_stop(port: Port) -> None:
    app = port.app()
    began = threading.Event()
    over = threading.Event()

    @app.task
    def long() -> None:
        began.set()
        while not current_task().cancel_asked:
            over.wait(0.01)

    async with port.hired(app):
        handle = await long.submit()
        await eventually(began.is_set)
        await handle.cancel()
        await port.until_state(handle.id, State.CANCELLED)


async def test_no_more_is_taken_than_there_is_room_for(port: Port) -> None:
    app = port.app()
    running: set[int] = set()
    most = 0
    go_on = asyncio.Event()

    @app.task
    async def work(number: int) -> None:
        nonlocal most
        running.add(number)
        most = max(most, len(running))
        await go_on.wait()
        running.discard(number)

    async with port.hired(app, concurrency=3):
        handles = await work.submit_many([work.call(number) for number in range(10)])
        await eventually(lambda: len(running) == 3)
        states = (await port.engine.stats()).states
        assert (states[State.EXECUTING], states[State.QUEUED]) == (3, 7)
        go_on.set()
        for handle in handles:
            await handle.result(30)
    assert most == 3


async def test_each_kind_of_handler_has_slots_of_its_own(port: Port) -> None:
    app = port.app()
    loops, threads = set[int](), set[int]()
    go_on, released = asyncio.Event(), threading.Event()

    @app.task
    async def on_loop(number: int) -> None:
        loops.add(number)
        await go_on.wait()

    @app.task
    def in_thread(number: int) -> None:
        threads.add(number)
        released.wait(PATIENCE)

    async with port.hired(app, concurrency=3, thread_concurrency=2):
        slow = await in_thread.submit_many([in_thread.call(number) for number in range(4)])
        await eventually(lambda: len(threads) == 2)
        quick = await on_loop.submit_many([on_loop.call(number) for number in range(4)])
        await eventually(lambda: len(loops) == 3)
        states = (await port.engine.stats()).states
        assert (states[State.EXECUTING], states[State.QUEUED]) == (5, 3)
        released.set()
        go_on.set()
        for handle in [*slow, *quick]:
            await handle.result(30)


async def test_the_outcome_of_a_zombie_is_refused(port: Port) -> None:
    app = port.app()
    began, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> str:
        if current_task().attempt == 1:
            began.set()
            # It does not heed that its lease is lost.
            await asyncio.shield(asyncio.create_task(go_on.wait()))
        return "second"

    async with port.hired(app):
        handle = await work.submit()
        await began.wait()
        await port.lose_lease(await port.engine.get(handle.id))
        assert await handle.result(30) == "second"
        go_on.set()
        assert (await port.engine.get(handle.id)).status.crashes == 1


async def test_a_lost_lease_stops_the_attempt(port: Port, caplog: pytest.LogCaptureFixture) -> None:
    app = port.app()
    attempts: list[int] = []

    @app.task
    async def work() -> None:
        attempts.append(current_task().attempt)
        if len(attempts) == 1:
            await asyncio.Event().wait()

    # With one slot, it can take the task again only when it has let go of it.
    async with port.hired(app, concurrency=1):
        handle = await work.submit()
        await eventually(lambda: len(attempts) == 1)
        await port.lose_lease(await port.engine.get(handle.id))
        await port.until_state(handle.id, State.COMPLETED)
    assert attempts == [1, 2]
    assert "lease lost; stopping" in caplog.text


async def test_a_drain_that_is_asked_for_drains_the_worker(port: Port) -> None:
    app = port.app()
    began, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> None:
        began.set()
        await go_on.wait()

    worker = await app.worker(keeper_process=False)
    running = asyncio.create_task(worker.run())
    first = await work.submit()
    await began.wait()
    (present,) = await port.engine.worker_records.workers()
    await port.engine.worker_records.ask_drain(present.id)
    await eventually(worker._leaving.is_set)
    second = await work.submit()
    go_on.set()
    await asyncio.wait_for(running, 60)
    assert (await port.engine.get(first.id)).state is State.COMPLETED
    assert (await port.engine.get(second.id)).state is State.QUEUED
    assert await port.engine.worker_records.workers() == []


async def test_a_paused_worker_finishes_what_it_runs_and_takes_more_once_it_is_resumed(port: Port) -> None:
    app = port.app()
    began, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> None:
        began.set()
        await go_on.wait()

    async with port.hired(app) as worker:
        first = await work.submit()
        await began.wait()
        (present,) = await app.workers.all()
        assert (await app.workers.pause(present.id)).paused
        await eventually(lambda: worker._paused, "the pause")
        second = await work.submit()
        go_on.set()
        await port.until_state(first.id, State.COMPLETED)
        assert (await port.engine.get(second.id)).state is State.QUEUED
        assert [each.word for each in await app.workers.all()] == ["paused"]
        assert not (await app.workers.resume(present.id)).paused
        await port.until_state(second.id, State.COMPLETED)


async def test_a_worker_that_leaves_hands_back_what_it_runs(port: Port) -> None:
    app = port.app()
    began = asyncio.Event()

    @app.task
    async def endless() -> None:
        began.set()
        await asyncio.Event().wait()

    async with port.hired(app):
        handle = await endless.submit()
        await began.wait()
    task = await port.engine.get(handle.id)
    assert (task.state, task.status.reason, task.status.retries) == (State.QUEUED, Reason.HANDED_BACK, 0)


async def test_an_idle_worker_leaves_at_once_and_takes_nothing_with_it(port: Port) -> None:
    app = port.app()

    @app.task
    async def work() -> None: ...

    assert port.server is not None
    state = port.server.state
    async with port.hired(app):
        await eventually(lambda: state.dispatcher.waiting == 1)
        assert [present.running for present in await port.engine.worker_records.workers()] == [0]
    await eventually(lambda: state.dispatcher.waiting == 0)
    handle = await work.submit()
    assert (await port.engine.get(handle.id)).status.attempts == 0


async def test_an_idle_worker_asks_seldom(port: Port) -> None:
    app = port.app()

    @app.task
    async def work() -> None: ...

    assert port.server is not None
    dispatcher = port.server.state.dispatcher
    async with port.hired(app):
        await eventually(lambda: dispatcher.waiting == 1)
        handle = await work.submit()
        await handle.result(30)
        await eventually(lambda: dispatcher.waiting == 1)


async def test_a_server_that_is_gone_for_a_while_costs_nothing(port: Port, caplog: pytest.LogCaptureFixture) -> None:
    app = port.app()
    began, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def work(number: int) -> int:
        began.set()
        await go_on.wait()
        return number

    caplog.set_level(logging.WARNING, "fairlead.worker")
    async with port.hired(app):
        handle = await work.submit(1)
        await began.wait()
        await port.close()
        go_on.set()
        await eventually(lambda: any("cannot settle tasks" in line for line in caplog.messages))
        await port.open()
        await port.until_state(handle.id, State.COMPLETED)
        assert await (await work.submit(2)).result(30) == 2
    assert sum("cannot settle tasks" in line for line in caplog.messages) == 1
    assert (await port.engine.get(handle.id)).status.attempts == 1


async def test_a_worker_that_was_forgotten_registers_again(port: Port) -> None:
    app = port.app()

    @app.task
    async def work(number: int) -> int:
        return number

    async with port.hired(app):
        (present,) = await port.engine.worker_records.workers()
        await port.engine.worker_records.leave(present.id)
        assert port.server is not None
        port.server.state.registered._known.clear()
        # The first may come by a poll that was under way; no other poll is answered before it has registered.
        for number in (1, 2):
            assert await (await work.submit(number)).result(30) == number
        assert [again.id for again in await port.engine.worker_records.workers()] == [present.id]


async def test_what_a_wait_has_brought_is_handed_back_on_leaving(port: Port) -> None:
    app = port.app()

    @app.task
    async def work() -> None: ...

    connection = app._connection
    assert isinstance(connection, RemoteConnection)
    source = await connection.source(["default"], [], ["work"], slots=[KindSlots(kind="async", capacity=5)])
    assert await source.claim(2) == []
    waiting = asyncio.create_task(source.wait(2, 1.0))
    assert port.server is not None
    state = port.server.state
    await eventually(lambda: state.dispatcher.waiting == 1)
    handle = await work.submit()
    assert [task.id for task in await waiting or ()] == [handle.id]
    assert (await port.engine.get(handle.id)).state is State.EXECUTING
    await source.leave()
    task = await port.engine.get(handle.id)
    assert (task.state, task.status.reason) == (State.QUEUED, Reason.HANDED_BACK)


async def test_a_settle_is_told_apart_task_by_task(port: Port) -> None:
    app = port.app()

    @app.task
    async def work() -> None: ...

    connection = app._connection
    assert isinstance(connection, RemoteConnection)
    source = await connection.source(["default"], [], ["work"], slots=[KindSlots(kind="async", capacity=5)])
    await work.submit_many([work.call() for _ in range(2)])
    one, two = await source.claim(2)
    await port.lose_lease(one)
    lost, back = await source.settle([Settlement(task, HandedBack()) for task in (one, two)])
    assert isinstance(lost, LeaseLost)
    assert isinstance(back, Task) and back.state is State.QUEUED
    await source.leave()


async def test_a_worker_logs_its_tasks_although_its_server_does_too(
    port: Port, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = LogHandler(LogSetup("info", as_json=True))
    logger = logging.getLogger("fairlead")
    logger.addHandler(handler)
    logger.setLevel("INFO")
    app = port.app()
    app.rebind(port.url, [TransitionLog(handler)])

    @app.task
    async def fickle() -> int:
        if current_task().attempt < 2:
            raise RuntimeError("not yet")
        return 1

    @app.task(max_retries=0)
    def hopeless() -> None:
        raise ValueError("never")

    try:
        async with port.hired(app):
            retried, dead = await fickle.submit(), await hopeless.submit()
            await retried.result(30)
            with pytest.raises(TaskFailed):
                await dead.result(30)
    finally:
        logger.removeHandler(handler)
        logger.setLevel("NOTSET")
        handler.flush()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    told = {
        task_id: [(each["message"], each["level"]) for each in lines if each.get("task_id") == task_id]
        for task_id in (retried.id, dead.id)
    }
    assert told[retried.id] == [
        ("task started", "info"),
        ("task retrying", "warning"),
        ("task started", "info"),
        ("task completed", "info"),
    ]
    assert told[dead.id] == [("task started", "info"), ("task dead letter", "error")]
    (line,) = [each for each in lines if each["message"] == "task dead letter"]
    assert (line["reason"], line["error"]) == ("retries_used_up", "ValueError: never")
    assert line["traceback"].splitlines()[-1] == "ValueError: never"
