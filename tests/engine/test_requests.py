"""What operators ask for: cancel, replay, discard, and looking at tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.core.errors import StoreUnavailable, TaskNotFound, WrongState
from fairlead.core.events import Completed, Failed
from fairlead.core.instant import MINUTE, SECOND
from fairlead.core.task import Priority, State
from fairlead.engine.stats import LineStats
from fairlead.storage.memory import MemoryStore
from fairlead.storage.values import Change, Filter, Verdict
from tests.engine.building import BOOM, Bench
from tests.unit.building import an_id


class TestCancel:
    @pytest.mark.parametrize("delay", [0, MINUTE], ids=["queued", "scheduled"])
    async def test_a_waiting_task_is_cancelled_and_not_claimed(self, bench: Bench, delay: int) -> None:
        task = await bench.submit(delay=delay)
        cancelled = await bench.engine.cancel(task.id)
        bench.clock.advance(2 * MINUTE)

        assert cancelled.state is State.CANCELLED
        assert await bench.engine.get(task.id) == cancelled
        await bench.engine.sweep()
        assert await bench.claim() == []

    async def test_an_executing_task_is_asked_to_stop(self, bench: Bench) -> None:
        task = await bench.executing()
        asked = await bench.engine.cancel(task.id)

        assert asked.state is State.EXECUTING
        assert asked.status.cancel_asked

    async def test_an_ended_task_cannot_be_cancelled(self, bench: Bench) -> None:
        task = await bench.executing()
        await bench.settle(task, Completed())

        with pytest.raises(
            WrongState, match="is completed: cancel is possible only if it is scheduled or queued or executing"
        ):
            await bench.engine.cancel(task.id)


class TestReplay:
    async def test_a_dead_letter_runs_again(self, bench: Bench) -> None:
        dead = await bench.settle(await bench.executing(max_retries=0), Failed(failure=BOOM))
        assert dead.state is State.DEAD_LETTER
        bench.clock.advance(MINUTE)

        replayed = await bench.engine.replay(dead.id, priority=Priority.CRITICAL)

        assert replayed.state is State.QUEUED
        assert replayed.status.ready_at == bench.clock.now()
        assert replayed.status.priority is Priority.CRITICAL
        (again,) = await bench.claim()
        assert (again.id, again.status.attempts) == (dead.id, 2)

    async def test_retries_may_be_kept(self, bench: Bench) -> None:
        task = await bench.executing(max_retries=1)
        await bench.settle(task, Failed(failure=BOOM, after=0))
        (task,) = await bench.claim()
        await bench.settle(task, Failed(failure=BOOM))
        await bench.engine.replay(task.id, reset_retries=False)
        (task,) = await bench.claim()

        assert (await bench.settle(task, Failed(failure=BOOM))).state is State.DEAD_LETTER

    async def test_a_completed_task_is_not_run_again(self, bench: Bench) -> None:
        task = await bench.executing()
        await bench.settle(task, Completed())

        with pytest.raises(WrongState):
            await bench.engine.replay(task.id)


class TestDiscard:
    async def test_an_ended_task_is_removed_and_shown_as_it_stood(self, bench: Bench) -> None:
        settled = await bench.settle(await bench.executing(), Completed(b"1"))

        assert await bench.engine.discard(settled.id) == settled
        with pytest.raises(TaskNotFound):
            await bench.engine.get(settled.id)

    async def test_a_task_that_has_not_ended_is_kept(self, bench: Bench) -> None:
        task = await bench.submit()

        with pytest.raises(WrongState):
            await bench.engine.discard(task.id)
        assert await bench.engine.get(task.id) == task


@pytest.mark.parametrize(
    "ask", [AdminEngine.cancel, AdminEngine.replay, AdminEngine.discard, AdminEngine.get], ids=lambda ask: ask.__name__
)
async def test_what_is_not_there_is_not_found(bench: Bench, ask: Callable[..., Awaitable[object]]) -> None:
    with pytest.raises(TaskNotFound, match=an_id()):
        await ask(bench.engine, an_id())


async def test_a_request_that_meets_another_change_is_judged_anew() -> None:
    store = StaleAtFirst(3)
    bench = Bench(store=store)
    task = await bench.submit()

    assert (await bench.engine.cancel(task.id)).state is State.CANCELLED
    assert store.stale == 0


async def test_a_request_gives_up_when_the_task_never_holds_still() -> None:
    bench = Bench(store=StaleAtFirst(1_000_000))
    task = await bench.submit()

    with pytest.raises(StoreUnavailable, match="try again later"):
        await bench.engine.cancel(task.id)


class TestFinding:
    async def test_a_listing_goes_by_age_and_in_pages(self, bench: Bench) -> None:
        ids = [(await bench.submit()).id for _ in range(5)]
        first = await bench.engine.find(limit=2)
        rest = await bench.engine.find(limit=10, after=first[-1].id)
        oldest = await bench.engine.find(limit=2, newest_first=False)

        assert [task.id for task in first + rest] == ids[::-1]
        assert [task.id for task in oldest] == ids[:2]

    async def test_a_filter_narrows_it(self, bench: Bench) -> None:
        wanted = await bench.submit(queue="mail", tags=("eu",), priority=Priority.HIGH)
        await bench.submit(queue="mail")
        await bench.submit(tags=("eu",))

        found = await bench.engine.find(Filter(queue="mail", tag="eu", priority=Priority.HIGH))

        assert found == [wanted]

    async def test_a_page_of_nothing_is_empty(self, bench: Bench) -> None:
        await bench.submit()

        assert await bench.engine.find(limit=0) == []


class TestStats:
    async def test_an_empty_store_has_no_queues_and_nothing_in_any_state(self, bench: Bench) -> None:
        stats = await bench.engine.stats()

        assert stats.queues == {}
        assert stats.states == dict.fromkeys(State, 0)
        assert stats.next_alarm is None

    async def test_they_count_by_queue_state_and_priority(self, bench: Bench) -> None:
        await bench.submit(queue="mail", type="send", priority=Priority.HIGH)
        bench.clock.advance(MINUTE)
        await bench.submit(queue="mail", type="read", priority=Priority.HIGH)
        await bench.submit(queue="mail", delay=MINUTE)
        await bench.executing()
        bench.clock.advance(SECOND)

        stats = await bench.engine.stats()

        assert set(stats.queues) == {"mail", "default"}
        mail = stats.queues["mail"]
        assert mail.lines[Priority.HIGH] == LineStats(depth=2, oldest_age=MINUTE + SECOND)
        assert mail.lines[Priority.MEDIUM] == LineStats()
        assert (mail.states[State.QUEUED], mail.states[State.SCHEDULED]) == (2, 1)
        assert mail.types == {"send": 1, "read": 1}
        assert stats.states[State.EXECUTING] == 1
        assert stats.next_alarm == bench.clock.now() + 29 * SECOND

    async def test_an_age_is_never_negative_when_the_clock_is_set_back(self, bench: Bench) -> None:
        await bench.submit()
        bench.clock.jump(-MINUTE)

        assert (await bench.engine.stats()).queues["default"].lines[Priority.MEDIUM].oldest_age == 0


class StaleAtFirst(MemoryStore):
    """Says of the first few changes that someone else was faster."""

    def __init__(self, stale: int) -> None:
        super().__init__()
        self.stale = stale

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        if self.stale:
            self.stale -= 1
            return [Verdict.STALE for _ in changes]
        return await super().apply(changes)
