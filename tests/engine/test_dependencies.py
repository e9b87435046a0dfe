"""Tasks that wait for others: when they are let go, what becomes of them after a failure, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.core.errors import FairleadError, InvalidTask
from fairlead.core.events import Completed, Failed
from fairlead.core.identity import TaskId
from fairlead.core.instant import DAY, HOUR, MINUTE, Instant
from fairlead.core.submission import AFTER_LIMIT, Submission
from fairlead.core.task import OnFailure, Reason, State, Task
from fairlead.engine.engine import Submitted
from fairlead.engine.events.types import Happening
from fairlead.storage.memory import MemoryStore
from fairlead.storage.protocol import Store
from tests.engine.building import BOOM, Bench, a_wish

DONE = Completed(b"1")
REJECTED = Failed(failure=BOOM, retriable=False)


@pytest.fixture
def shared(any_store: Store) -> Bench:
    """An engine over each store."""
    return Bench(store=any_store)


async def submit_all(bench: Bench, *wishes: Submission) -> list[Task]:
    answers = await bench.engine.submit_many(wishes)
    tasks = [answer.task for answer in answers if isinstance(answer, Submitted)]
    assert len(tasks) == len(wishes), answers
    return tasks


async def state_of(bench: Bench, task: Task) -> State:
    return (await bench.engine.get(task.id)).state


class TestRelease:
    async def test_a_task_runs_when_all_it_waits_for_have_completed(self, shared: Bench) -> None:
        first, second = await shared.submit(), await shared.submit()
        last = await shared.submit(after=(first.id, second.id))
        assert (last.state, last.status.pending, last.status.reason) == (State.SCHEDULED, 2, Reason.DEPENDENT)
        claimed = await shared.claim(limit=5)
        assert len(claimed) == 2
        await shared.settle(claimed[0], DONE)
        assert await shared.claim() == []
        shared.clock.advance(MINUTE)
        await shared.settle(claimed[1], DONE)
        (released,) = await shared.claim()
        assert released.id == last.id
        # Its place in the line counts from its release.
        assert released.status.ready_at == shared.clock.now()
        assert [entry.reason for entry in released.status.history] == [Reason.RELEASED]

    async def test_a_chain_in_one_batch_runs_in_its_order(self, shared: Bench) -> None:
        chain = await submit_all(shared, a_wish(), a_wish(after=(0,)), a_wish(after=(1,), queue="default"))
        ran: list[TaskId] = []
        while claimed := await shared.claim(limit=5):
            ran += [task.id for task in claimed]
            for task in claimed:
                await shared.settle(task, DONE)
        assert ran == [task.id for task in chain]

    async def test_a_task_may_wait_for_tasks_of_another_queue(self, shared: Bench) -> None:
        first = await shared.submit()
        last = await shared.submit(after=(first.id,), queue="other")
        (claimed,) = await shared.claim()
        await shared.settle(claimed, DONE)
        assert await state_of(shared, last) is State.QUEUED

    async def test_after_a_failure_it_is_cancelled_and_says_why_and_so_are_those_behind_it(self, shared: Bench) -> None:
        first, second, third = await submit_all(shared, a_wish(), a_wish(after=(0,)), a_wish(after=(1,)))
        (claimed,) = await shared.claim()
        await shared.settle(claimed, REJECTED)
        stands = await shared.engine.get(second.id)
        assert (stands.state, stands.status.reason) == (State.CANCELLED, Reason.DEPENDENCY_FAILED)
        assert stands.status.failure is not None
        assert stands.status.failure.message == f"task {first.id}, which this one waited for, did not complete"
        assert await state_of(shared, third) is State.CANCELLED

    async def test_it_runs_anyway_if_that_was_asked_for(self, shared: Bench) -> None:
        _, last = await submit_all(shared, a_wish(), a_wish(after=(0,), on_failure=OnFailure.RUN_ANYWAY))
        (claimed,) = await shared.claim()
        await shared.settle(claimed, REJECTED)
        (released,) = await shared.claim()
        assert (released.id, released.status.unmet) == (last.id, 1)

    async def test_a_task_is_not_due_before_its_moment(self, shared: Bench) -> None:
        _, last = await submit_all(shared, a_wish(), a_wish(after=(0,), delay=HOUR))
        (claimed,) = await shared.claim()
        await shared.settle(claimed, DONE)
        stands = await shared.engine.get(last.id)
        assert (stands.state, stands.status.alarm) == (State.SCHEDULED, last.status.ready_at)
        shared.clock.advance(HOUR)
        await shared.engine.sweep()
        assert await state_of(shared, last) is State.QUEUED

    async def test_what_ended_before_need_not_be_waited_for(self, shared: Bench) -> None:
        await shared.settle(completed := await shared.executing(), DONE)
        await shared.settle(failed := await shared.executing(), REJECTED)
        ready, cancelled = await submit_all(shared, a_wish(after=(completed.id,)), a_wish(after=(failed.id,)))
        assert ready.state is State.QUEUED
        assert cancelled.state is State.CANCELLED

    async def test_a_cancelled_parent_counts_as_failed(self, shared: Bench) -> None:
        first, last = await submit_all(shared, a_wish(), a_wish(after=(0,)))
        await shared.engine.cancel(first.id)
        assert await state_of(shared, last) is State.CANCELLED

    async def test_a_purged_parent_counts_as_failed(self, shared: Bench) -> None:
        _, last = await submit_all(shared, a_wish(queue="purged"), a_wish(after=(0,)))
        await shared.engine.queues.purge("purged")
        assert await state_of(shared, last) is State.CANCELLED

    async def test_a_waiting_task_can_be_cancelled_and_replayed(self, shared: Bench) -> None:
        first, last = await submit_all(shared, a_wish(), a_wish(after=(0,)))
        await shared.engine.cancel(last.id)
        assert (await shared.engine.replay(last.id)).status.pending == 0
        assert {task.id for task in await shared.claim(limit=5)} == {first.id, last.id}

    async def test_those_it_waits_for_can_be_named_while_they_have_not_ended(self, shared: Bench) -> None:
        first, second = await shared.submit(), await shared.submit()
        last = await shared.submit(after=(first.id, second.id))
        claimed = await shared.claim()
        assert [task.id for task in await shared.engine.unended(last)] == [first.id, second.id]
        await shared.settle(claimed[0], DONE)
        waiting = await shared.engine.get(last.id)
        assert [task.id for task in await shared.engine.unended(waiting)] == [second.id]
        told = (await shared.engine.explain(last.id)).causes[0]
        assert told.text == f"it waits for 1 other task to end, such as {second.id} (queued)"

    async def test_the_removal_of_an_ended_parent_changes_nothing(self, shared: Bench) -> None:
        first, second = await shared.submit(), await shared.submit()
        last = await shared.submit(after=(first.id, second.id))
        claimed = await shared.claim(limit=2)
        await shared.settle(claimed[0], DONE)
        await shared.engine.discard(claimed[0].id)
        assert (await shared.engine.get(last.id)).status.pending == 1
        await shared.settle(claimed[1], DONE)
        assert await state_of(shared, last) is State.QUEUED


class TestCrash:
    async def test_who_dies_between_the_end_and_the_release_leaves_it_to_the_sweep(self, shared: Bench) -> None:
        """The store has let the alarm ring in the step that ended the parent."""
        _, last = await submit_all(shared, a_wish(), a_wish(after=(0,)))
        (claimed,) = await shared.claim()
        dead = Bench(store=Deaf(shared.store), clock=shared.clock)
        await dead.settle(claimed, DONE)
        assert await state_of(shared, last) is State.SCHEDULED
        await shared.engine.sweep()
        assert await state_of(shared, last) is State.QUEUED


class Deaf:
    """A store as one sees it who dies before answering the alarm of a released task."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def due(self, now: Instant | None, limit: int, after: tuple[Instant, TaskId] | None = None) -> list[Task]:
        return []


