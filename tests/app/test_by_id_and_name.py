"""From an id to a task, and from the name of a type: without the handler, on every store and over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlead import (
    Fairlead,
    InvalidTask,
    Priority,
    Reject,
    Settings,
    State,
    TaskFailed,
    TaskInfo,
    TaskNotFound,
)
from tests.servers.stores import Place

SETTINGS = Settings(lease=3, heartbeat=0.2, sweep_interval=0.05)
NOBODY = "01a1f62d5712865a8caae20d67b034e6"


@dataclass
class Receipt:
    order_id: int
    paid: float


def declaring(app: Fairlead) -> Any:
    @app.task(priority="high", queue="billing", tags=["money"], timeout=30)
    async def bill(order_id: int, cents: int = 100) -> Receipt:
        if order_id < 0:
            raise Reject("no such order")
        return Receipt(order_id, cents / 100)

    return bill


@pytest.fixture
async def app(place: Place) -> AsyncIterator[Fairlead]:
    app = Fairlead(place.url, journal=place.journal, settings=SETTINGS)
    yield app
    await app.close()


@pytest.fixture
async def producer(place: Place) -> AsyncIterator[Fairlead]:
    """Another program on the same store, which declares nothing."""
    if place.url == "memory://":
        pytest.skip("what is in memory is seen by one app")
    app = Fairlead(place.url, journal=place.journal, settings=SETTINGS)
    yield app
    await app.close()


async def run(app: Fairlead, *tasks: Any) -> None:
    worker = await app.worker(queues=["default", "billing"], keeper_process=False)
    running = asyncio.create_task(worker.run())
    for task in tasks:
        with contextlib.suppress(TaskFailed):
            await task.result(timeout=60)
    worker.leave()
    await running


async def test_a_task_is_held_by_its_id_in_another_process(app: Fairlead) -> None:
    bill = declaring(app)
    task_id = (await bill.submit(17)).id

    again = bill.handle(task_id)
    await run(app, again)

    assert await again.result() == Receipt(17, 1.0)
    assert await app.handle(task_id).result() == Receipt(17, 1.0), "the app knows the type by the task"
    assert (await bill.handle(task_id.upper()).info()).id == task_id


async def test_what_is_known_of_a_task_is_decoded(app: Fairlead) -> None:
    bill = declaring(app)
    before = datetime.now(UTC) - timedelta(minutes=1)
    task_id = (await bill.submit(17, cents=250)).id

    waiting = await bill.handle(task_id).info()
    assert (waiting.status, waiting.result, waiting.started_at, waiting.due_at) == (State.QUEUED, None, None, None)
    assert (waiting.type, waiting.queue, waiting.priority, waiting.tags) == (
        "bill",
        "billing",
        Priority.HIGH,
        ("money",),
    )
    assert waiting.parameters == {"order_id": 17, "cents": 250}
    assert (waiting.timeout, waiting.attempts) == (timedelta(seconds=30), 0)

    await run(app, bill.handle(task_id))
    ended: TaskInfo[Receipt] = await bill.handle(task_id).info()
    assert ended.result == Receipt(17, 2.5)
    assert (ended.status, ended.reason, ended.error) == (State.COMPLETED, "completed", None)
    assert ended.started_at is not None
    assert ended.ended_at is not None
    assert before < ended.created_at <= ended.started_at <= ended.ended_at
    assert ended.created_at.tzinfo is UTC


async def test_what_went_wrong_is_told(app: Fairlead) -> None:
    bill = declaring(app)
    task = await bill.submit(-1)
    await run(app, task)
    info = await app.handle(task.id).info()
    assert info.error is not None
    assert (info.status, info.result, info.error.type, info.error.message) == (
        State.FAILED, None, "Reject", "no such order",
    )  # fmt: skip


async def test_nothing_is_looked_up_before_it_is_asked_for(app: Fairlead) -> None:
    bill = declaring(app)
    for handle in (bill.handle(NOBODY), app.handle(NOBODY)):
        assert (handle.id, repr(handle)) == (NOBODY, f"<task {NOBODY}>")
        with pytest.raises(LookupError, match=f"task {NOBODY} has not been looked at yet; call info"):
            _ = handle.status
        with pytest.raises(TaskNotFound, match=NOBODY):
            await handle.info()
        with pytest.raises(TaskNotFound, match=NOBODY):
            await handle.result(timeout=1)
        with pytest.raises(TaskNotFound, match=NOBODY):
            await handle.cancel()


@pytest.mark.parametrize("wrong", ["", "17", "../../etc", "g" * 32, "0" * 33, "🐟", "\x00" * 32])
def test_a_malformed_id_is_a_task_that_is_not_found(wrong: str) -> None:
    app = Fairlead("memory://")
    bill = declaring(app)
    for look in (bill.handle, app.handle, app.tasks.get_sync, app.tasks.cancel_sync, app.tasks.discard_sync):
        with pytest.raises(TaskNotFound):
            look(wrong)


@pytest.mark.parametrize("wrong", [None, 17, b"0" * 32, ["a"]])
def test_what_is_no_text_is_a_mistake_of_the_caller(wrong: Any) -> None:
    app = Fairlead("memory://")
    with pytest.raises(InvalidTask, match="is not a task id; a task id is a text"):
        app.handle(wrong)


async def test_a_task_of_another_type_is_not_taken_for_one_of_this(app: Fairlead) -> None:
    bill = declaring(app)

    @app.task
    async def other() -> str:
        return "other"

    task = await other.submit()
    await run(app, task)
    with pytest.raises(InvalidTask, match=rf"task {task.id} is of type other, not bill; use app.handle\(id\)"):
        await bill.handle(task.id).result()


def test_all_of_it_is_there_for_synchronous_code(any_app: Fairlead) -> None:
    bill = declaring(any_app)
    task = any_app.submit_sync("bill", {"order_id": 3})
    assert bill.handle(task.id).info_sync().parameters == {"order_id": 3}
    assert any_app.handle(task.id).info_sync().queue == "billing"
    assert any_app.handle(task.id).cancel_sync() is State.CANCELLED
    any_app.connection().close_inline()


async def test_a_type_of_this_app_is_submitted_by_its_name_as_it_is_declared(app: Fairlead) -> None:
    bill = declaring(app)
    task = await app.submit("bill", {"order_id": 17}, priority="low")
    spec = task.snapshot.spec
    assert (spec.type, spec.queue, spec.tags, task.snapshot.status.priority) == (
        "bill", "billing", ("money",), Priority.LOW,
    )  # fmt: skip
    await run(app, task)
    assert await task.result() == Receipt(17, 1.0)
    with pytest.raises(InvalidTask, match=r"bill\(\) cannot be called like this"):
        await app.submit("bill", {"order": 17})
    assert bill.handler.type == "bill"


async def test_a_producer_needs_no_handler(app: Fairlead, producer: Fairlead) -> None:
    declaring(app)
    task = await producer.submit("bill", {"order_id": 17}, queue="billing", idempotency_key="order 17")
    again = await producer.submit("bill", {"order_id": 17}, queue="billing", idempotency_key="order 17")
    assert (again.id, again.existing) == (task.id, True)
    await run(app, task)
    assert await task.result() == {"order_id": 17, "paid": 1.0}, "who does not know the type reads it as JSON"
    assert (await producer.handle(task.id).info()).result == {"order_id": 17, "paid": 1.0}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ([1], r"parameters \[1\] is not a dict by name"),
        ("text", "parameters 'text' is not a dict by name"),
        ({1: "a"}, "is not a dict by name"),
        ({"a": object()}, "parameters have no JSON form"),
        ({"a": float("nan")}, r"nan is not a number that JSON has - at `\$.a`"),
    ],
)
async def test_parameters_that_no_task_can_have_are_refused(parameters: Any, message: str) -> None:
    with pytest.raises(InvalidTask, match=message):
        await Fairlead("memory://").submit("bill", parameters)


@pytest.mark.parametrize("name", ["", "a b", 5, None])
async def test_a_name_that_no_type_can_have_is_refused(name: Any) -> None:
    with pytest.raises(InvalidTask, match="type"):
        await Fairlead("memory://").submit(name)


async def test_a_function_for_the_concurrency_key_needs_the_function_of_the_task() -> None:
    with pytest.raises(InvalidTask, match="only the app that declares the type can call it"):
        await Fairlead("memory://").submit("bill", concurrency_key=lambda: "a")
    app = Fairlead("memory://")

    @app.task(concurrency_key=lambda order_id: f"order {order_id}")
    async def settle(order_id: int) -> None: ...

    task = await app.submit("settle", {"order_id": 5})
    assert task.snapshot.spec.concurrency_key == "order 5"
    assert settle.handler.type == "settle"
