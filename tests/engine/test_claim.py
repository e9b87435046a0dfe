"""Claiming tasks and keeping them by heartbeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fairlead.core.events import CancelAsked
from fairlead.core.identity import LeaseToken, TaskId, WorkerId
from fairlead.core.instant import HOUR, MINUTE, SECOND
from fairlead.core.lifecycle import decide
from fairlead.core.queues.order import HeadStart, Strict, Weighted
from fairlead.core.settings import Rules, Settings
from fairlead.core.task import OnFailure, Priority, Progress, State, Task
from fairlead.engine.changes import seen
from fairlead.engine.events.types import Happening
from fairlead.storage.memory import MemoryStore
from fairlead.storage.values import Beat, Change, Pulse, Verdict
from tests.engine.building import Bench, a_wish


def beat(task: Task, progress: Progress | None = None) -> Beat:
    assert task.status.lease is not None
    return Beat(task.id, task.status.lease.token, progress)


def held(task: Task) -> LeaseToken:
    assert task.status.lease is not None
    return task.status.lease.token


async def test_a_claimed_task_executes_under_a_lease_of_its_worker(bench: Bench) -> None:
    submitted = await bench.submit()
    (task,) = await bench.claim(worker="worker-7")

    assert task.id == submitted.id
    assert task.state is State.EXECUTING
    assert task.status.attempts == 1
    assert task.status.lease is not None
    assert task.status.lease.worker == "worker-7"
    assert task.status.lease.until == task.status.alarm == bench.clock.now() + 30 * SECOND


async def test_the_best_come_first_and_no_more_than_asked_for(bench: Bench) -> None:
    for priority in (Priority.LOW, Priority.CRITICAL, Priority.MEDIUM, Priority.HIGH):
        await bench.submit(priority=priority)

    claimed = await bench.claim(limit=3)

    assert [task.status.priority for task in claimed] == [Priority.CRITICAL, Priority.HIGH, Priority.MEDIUM]


async def test_no_task_is_claimed_twice(bench: Bench) -> None:
    for _ in range(5):
        await bench.submit()
    claimed = [task.id for _ in range(4) for task in await bench.claim(limit=2)]

    assert len(claimed) == len(set(claimed)) == 5


async def test_a_task_from_the_future_is_not_ready(bench: Bench) -> None:
    await bench.submit(delay=MINUTE)

    assert await bench.claim() == []


@pytest.mark.parametrize(
    "how",
    [{"capabilities": {"eu"}}, {"types": {"other"}}, {"types": set()}, {"limit": 0}],
    ids=["lacks a capability", "other types", "no types", "none asked for"],
)
async def test_a_worker_that_may_not_take_a_task_does_not(bench: Bench, how: dict[str, Any]) -> None:
    await bench.submit(requires=frozenset({"gpu", "eu"}))

    assert await bench.claim(**how) == []


async def test_a_task_one_may_not_take_does_not_block_those_behind_it(bench: Bench) -> None:
    await bench.submit(requires=frozenset({"gpu"}), priority=Priority.CRITICAL)
    behind = await bench.submit(priority=Priority.LOW)

    assert [task.id for task in await bench.claim()] == [behind.id]


async def test_queues_are_served_together_in_one_order(bench: Bench) -> None:
    low = await bench.submit(queue="a", priority=Priority.LOW)
    high = await bench.submit(queue="b", priority=Priority.HIGH)
    await bench.submit(queue="c", priority=Priority.CRITICAL)

    claimed = await bench.engine.claim(WorkerId("w"), ["a", "b"], limit=5)

    assert [task.id for task in claimed] == [high.id, low.id]


async def test_a_queue_named_twice_is_served_once(bench: Bench) -> None:
    submitted = [await bench.submit() for _ in range(2)]

    claimed = await bench.engine.claim(WorkerId("w"), ["default", "default"], limit=5)

    assert [task.id for task in claimed] == [task.id for task in submitted]


async def test_the_order_is_that_of_the_settings() -> None:
    bench = Bench(Settings(order=Strict()))
    await bench.submit(priority=Priority.LOW)
    bench.clock.advance(10 * HOUR)
    fresh = await bench.submit(priority=Priority.CRITICAL)

    assert [task.id for task in await bench.claim()] == [fresh.id]


class TestPromotion:
    async def test_a_task_claimed_for_its_age_is_told_as_promoted(self, bench: Bench) -> None:
        await bench.submit(priority=Priority.LOW)
        bench.clock.advance(10 * MINUTE)
        await bench.claim()

        assert bench.told() == [Happening.SUBMITTED, Happening.STARTED, Happening.PROMOTED]

    async def test_a_fresh_one_is_not(self, bench: Bench) -> None:
        await bench.submit(priority=Priority.LOW)
        await bench.claim()

        assert bench.told() == [Happening.SUBMITTED, Happening.STARTED]

    @pytest.mark.parametrize("order", [HeadStart(), Weighted(low=1_000_000)], ids=["head_start", "weighted"])
    async def test_nor_is_any_task_under_an_order_that_does_not_promote(self, order: HeadStart | Weighted) -> None:
        bench = Bench(Settings(order=order))
        await bench.submit(priority=Priority.LOW)
        await bench.claim()

        assert Happening.PROMOTED not in bench.told()


class TestHeartbeats:
    async def test_a_heartbeat_renews_the_lease(self, bench: Bench) -> None:
        task = await bench.executing()
        bench.clock.advance(10 * SECOND)

        assert await bench.engine.heartbeat([beat(task)]) == [Pulse.HELD]
        lease = (await bench.engine.get(task.id)).status.lease
        assert lease is not None
        assert lease.until == bench.clock.now() + 30 * SECOND

    async def test_it_does_not_reach_past_the_timeout_and_its_grace(self, bench: Bench) -> None:
        task = await bench.executing(timeout=15 * SECOND)
        end = bench.clock.now() + 15 * SECOND + bench.engine.settings.grace
        bench.clock.advance(10 * SECOND)
        await bench.engine.heartbeat([beat(task)])

        assert (await bench.engine.get(task.id)).status.alarm == end

    async def test_it_carries_progress_dated_by_the_engine(self, bench: Bench) -> None:
        task = await bench.executing()
        told = bench.clock.now()
        await bench.engine.heartbeat([beat(task, Progress(percent=40.0, message="half way"))])
        bench.clock.advance(SECOND)
        await bench.engine.heartbeat([beat(task)])

        progress = (await bench.engine.get(task.id)).status.progress
        assert progress == Progress(percent=40.0, message="half way", at=told)

    async def test_it_learns_of_a_cancel_and_of_a_lost_lease(self, bench: Bench) -> None:
        task = await bench.executing()
        await bench.engine.cancel(task.id)
        stranger = Beat(task.id, LeaseToken("another"))

        assert await bench.engine.heartbeat([beat(task), stranger]) == [Pulse.CANCEL, Pulse.LOST]

    async def test_what_is_allowed_to_one_lasts_longer_and_concerns_no_other_of_its_claim(self, bench: Bench) -> None:
        for _ in range(2):
            await bench.submit(timeout=10 * SECOND)
        one, other = await bench.claim(limit=2)
        allowed = Beat(one.id, held(one), None, 5 * SECOND)
        stranger = Beat(TaskId("0" * 32), held(one), None, SECOND)
        begun = bench.clock.now()
        bench.clock.advance(5 * SECOND)

        pulses = await bench.engine.heartbeat([allowed, stranger, beat(other)])

        assert pulses == [Pulse.HELD, Pulse.LOST, Pulse.HELD]
        ends = [(await bench.engine.get(task.id)).status.lease for task in (one, other)]
        assert [lease.until - begun for lease in ends if lease is not None] == [25 * SECOND, 20 * SECOND]

    async def test_a_task_kept_by_heartbeats_is_never_swept(self, bench: Bench) -> None:
        task = await bench.executing()
        for _ in range(20):
            bench.clock.advance(10 * SECOND)
            await bench.engine.heartbeat([beat(task)])
            assert await bench.engine.sweep() == []

        assert (await bench.engine.get(task.id)).state is State.EXECUTING


class TestLateTasks:
    async def test_a_late_task_is_not_given_to_a_worker_and_the_next_one_is(self, bench: Bench) -> None:
        late = [await bench.submit(expires=MINUTE) for _ in range(3)]
        bench.clock.advance(MINUTE + 1)
        good = await bench.submit(expires=MINUTE)

        assert [task.id for task in await bench.claim()] == [good.id]
        for task in late:
            ended = await bench.engine.get(task.id)
            assert (ended.state, ended.status.attempts) == (State.CANCELLED, 0)
            assert ended.status.failure is not None
            assert ended.status.failure.type == "Expired"
        assert [occurrence.happening for occurrence in bench.occurrences][-4:] == [
            *[Happening.CANCELLED] * 3, Happening.STARTED,
        ]  # fmt: skip

    async def test_one_that_is_in_time_by_a_hair_runs(self, bench: Bench) -> None:
        await bench.submit(expires=MINUTE)
        bench.clock.advance(MINUTE)
        assert len(await bench.claim()) == 1

    async def test_a_flood_of_late_tasks_is_gone_through_in_one_claim(self, bench: Bench) -> None:
        await bench.engine.submit_many([a_wish(expires=SECOND) for _ in range(250)])
        bench.clock.advance(MINUTE)
        good = await bench.submit()
        assert [task.id for task in await bench.claim(limit=10)] == [good.id]
        assert (await bench.engine.store.tally()).next_alarm is not None

    async def test_a_late_task_lets_those_go_that_wait_for_it(self, bench: Bench) -> None:
        parent = await bench.submit(expires=SECOND)
        child = await bench.submit(after=(parent.id,), on_failure=OnFailure.RUN_ONLY_THEN)
        bench.clock.advance(MINUTE)
        assert [task.id for task in await bench.claim(limit=5)] == []
        assert [task.id for task in await bench.claim(limit=5)] == [child.id]

    async def test_cancel_of_a_late_task_between_claim_and_end_is_a_cancel(self) -> None:
        """The store of another process is quicker: the task still ends, once."""

        class Quicker(MemoryStore):
            quick = True

            async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
                if self.quick:
                    self.quick = False
                    for change in changes:
                        (task,) = await self.get([change.id])
                        assert task is not None
                        asked = decide(task, CancelAsked(), bench.clock.now(), rules=Rules())
                        await super().apply([Change(task.id, seen(task), asked)])
                return await super().apply(changes)

        bench = Bench(store=Quicker())
        task = await bench.submit(expires=SECOND)
        bench.clock.advance(MINUTE)
        assert await bench.claim() == []
        assert (await bench.engine.get(task.id)).state is State.CANCELLED