class TestRefusals:
    async def test_an_unknown_task_is_named(self, shared: Bench) -> None:
        gone = await shared.executing()
        await shared.settle(gone, DONE)
        await shared.engine.discard(gone.id)
        with pytest.raises(InvalidTask, match=f"after names task {gone.id}, which is not stored") as caught:
            await shared.submit(after=(gone.id,))
        assert caught.value.field == "after"

    async def test_a_refused_task_of_the_batch_is_named_by_its_position(self, bench: Bench) -> None:
        answers = await bench.engine.submit_many([a_wish(), a_wish(type="!"), a_wish(after=(0, 1)), a_wish(after=(2,))])
        assert [isinstance(answer, FairleadError) for answer in answers] == [False, True, True, True]
        assert str(answers[2]) == "after names task 1 of the same batch, which was not stored"
        assert str(answers[3]) == "after names task 2 of the same batch, which was not stored"

    @pytest.mark.parametrize("position", [0, 1, -1])
    async def test_only_earlier_positions_can_be_named(self, bench: Bench, position: int) -> None:
        (answer, *_) = await bench.engine.submit_many([a_wish(after=(position,)), a_wish()])
        assert str(answer) == f"after names position {position}, which is not of an earlier task in this batch"

    async def test_what_is_no_id_is_named(self, bench: Bench) -> None:
        with pytest.raises(InvalidTask, match="after: 'nonsense' is not a task id"):
            await bench.submit(after=("nonsense",))

    async def test_there_is_a_most(self, bench: Bench) -> None:
        task = await bench.submit()
        with pytest.raises(InvalidTask, match="after names 10,001 tasks; 10,000 is the most"):
            await bench.submit(after=(task.id,) * (AFTER_LIMIT + 1))

    async def test_there_is_a_most_for_all_tasks_of_a_batch(self, bench: Bench) -> None:
        """Whatever comes behind it that waits for nothing is stored."""
        task = await bench.submit()
        wishes = [a_wish(after=(task.id,) * 9_999), a_wish(after=(task.id,) * 9_999), a_wish(after=(task.id,) * 3)]
        answers = await bench.engine.submit_many([*wishes, a_wish()])
        assert [isinstance(answer, InvalidTask) for answer in answers] == [False, False, True, False]
        assert "name 20,001 tasks to wait for; 20,000 is the most" in str(answers[2])

    async def test_a_task_named_twice_is_waited_for_once(self, bench: Bench) -> None:
        task = await bench.submit()
        assert (await bench.submit(after=(task.id, task.id))).status.pending == 1


