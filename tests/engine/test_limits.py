"""Limits as people set them: they hold at the next claim everywhere, and what blocks a task can be said."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from fairlead.core.events import Completed
from fairlead.core.instant import SECOND
from fairlead.core.queues.limits import Rate
from fairlead.core.queues.queue import QueueSettings
from fairlead.core.task import State, Task
from fairlead.engine.explain.causes import LimitOf, LimitReached, blocking
from fairlead.storage.protocol import Store
from tests.engine.building import Bench, a_wish


@pytest.fixture
def bench(any_store: Store) -> Bench:
    return Bench(store=any_store, batching=False)


async def submit_keyed(bench: Bench, key: str, count: int = 1) -> list[Task]:
    wish = replace(a_wish(), concurrency_key=key)
    return [(await bench.engine.submit(wish)).task for _ in range(count)]


async def reached(bench: Bench, task: Task) -> LimitReached | None:
    engine = bench.engine
    return await blocking(engine.store, engine.queue_cache, engine.clock, task)


async def test_a_limit_holds_at_the_next_claim_of_every_engine(bench: Bench) -> None:
    other = Bench(store=bench.store, batching=False, clock=bench.clock, seed=7)
    for _ in range(5):
        await bench.submit()
    assert len(await other.claim(1)) == 1
    await bench.engine.queues.change("default", running=2)
    assert len(await bench.claim(10)) == 1
    bench.clock.advance(SECOND)
    assert await other.claim(10) == []
    await bench.engine.queues.change("default", running=4)
    bench.clock.advance(SECOND)
    assert len(await other.claim(10)) == 2
    await bench.engine.queues.reset("default")
    assert len(await bench.claim(10)) == 1


async def test_the_limits_of_types_are_changed_one_by_one(bench: Bench) -> None:
    queues = bench.engine.queues
    await queues.change("default", type_running={"a": 1, "b": 2}, type_rate={"a": Rate(1, SECOND)})
    own = await queues.change("default", type_running={"a": None, "c": 3})
    assert own == QueueSettings(type_running={"b": 2, "c": 3}, type_rate={"a": Rate(1, SECOND)})
    assert await queues.change("default", type_running=None, type_rate=None) == QueueSettings()


async def test_a_worker_that_dies_frees_its_place_when_its_lease_is_swept(bench: Bench) -> None:
    first, second = await submit_keyed(bench, "k", 2)
    (held,) = await bench.claim(10)
    assert held.id == first.id
    assert await bench.claim(10) == []
    bench.clock.advance(bench.engine.settings.lease + bench.engine.settings.grace)
    assert await bench.claim(10) == []
    await bench.engine.sweep()
    (next_one,) = await bench.claim(10)
    assert next_one.id == second.id


async def test_what_blocks_a_task_is_said(bench: Bench) -> None:
    first, second = await submit_keyed(bench, "k", 2)
    assert await reached(bench, first) is None
    await bench.claim(10)
    assert await reached(bench, second) == LimitReached(of=LimitOf.KEY, name="k", running=1, most=1, opens_at=None)
    await bench.engine.queues.change("default", key_running=0, rate=Rate(1, SECOND))
    (taken,) = await bench.claim(10)
    assert await reached(bench, taken) is None
    (third,) = await submit_keyed(bench, "other")
    opens_at = bench.clock.now() + SECOND
    assert await reached(bench, third) == LimitReached(
        of=LimitOf.QUEUE, name="default", running=2, most=None, opens_at=opens_at
    )
    await bench.engine.queues.change("default", rate=None, type_running={third.spec.type: 2})
    assert await reached(bench, third) == LimitReached(
        of=LimitOf.TYPE, name=third.spec.type, running=2, most=2, opens_at=None
    )
    assert (await bench.settle(taken, Completed())).state is State.COMPLETED
    assert await reached(bench, third) is None


async def test_who_waits_for_work_looks_again_when_a_rate_lets_the_next_one_start(bench: Bench) -> None:
    await bench.engine.queues.change("default", rate=Rate(10, SECOND))
    await bench.engine.queue_cache.refresh()
    assert bench.engine.queue_cache.limits["default"].pause == SECOND // 10
    async with asyncio.timeout(30):
        await bench.engine.queue_cache.wait(["default"], 60)
