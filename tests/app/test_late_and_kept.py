"""Options that say when a task is too late, how long it is kept, and when a dependent runs; and putting a task off."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fairlead import HOUR, Fairlead, InvalidSettings, InvalidTask, Reject, Snooze, State
from fairlead.core.instant import MINUTE, SECOND
from fairlead.core.task import OwnRetention
from fairlead.storage.open import open_store
from tests.client.serving import Port
from tests.worker import isolated


async def test_options_are_stored_on_every_store_and_read_again(any_app: Fairlead) -> None:
    @any_app.task(expires=60, retention={"completed": timedelta(seconds=5)})
    async def pin() -> None: ...

    @any_app.task(retention=HOUR)
    async def kept() -> None: ...

    task = await any_app.tasks.get((await pin.submit()).id)
    assert (task.spec.expires, task.spec.retention) == (MINUTE, OwnRetention(completed=5 * SECOND))
    assert task.status.expires_at == task.status.ready_at + MINUTE
    both = await any_app.tasks.get((await kept.submit()).id)
    hour = 60 * MINUTE
    assert both.spec.retention == OwnRetention(completed=hour, cancelled=hour, failed=hour, dead_letter=hour)
    assert (await any_app.handle(task.id).info()).expires_at is not None
    assert (await any_app.handle(both.id).info()).expires_at is None


async def test_a_task_that_nobody_started_in_time_is_not_run(tmp_path: Path) -> None:
    app = Fairlead("memory://")
    ran: list[str] = []

    @app.task(expires=60)
    async def pin(name: str) -> None:
        ran.append(name)

    async with app.testing() as rehearsal:
        late, in_time = await pin.submit("late"), await pin.options(expires=HOUR).submit("in time")
        rehearsal.advance(61)
        assert await rehearsal.run() == 1
        assert ran == ["in time"]
        info = await late.info()
        assert (info.status, info.error and info.error.type, info.attempts) == (State.CANCELLED, "Expired", 0)
        assert (await in_time.info()).status is State.COMPLETED


async def test_a_dependent_may_run_only_if_its_parent_failed() -> None:
    app = Fairlead("memory://")
    ran: list[int] = []

    @app.task
    async def work(number: int) -> None:
        if number < 0:
            raise Reject("below zero")

    @app.task(on_failure="run_only_then")
    async def mend(number: int) -> None:
        ran.append(number)

    async with app.testing() as rehearsal:
        handles = {}
        for number in (1, -1):
            parent = await work.submit(number)
            handles[number] = await mend.options(after=[parent]).submit(number)
        await rehearsal.run()
        assert ran == [-1]
        unneeded = await handles[1].info()
        assert (unneeded.status, unneeded.error and unneeded.error.type) == (State.CANCELLED, "NotNeeded")


async def test_a_task_that_is_put_off_spends_no_retry_wherever_its_handler_runs() -> None:
    app = Fairlead("memory://")
    asked: list[str] = []

    def early(name: str) -> bool:
        asked.append(name)
        return asked.count(name) < 3

    @app.task(max_retries=0)
    async def on_loop() -> str:
        if early("on_loop"):
            raise Snooze(60)
        return "done"

    @app.task(max_retries=0)
    def in_thread() -> str:
        if early("in_thread"):
            raise Snooze(timedelta(minutes=1), "too early")
        return "done"

    in_process = app.task(max_retries=0, isolate=True)(isolated.put_off_once)
    async with app.testing() as rehearsal:
        handles: list[Any] = [await on_loop.submit(), await in_thread.submit(), await in_process.submit()]
        await rehearsal.run()
        for handle in handles:
            info = await handle.info()
            assert (info.status, info.reason, info.retries) == (State.SCHEDULED, "handed_back", 0)
            assert info.due_at is not None
            assert info.due_at - info.created_at == timedelta(minutes=1)
        await rehearsal.travel(180)
        assert [(await handle.info()).result for handle in handles] == ["done", "done", "done"]
        assert [(await handle.info()).retries for handle in handles] == [0, 0, 0]


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), "60", None, True, timedelta(0)])
def test_a_task_is_put_off_by_some_time(wrong: Any) -> None:
    with pytest.raises(InvalidSettings, match="Snooze after"):
        Snooze(wrong)


async def test_a_snooze_that_was_tampered_with_does_not_come_back_at_once() -> None:
    app = Fairlead("memory://")

    @app.task
    async def odd() -> None:
        error = Snooze(60)
        error.after = object()  # type: ignore[assignment]
        raise error

    async with app.testing() as rehearsal:
        task = await odd.submit()
        await rehearsal.run()
        assert (await task.info()).status is State.SCHEDULED


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"expires": 0}, "expires"),
        ({"expires": -1}, "expires"),
        ({"expires": "soon"}, "expires"),
        ({"expires": 10**9}, "expires"),
        ({"retention": -1}, "retention of completed"),
        ({"retention": "long"}, "retention"),
        ({"retention": {"done": 5}}, "retention names 'done'; the states that a task ends in: completed, cancelled"),
        ({"retention": {"failed": True}}, "retention of failed"),
        ({"on_failure": "sometimes"}, "on_failure"),
    ],
)
def test_what_an_option_cannot_be_is_refused_where_it_is_declared(options: Any, message: str) -> None:
    with pytest.raises(InvalidTask, match=message):
        Fairlead("memory://").task(name="work", **options)(lambda: None)


async def test_all_of_it_goes_over_http() -> None:
    port = Port(await open_store("memory://"))
    await port.open()
    try:
        app = port.app()

        @app.task(expires=60, retention={"failed": 5})
        async def pin() -> None: ...

        parent = await pin.submit()
        child = await pin.options(after=[parent], on_failure="run_only_then").submit()
        for task_id in (parent.id, child.id):
            here, there = await port.engine.get(task_id), await app.tasks.get(task_id)
            assert here.spec == there.spec
            assert here.status.expires_at == there.status.expires_at
        kept_child = await port.engine.get(child.id)
        assert kept_child.spec.after is not None
        assert kept_child.spec.after.only_then
        assert child.snapshot.spec.after == kept_child.spec.after
        await app.schedules.add("nightly", "@daily", pin.call())
        kept = (await port.engine.schedules.get("nightly")).schedule.submission
        assert (kept.expires, kept.retention) == (MINUTE, OwnRetention(failed=5 * SECOND))
    finally:
        await port.end()