class TestKeys:
    async def test_a_chain_goes_on_from_the_task_that_holds_the_key_of_one_in_it(self, shared: Bench) -> None:
        held = await shared.submit(idempotency_key="one")
        wishes = [a_wish(idempotency_key="one"), a_wish(after=(0,)), a_wish(after=(1, 0)), a_wish()]
        first, second, third, _ = await submit_all(shared, *wishes)
        assert first.id == held.id
        assert second.spec.after is not None
        assert second.spec.after.tasks == (held.id,)
        assert third.spec.after is not None
        assert third.spec.after.tasks == (second.id, held.id)


async def test_a_long_chain_is_cancelled_to_its_end_by_the_sweep(bench: Bench) -> None:
    chain = await submit_all(bench, a_wish(), *(a_wish(after=(at,)) for at in range(250)))
    (claimed,) = await bench.claim()
    await bench.settle(claimed, REJECTED)
    for _ in range(3):
        await bench.engine.sweep()
    assert await state_of(bench, chain[-1]) is State.CANCELLED


async def test_those_who_listen_hear_of_the_release(bench: Bench) -> None:
    _, last = await submit_all(bench, a_wish(), a_wish(after=(0,)))
    (claimed,) = await bench.claim()
    await bench.settle(claimed, DONE)
    assert [said.happening for said in bench.occurrences if said.task.id == last.id] == [
        Happening.SUBMITTED,
        Happening.READY,
    ]


async def test_who_ended_is_forgotten_when_its_time_comes_and_nothing_is_left_of_its_dependents(bench: Bench) -> None:
    await submit_all(bench, a_wish(), a_wish(after=(0,)))
    while claimed := await bench.claim():
        await bench.settle(claimed[0], DONE)
    bench.clock.advance(DAY)
    await bench.engine.sweep()
    assert isinstance(bench.store, MemoryStore)
    assert bench.store._dependents == {}
    assert await bench.engine.find() == []
