"""Chains and groups, as an app writes them."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead import Fairlead, InvalidTask, State, TaskFailed, chain, current_task, group
from fairlead.testing.builders import an_id

app = Fairlead("memory://")
ran: list[str] = []


@app.task
async def fetch(number: int) -> int:
    ran.append(f"fetch {number}")
    if number < 0:
        raise ValueError("no such number")
    return number * 10


@app.task
async def add_up() -> int:
    ran.append("add_up")
    results: list[int] = await app.parent_results()
    return sum(results)


@app.task
def add_up_in_a_thread() -> int:
    results: list[int] = app.parent_results_sync()
    return sum(results)


@app.task
async def count_failed() -> int:
    parents = await app.parents()
    assert [parent.id for parent in parents] == list(current_task().after)
    return sum(parent.status is not State.COMPLETED for parent in parents)


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()


class TestAfter:
    async def test_a_task_runs_after_those_it_names_by_handle_or_id(self) -> None:
        async with app.testing() as rehearsal:
            first, second = await fetch.submit(1), await fetch.submit(2)
            last = await add_up.options(after=[first, second.id]).submit()
            assert (last.status, last.snapshot.status.pending) == (State.SCHEDULED, 2)
            assert await rehearsal.run() == 3
            assert await last.result() == 30

    def test_from_synchronous_code_and_in_a_thread(self) -> None:
        with app.testing() as rehearsal:
            first = fetch.submit_sync(1)
            last = add_up_in_a_thread.options(after=[first]).submit_sync()
            rehearsal.run_sync()
            assert last.result_sync() == 10

    async def test_after_a_failure_it_is_cancelled_or_runs_anyway(self) -> None:
        async with app.testing() as rehearsal:
            failing = await fetch.options(max_retries=0).submit(-1)
            cancelled = await add_up.options(after=[failing]).submit()
            anyway = await count_failed.options(after=[failing], on_failure="run_anyway").submit()
            await rehearsal.run_all()
            with pytest.raises(TaskFailed, match=f"task {failing.id}, which this one waited for, did not complete"):
                await cancelled.result()
            assert await anyway.result() == 1

    async def test_results_of_those_that_failed_are_not_given(self) -> None:
        async with app.testing() as rehearsal:
            failing = await fetch.options(max_retries=0).submit(-1)
            last = await add_up.options(after=[failing], on_failure="run_anyway", max_retries=0).submit()
            await rehearsal.run_all()
            with pytest.raises(TaskFailed, match="TaskFailed: task"):
                await last.result()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"after": "abc"}, "after 'abc' is one word"),
            ({"after": ["abc"]}, "'abc' is not a task id"),
            ({"on_failure": "explode"}, "on_failure 'explode' is unknown; use one of cancel, run_anyway"),
        ],
    )
    def test_nonsense_is_named(self, options: dict[str, object], message: str) -> None:
        with pytest.raises(InvalidTask, match=message):
            add_up.options(**options)  # type: ignore[arg-type]

    async def test_a_task_that_waits_for_what_never_ends_does_not_keep_a_rehearsal(self) -> None:
        async with app.testing() as rehearsal:
            first = await fetch.options(queue="elsewhere").submit(1)
            await first.cancel()
            assert await rehearsal.run_all() == 0


class TestChain:
    @pytest.mark.parametrize(
        "wrong",
        [None, 5, "fetch", b"x", {"a": 1}, object(), fetch, [], group, 2.5],
        ids=lambda wrong: type(wrong).__name__,
    )
    def test_what_is_no_call_is_refused_and_never_left_out(self, wrong: Any) -> None:
        or_five: Any = 5 if wrong is None or wrong == [] else wrong
        for make in (
            lambda: chain(wrong),
            lambda: chain(fetch.call(1), wrong),
            lambda: chain(wrong, add_up.call()),
            lambda: group([wrong], callback=add_up.call()),
            lambda: group([fetch.call(1)], callback=or_five),
            lambda: group(or_five, callback=add_up.call()),
        ):
            with pytest.raises(InvalidTask, match=r"; (make it|write a list of calls, each made) with task\.call"):
                make()

    async def test_a_loop_may_add_to_a_chain_or_a_group_for_long(self) -> None:
        steps: Any = fetch.call(0)
        side: Any = fetch.call(0)
        for number in range(1, 2_000):
            steps, side = chain(steps, fetch.call(number)), group([side, fetch.call(number)])
        async with app.testing() as rehearsal:
            flow = await chain(side, steps).submit()
            assert len(flow.tasks) == 4_000
            assert (await flow.tasks[1_999].refresh()).status is State.QUEUED
            assert (await flow.tasks[2_001].refresh()).status is State.SCHEDULED
            assert rehearsal.clock.now()

    async def test_each_call_runs_when_the_one_before_has_completed(self) -> None:
        async with app.testing() as rehearsal:
            flow = await chain(fetch.call(1), fetch.call(2), add_up.call()).submit()
            await rehearsal.run()
            assert ran == ["fetch 1", "fetch 2", "add_up"]
            assert await flow.last.result() == 20
            assert [task.status for task in [await task.refresh() for task in flow.tasks]] == [State.COMPLETED] * 3

    async def test_the_rest_is_cancelled_after_a_failure(self) -> None:
        async with app.testing() as rehearsal:
            flow = await chain(fetch.options(max_retries=0).call(-1), fetch.call(2), add_up.call()).submit()
            await rehearsal.run()
            assert ran == ["fetch -1"]
            assert (await flow.last.refresh()).status is State.CANCELLED

    async def test_groups_and_chains_nest(self) -> None:
        async with app.testing() as rehearsal:
            flow = await chain(
                fetch.call(1),
                group([fetch.call(2), chain(fetch.call(3), fetch.call(4))]),
                add_up.call(),
            ).submit()
            await rehearsal.run()
            assert ran[0] == "fetch 1"
            assert set(ran[1:3]) == {"fetch 2", "fetch 3"}
            assert ran[3:] == ["fetch 4", "add_up"]
            assert await flow.last.result() == 60

    def test_a_call_may_wait_for_other_tasks_too(self) -> None:
        with app.testing() as rehearsal:
            other = fetch.submit_sync(7)
            flow = chain(fetch.call(1), add_up.options(after=[other]).call()).submit_sync()
            rehearsal.run_sync()
            assert flow.last.result_sync() == 80
            assert "flow of 2 tasks" in repr(flow)

    @pytest.mark.parametrize("steps", [[], [group([fetch.call(1)])]])
    def test_it_ends_with_a_call(self, steps: list[object]) -> None:
        with pytest.raises(InvalidTask, match="does not end with a call"):
            chain(*steps)  # type: ignore[call-overload]


class TestGroup:
    async def test_the_callback_runs_once_when_all_have_ended(self) -> None:
        async with app.testing() as rehearsal:
            flow = await group((fetch.call(number) for number in range(100)), callback=add_up.call()).submit()
            assert flow.last.snapshot.status.pending == 100
            assert await rehearsal.run() == 101
            assert ran.count("add_up") == 1
            assert await flow.last.result() == sum(range(0, 1000, 10))

    def test_it_is_not_empty(self) -> None:
        with pytest.raises(InvalidTask, match="the group has no calls"):
            group([])

    async def test_a_refusal_is_raised_and_no_callback_is_stored(self) -> None:
        async with app.testing() as rehearsal:
            calls = [fetch.call(1), fetch.options(after=[an_id()]).call(2)]
            with pytest.raises(InvalidTask, match=r"after names task .*, which is not stored"):
                await group(calls, callback=add_up.call()).submit()
            await rehearsal.run()
            assert ran == ["fetch 1"]
