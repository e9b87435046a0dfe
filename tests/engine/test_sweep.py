"""The sweep: alarms are answered, by any number of sweepers, and never by a clock that has just jumped."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence

import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.admin.sweeper import Sweeper
from fairlead.core.errors import StoreUnavailable, TaskNotFound
from fairlead.core.events import Completed, Failed
from fairlead.core.identity import TaskId
from fairlead.core.instant import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Instant
from fairlead.core.settings import Settings
from fairlead.core.task import Reason, State, Task
from fairlead.storage.memory import MemoryStore
from fairlead.storage.values import Beat, Change, Verdict
from tests.engine.building import BOOM, Bench


class TestOneSweep:
    async def test_a_task_is_ready_when_it_is_due_and_not_before(self, bench: Bench) -> None:
        task = await bench.submit(delay=MINUTE)
        bench.clock.advance(MINUTE - 1)
        assert await bench.engine.sweep() == []
        bench.clock.advance(1)

        assert [looked_at.id for looked_at in await bench.engine.sweep()] == [task.id]
        assert [claimed.id for claimed in await bench.claim()] == [task.id]

    async def test_a_retry_comes_back_when_its_backoff_has_passed(self, bench: Bench) -> None:
        task = await bench.executing()
        await bench.settle(task, Failed(failure=BOOM, after=MINUTE))
        bench.clock.advance(MINUTE)
        await bench.engine.sweep()

        assert (await bench.engine.get(task.id)).state is State.QUEUED

    async def test_a_lease_that_was_not_renewed_is_lost(self, bench: Bench) -> None:
        task = await bench.executing()
        bench.clock.advance(30 * SECOND)
        await bench.engine.sweep()
        stands = await bench.engine.get(task.id)

        assert stands.state is State.SCHEDULED
        assert stands.status.reason is Reason.WORKER_LOST
        assert stands.status.crashes == 1

    async def test_an_ended_task_is_removed_when_its_retention_ends(self, bench: Bench) -> None:
        task = await bench.executing()
        await bench.settle(task, Completed())
        bench.clock.advance(DAY - 1)
        await bench.engine.sweep()
        assert (await bench.engine.get(task.id)).state is State.COMPLETED
        bench.clock.advance(1)
        await bench.engine.sweep()

        with pytest.raises(TaskNotFound):
            await bench.engine.get(task.id)

    async def test_it_looks_at_no_more_than_the_limit_earliest_first(self, bench: Bench) -> None:
        tasks = [await bench.submit(delay=delay * SECOND) for delay in (3, 1, 2)]
        bench.clock.advance(MINUTE)
        looked_at = await bench.engine.sweep(limit=2)

        assert [task.id for task in looked_at] == [tasks[1].id, tasks[2].id]

    async def test_a_heartbeat_between_its_look_and_its_act_wins(self) -> None:
        store = BeatsFirst()
        bench = Bench(store=store)
        task = await bench.executing()
        bench.clock.advance(30 * SECOND)
        assert task.status.lease is not None
        store.beat = Beat(task.id, task.status.lease.token), bench.clock.now()

        await bench.engine.sweep()

        assert (await bench.engine.get(task.id)).state is State.EXECUTING

    async def test_of_two_engines_that_sweep_at_once_each_alarm_is_answered_by_one(self, bench: Bench) -> None:
        other = AdminEngine(
            bench.store, clock=bench.clock, chance=random.Random(1), observers=[bench.occurrences.append]
        )
        for _ in range(50):
            await bench.submit(delay=SECOND)
        bench.occurrences.clear()
        bench.clock.advance(SECOND)

        await asyncio.gather(bench.engine.sweep(), other.sweep(), bench.engine.sweep(), other.sweep())

        assert len(bench.occurrences) == 50
        assert len({occurrence.task.id for occurrence in bench.occurrences}) == 50


class TestTheSweeper:
    async def test_once_answers_every_alarm_however_many(self, bench: Bench) -> None:
        for _ in range(2_500):
            await bench.submit(delay=SECOND)
        bench.clock.advance(SECOND)

        assert await Sweeper(bench.engine).once() == 2_500
        assert (await bench.engine.stats()).states[State.QUEUED] == 2_500

    async def test_once_ends_though_every_change_is_refused(self) -> None:
        bench = Bench(store=RefusesAll())
        for _ in range(1_500):
            await bench.submit(delay=SECOND)
        bench.clock.advance(SECOND)

        assert await Sweeper(bench.engine).once() == 1_500

    async def test_after_a_jump_it_waits_one_lease_for_live_workers_to_be_heard(self, bench: Bench) -> None:
        sweeper = Sweeper(bench.engine)
        await sweeper.once()
        task = await bench.executing()
        bench.clock.jump(HOUR)

        assert await sweeper.once() == 0
        bench.clock.advance(30 * SECOND - 1)
        assert await sweeper.once() == 0
        assert (await bench.engine.get(task.id)).state is State.EXECUTING
        bench.clock.advance(1)
        assert await sweeper.once() == 1

    async def test_a_jump_back_is_a_jump_too(self, bench: Bench) -> None:
        sweeper = Sweeper(bench.engine)
        await bench.submit(delay=SECOND)
        await sweeper.once()
        bench.clock.jump(-HOUR)
        assert await sweeper.once() == 0
        bench.clock.advance(HOUR + SECOND)

        assert await sweeper.once() == 1

    async def test_a_second_jump_starts_the_wait_again(self, bench: Bench) -> None:
        sweeper = Sweeper(bench.engine)
        await sweeper.once()
        await bench.executing()
        bench.clock.jump(HOUR)
        await sweeper.once()
        bench.clock.advance(29 * SECOND)
        bench.clock.jump(HOUR)
        await sweeper.once()
        bench.clock.advance(29 * SECOND)

        assert await sweeper.once() == 0

    async def test_time_that_passes_is_no_jump_however_long_the_pause(self, bench: Bench) -> None:
        sweeper = Sweeper(bench.engine)
        await bench.submit(delay=HOUR)
        await sweeper.once()
        bench.clock.advance(HOUR)

        assert await sweeper.once() == 1

    async def test_a_small_correction_of_the_clock_is_no_jump(self, bench: Bench) -> None:
        sweeper = Sweeper(bench.engine)
        await bench.submit(delay=SECOND)
        await sweeper.once()
        bench.clock.jump(2 * SECOND)

        assert await sweeper.once() == 1

    async def test_it_goes_on_when_the_store_fails(self) -> None:
        store = AwayOnDue()
        bench = Bench(Settings(sweep_interval=MILLISECOND), store=store)
        sweeping = asyncio.create_task(Sweeper(bench.engine).run())
        async with asyncio.timeout(30):
            await store.asked_thrice.wait()
        sweeping.cancel()

        with contextlib.suppress(asyncio.CancelledError):
            await sweeping
        assert sweeping.cancelled()


class BeatsFirst(MemoryStore):
    """Lets a heartbeat in just before the next change."""

    beat: tuple[Beat, Instant] | None = None

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        if self.beat is not None:
            beat, now = self.beat
            self.beat = None
            await self.extend([beat], lease=30 * SECOND, grace=HOUR, now=now)
        return await super().apply(changes)


class RefusesAll(MemoryStore):
    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        return [Verdict.STALE for _ in changes]


class AwayOnDue(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.asked_thrice = asyncio.Event()

    async def due(self, now: Instant | None, limit: int, after: tuple[Instant, TaskId] | None = None) -> list[Task]:
        self.asked += 1
        if self.asked == 3:
            self.asked_thrice.set()
        raise StoreUnavailable("the store is away; try again")
