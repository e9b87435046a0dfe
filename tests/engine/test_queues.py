"""What is said of a queue while everything runs counts everywhere within a second."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from fairlead.core.errors import FairleadError, InvalidSettings, InvalidTask, QueueFull, StoreUnavailable
from fairlead.core.events import Completed
from fairlead.core.identity import WorkerId
from fairlead.core.instant import MINUTE, SECOND, Instant
from fairlead.core.queues.order import Promote, Strict, Weighted
from fairlead.core.queues.queue import QueueSettings
from fairlead.core.settings import Settings
from fairlead.core.task import Priority, State, Task
from fairlead.engine import queue_cache
from fairlead.engine.engine import Submitted
from fairlead.engine.events.types import EventType, QueueEvent
from fairlead.engine.runtime.clock import ManualClock
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.memory import MemoryStore
from fairlead.storage.protocol import Store
from fairlead.storage.values import Claim, Receipt, Record
from tests.engine.building import Bench, a_wish


@pytest.fixture
def bench(any_store: Store) -> Bench:
    # Without batching, an operation has told what it has to tell when it returns.
    return Bench(store=any_store, batching=False)


@pytest.fixture
def other(bench: Bench) -> Bench:
    """Another process on the same store."""
    return Bench(store=bench.store, batching=False, clock=bench.clock, seed=7)


def names(tasks: list[Task]) -> list[str]:
    return [task.spec.type for task in tasks]


async def claim(bench: Bench, *queues: str, limit: int = 10) -> list[Task]:
    return await bench.engine.claim(WorkerId("w"), queues, limit=limit)


class TestPausing:
    async def test_a_paused_queue_still_takes_tasks_but_gives_none(self, bench: Bench) -> None:
        await bench.submit()
        await bench.engine.queues.pause("default")
        await bench.submit()
        assert await bench.claim(10) == []
        await bench.engine.queues.resume("default")
        assert len(await bench.claim(10)) == 2

    async def test_what_runs_goes_on(self, bench: Bench) -> None:
        task = await bench.executing()
        await bench.engine.queues.pause("default")
        assert (await bench.settle(task, Completed())).state is State.COMPLETED

    async def test_other_queues_are_served(self, bench: Bench) -> None:
        await bench.submit(queue="a", type="of_a")
        await bench.submit(queue="b", type="of_b")
        await bench.engine.queues.pause("a")
        assert names(await claim(bench, "a", "b")) == ["of_b"]
        assert await claim(bench, "a") == []

    async def test_a_paused_type_waits_in_every_queue_whoever_asks(self, bench: Bench) -> None:
        for queue in ("a", "b"):
            for task_type in ("slow", "quick"):
                await bench.submit(queue=queue, type=task_type)
        await bench.engine.queues.pause_type("slow")
        assert await bench.engine.queues.paused_types() == ["slow"]
        assert await bench.engine.claim(WorkerId("w"), ["a"], limit=5, types={"slow"}) == []
        assert names(await claim(bench, "a", "b")) == ["quick", "quick"]
        await bench.engine.queues.resume_type("slow")
        assert names(await claim(bench, "a", "b")) == ["slow", "slow"]
        assert await bench.engine.queues.paused_types() == []

    async def test_pausing_twice_is_pausing_once(self, bench: Bench) -> None:
        for _ in range(2):
            assert (await bench.engine.queues.pause("default")).paused
            await bench.engine.queues.pause_type("slow")
        for _ in range(2):
            assert not (await bench.engine.queues.resume("default")).paused
            await bench.engine.queues.resume_type("slow")
        assert await bench.engine.queues.all() == {}
        assert await bench.store.scan(queue_cache.KIND) == await bench.store.scan(queue_cache.TYPE_KIND) == []

    async def test_stats_say_what_is_paused(self, bench: Bench) -> None:
        await bench.submit()
        await bench.engine.queues.pause("default")
        await bench.engine.queues.pause("empty")
        await bench.engine.queues.pause_type("slow")
        stats = await bench.engine.stats()
        assert {name: queue.paused for name, queue in stats.queues.items()} == {"default": True, "empty": True}
        assert stats.queues["default"].states[State.QUEUED] == 1
        assert stats.paused_types == ("slow",)
        await bench.engine.queues.resume("default")
        await bench.engine.queues.resume("empty")
        stats = await bench.engine.stats()
        assert {name: queue.paused for name, queue in stats.queues.items()} == {"default": False}

    async def test_changes_are_told_in_the_feed(self, bench: Bench) -> None:
        await bench.engine.feed.want()
        queues = bench.engine.queues
        await queues.pause("default")
        await queues.pause("default")
        await queues.resume("default")
        await queues.change("default", bound=3)
        await queues.pause_type("slow")
        await queues.resume_type("slow")
        await queues.resume_type("slow")
        told = [one.event for one in await bench.engine.feed.read(None)]
        assert [(one.type, one.data.queue, one.data.task_type) for one in told if isinstance(one, QueueEvent)] == [
            (EventType.QUEUE_PAUSED, "default", None),
            (EventType.QUEUE_RESUMED, "default", None),
            (EventType.QUEUE_CHANGED, "default", None),
            (EventType.TYPE_PAUSED, None, "slow"),
            (EventType.TYPE_RESUMED, None, "slow"),
        ]


class TestElsewhere:
    async def test_another_process_heeds_a_pause_within_a_second(self, bench: Bench, other: Bench) -> None:
        await bench.submit()
        assert len(await other.claim()) == 1
        await bench.submit()
        await bench.engine.queues.pause("default")
        bench.clock.advance(queue_cache.FRESH)
        assert await other.claim() == []
        await bench.engine.queues.resume("default")
        bench.clock.advance(queue_cache.FRESH)
        assert len(await other.claim()) == 1

    async def test_another_process_heeds_bounds_defaults_and_orders(self, bench: Bench, other: Bench) -> None:
        await other.submit()
        await bench.engine.queues.change("default", bound=2, priority=Priority.LOW, max_retries=9)
        bench.clock.advance(queue_cache.FRESH)
        task = await other.submit()
        assert (task.status.priority, task.spec.max_retries) == (Priority.LOW, 9)
        with pytest.raises(QueueFull):
            await other.submit()
        await bench.engine.queues.reset("default")
        bench.clock.advance(queue_cache.FRESH)
        assert (await other.submit()).status.priority is Priority.MEDIUM

    async def test_a_change_that_nobody_rang_for_is_seen_in_the_end(self, bench: Bench, other: Bench) -> None:
        await other.submit()
        await bench.engine.queues.pause("default")
        for record in await bench.store.scan(queue_cache.BELL):
            await bench.store.drop(queue_cache.BELL, record.name)
        bench.clock.advance(MINUTE)
        assert await other.claim() == []

    async def test_changes_at_once_do_not_undo_each_other(self, bench: Bench, other: Bench) -> None:
        await asyncio.gather(
            bench.engine.queues.change("default", bound=7),
            other.engine.queues.change("default", max_retries=1),
            bench.engine.queues.pause("default"),
            other.engine.queues.change("default", priority=Priority.HIGH),
        )
        assert await bench.engine.queues.get("default") == QueueSettings(
            paused=True, bound=7, max_retries=1, priority=Priority.HIGH
        )


class TestChanging:
    async def test_a_bound_of_its_own_holds_for_that_queue_only(self, bench: Bench) -> None:
        await bench.engine.queues.change("small", bound=1)
        await bench.submit(queue="small")
        with pytest.raises(QueueFull, match="bound is 1"):
            await bench.submit(queue="small")
        await bench.submit(queue="other")
        await bench.engine.queues.change("small", bound=None)
        await bench.submit(queue="small")

    async def test_a_queue_may_be_without_the_bound_of_all(self, any_store: Store) -> None:
        bench = Bench(Settings(queue_bound=1), store=any_store, batching=False)
        await bench.engine.queues.change("free", bound=0)
        answers: list[Submitted | FairleadError] = await bench.engine.submit_many(
            [a_wish(queue=queue) for queue in ("free", "free", "default", "default")]
        )
        assert [isinstance(answer, QueueFull) for answer in answers] == [False, False, False, True]

    async def test_each_queue_is_served_in_its_own_order(self, bench: Bench) -> None:
        await bench.engine.queues.change("strict", order=Strict())
        await bench.engine.queues.change("eager", order=Promote(low=SECOND, medium=SECOND, high=SECOND))
        for queue in ("strict", "eager"):
            await bench.submit(queue=queue, type="old", priority=Priority.LOW)
        bench.clock.advance(3 * SECOND)
        for queue in ("strict", "eager"):
            await bench.submit(queue=queue, type="new", priority=Priority.CRITICAL)
        assert names(await claim(bench, "strict", limit=1)) == ["new"]
        assert names(await claim(bench, "eager", limit=1)) == ["old"]

    async def test_a_drawn_order_beside_one_that_is_not(self, bench: Bench) -> None:
        await bench.engine.queues.change("drawn", order=Weighted())
        for queue in ("drawn", "default"):
            for priority in Priority:
                await bench.submit(queue=queue, priority=priority)
        assert len(await claim(bench, "drawn", "default")) == 8

    async def test_what_is_not_named_stays(self, bench: Bench) -> None:
        await bench.engine.queues.change("default", bound=7, timeout=1)
        await bench.engine.queues.pause("default")
        changed = await bench.engine.queues.change("default", timeout=None, max_crashes=1)
        assert changed == await bench.engine.queues.get("default") == QueueSettings(paused=True, bound=7, max_crashes=1)
        assert await bench.engine.queues.reset("default") == QueueSettings(paused=True)
        assert await bench.engine.queues.all() == {"default": QueueSettings(paused=True)}

    async def test_what_makes_no_sense_changes_nothing(self, bench: Bench) -> None:
        with pytest.raises(InvalidSettings):
            await bench.engine.queues.change("default", bound=-3)
        with pytest.raises(InvalidTask):
            await bench.engine.queues.pause("not a name")
        with pytest.raises(InvalidTask):
            await bench.engine.queues.pause_type("not a name")
        assert await bench.engine.queues.all() == {}

    async def test_a_prepared_task_has_the_defaults_of_its_queue(self, bench: Bench) -> None:
        await bench.engine.queues.change("default", timeout=7)
        assert (await bench.engine.prepare(a_wish())).spec.timeout == 7 * SECOND


class Unreadable(MemoryStore):
    """A store whose records cannot be read at times."""

    down = False
    scans = 0
    claims = 0

    async def scan(self, kind: str) -> list[Record]:
        self.scans += 1
        if self.down:
            raise StoreUnavailable("the journal is out of reach")
        return await super().scan(kind)

    async def claim(self, claim: Claim) -> list[Task]:
        self.claims += 1
        return await super().claim(claim)


class TestLooking:
    async def test_while_nothing_can_be_read_what_was_last_known_holds(self) -> None:
        store = Unreadable()
        bench = Bench(store=store, batching=False)
        await bench.engine.queues.pause("default")
        await bench.submit()
        store.down = True
        bench.clock.advance(MINUTE)
        assert await bench.claim() == []
        await bench.submit()
        store.down = False
        await bench.engine.queues.resume("default")
        assert len(await bench.claim(5)) == 2

    async def test_who_never_could_read_goes_on_without(self) -> None:
        store = Unreadable()
        store.down = True
        bench = Bench(store=store, batching=False)
        await bench.submit()
        assert len(await bench.claim()) == 1

    async def test_the_store_is_asked_about_once_a_second(self) -> None:
        bench = Bench(batching=False)
        for _ in range(36):
            bench.clock.advance(SECOND // 10)
            await bench.submit()
            await bench.claim()
        assert bench.engine.queue_cache.looks == 4

    async def test_a_look_that_is_due_soon_is_taken_behind_a_submit_so_that_the_next_has_none_in_front(self) -> None:
        calls: list[str] = []

        class Noting(MemoryStore):
            async def scan(self, kind: str) -> list[Record]:
                if kind == queue_cache.BELL:
                    calls.append("look")
                return await super().scan(kind)

            async def add(
                self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
            ) -> list[Receipt]:
                calls.append("add")
                return await super().add(tasks, now=now, bounds=bounds)

        bench = Bench(store=Noting(), batching=False)
        await bench.submit()
        calls.clear()
        bench.clock.advance(queue_cache.FRESH - queue_cache.SOON - 1)
        await bench.submit()
        assert calls == ["add"]
        bench.clock.advance(1)
        await bench.submit()
        assert calls == ["add", "add", "look"]
        bench.clock.advance(queue_cache.FRESH - queue_cache.SOON - 1)
        await bench.submit()
        assert calls == ["add", "add", "look", "add"]

    async def test_most_looks_are_one_small_read(self) -> None:
        store = Unreadable()
        bench = Bench(store=store, batching=False)
        await bench.engine.queue_cache.refresh()
        before = store.scans
        for _ in range(10):
            bench.clock.advance(SECOND)
            await bench.engine.queue_cache.refresh()
        assert store.scans - before == 10

    async def test_who_comes_while_another_looks_does_not_wait(self) -> None:
        class Slow(MemoryStore):
            gate: asyncio.Event | None = None

            async def scan(self, kind: str) -> list[Record]:
                if self.gate is not None:
                    await self.gate.wait()
                return await super().scan(kind)

        store = Slow()
        bench = Bench(store=store)
        await bench.engine.queue_cache.refresh()
        bench.clock.advance(SECOND)
        store.gate = asyncio.Event()
        looking = asyncio.create_task(bench.engine.queue_cache.refresh())
        await asyncio.sleep(0)
        await bench.engine.queue_cache.refresh()
        assert not looking.done()
        store.gate.set()
        await looking
        assert bench.engine.queue_cache.looks == 2

    @pytest.mark.parametrize("overtaken", [False, True])
    async def test_a_change_during_a_look_counts_from_the_next_use_on(self, overtaken: bool) -> None:
        """Though that look has read the settings as they were, whether another look is done before it or not."""

        class Held(MemoryStore):
            read, gate = asyncio.Event(), asyncio.Event()

            async def scan(self, kind: str) -> list[Record]:
                found = await super().scan(kind)
                if kind == queue_cache.KIND and not self.read.is_set():
                    self.read.set()
                    await self.gate.wait()
                return found

        store = Held()
        bench = Bench(store=store, batching=False)
        cache = bench.engine.queue_cache
        looking = asyncio.create_task(cache.refresh())
        await store.read.wait()
        await bench.engine.queues.change("small", bound=1)
        if overtaken:
            await cache.refresh()
        store.gate.set()
        await looking
        await cache.refresh()
        assert cache.bounds_of(["small"]) == {"small": 1}

    def test_an_inline_engine_heeds_them_too(self) -> None:
        clock = ManualClock()
        store = MemoryStore()
        one, two = (Bench(store=store, clock=clock, batching=False) for _ in range(2))
        run_inline(one.submit())
        run_inline(two.engine.queues.pause("default"))
        clock.advance(SECOND)
        assert run_inline(one.claim()) == []


class TestWaiting:
    async def test_a_paused_queue_with_ready_tasks_does_not_wake_anyone(self) -> None:
        """However many tasks ring for it, an idle worker claims about once a second, and asks no store for tasks."""
        store = Unreadable()
        bench = Bench(store=store)
        await bench.engine.queues.pause("default")
        for _ in range(50):
            await bench.submit()
        rounds = 0
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                while True:
                    rounds += 1
                    assert await bench.claim() == []
                    await bench.engine.queue_cache.wait(["default"], 60.0)
        assert rounds == 1
        assert store.claims == 0

    async def test_ready_tasks_do_not_wake_a_worker_that_is_paused(self) -> None:
        store = Unreadable()
        bench = Bench(store=store)
        await bench.engine.worker_records.register(WorkerId("worker-1"), queues=["default"], capacity=1)
        await bench.engine.workers.pause("worker-1")
        for _ in range(50):
            await bench.submit()
        rounds = 0
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                while True:
                    rounds += 1
                    assert await bench.claim() == []
                    await bench.engine.wait(WorkerId("worker-1"), ["default"], 60.0, limit=1)
        assert rounds == 1
        assert store.claims == 0

    async def test_a_queue_that_is_open_still_rings(self) -> None:
        bench = Bench()
        await bench.engine.queues.pause("held")
        await bench.submit(queue="held")
        await bench.claim()
        waiting = asyncio.create_task(bench.engine.queue_cache.wait(["held", "open"], 60.0))
        await asyncio.sleep(0)
        await bench.submit(queue="open")
        # It looks again by itself after about a second; no time passes in turns of the loop.
        for _ in range(100):
            await asyncio.sleep(0)
        assert waiting.done()
