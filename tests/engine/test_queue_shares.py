"""Queues that share a worker by weight, on every store."""

from __future__ import annotations

from collections import Counter

import pytest

from fairlead.core.identity import WorkerId
from fairlead.core.instant import MINUTE
from fairlead.core.queues.shares import SharedAmong, WorkerShares
from fairlead.core.task import Priority
from fairlead.storage.protocol import Store
from tests.engine.building import Bench, a_wish


@pytest.fixture
async def bench(any_store: Store) -> Bench:
    bench = Bench(store=any_store, batching=False)
    await bench.engine.submit_many([a_wish(queue="bulk", priority=Priority.HIGH)] * 120)
    bench.clock.advance(5 * MINUTE)
    await bench.engine.submit_many([a_wish(queue="web", priority=Priority.HIGH)] * 120)
    return bench


async def served(bench: Bench, shares: WorkerShares | None, claims: int, limit: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for _ in range(claims):
        tasks = await bench.engine.claim(WorkerId("w"), ["web", "bulk"], limit=limit, shares=shares)
        counts.update(task.spec.queue for task in tasks)
    return counts


async def test_the_older_backlog_takes_all_unless_queues_share(bench: Bench) -> None:
    assert await served(bench, None, 4, 10) == {"bulk": 40}
    assert await served(bench, WorkerShares({"web": 3, "bulk": 1}), 80, 1) == {"web": 60, "bulk": 20}


async def test_claims_of_many_share_too(bench: Bench) -> None:
    counts = await served(bench, WorkerShares({"web": 3, "bulk": 1}), 16, 8)
    assert abs(counts["web"] - 96) <= 8


async def test_a_more_urgent_task_of_any_queue_goes_first(bench: Bench) -> None:
    await bench.engine.submit_many([a_wish(queue="bulk", priority=Priority.CRITICAL)] * 5)
    assert await served(bench, WorkerShares({"web": 100, "bulk": 0.01}), 5, 1) == {"bulk": 5}


async def test_before_priority_each_has_its_share_of_all(bench: Bench) -> None:
    await bench.engine.submit_many([a_wish(queue="bulk", priority=Priority.CRITICAL)] * 20)
    assert await served(bench, WorkerShares({"web": 1, "bulk": 1}, SharedAmong.ALL), 20, 1) == {"web": 10, "bulk": 10}


async def test_in_strict_order_a_later_queue_has_what_is_left(bench: Bench) -> None:
    shares = WorkerShares({"web": 1, "bulk": 1}, SharedAmong.STRICT)
    assert await served(bench, shares, 3, 50) == {"web": 120, "bulk": 30}


async def test_an_empty_queue_keeps_nobody_waiting(bench: Bench) -> None:
    shares = WorkerShares({"web": 1, "bulk": 1, "none": 100})
    tasks = await bench.engine.claim(WorkerId("w"), ["none", "web", "bulk"], limit=9, shares=shares)
    assert len(tasks) == 9
