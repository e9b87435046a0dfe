"""Who shares a queue by fair keys, as it is told: on every store that gives turns, and with a bound."""

from __future__ import annotations

import pytest

from fairlead.admin.stats import standing, stats_of
from fairlead.admin.tenant_engine import TenantEngine
from fairlead.admin.tenants.api import shares_of, tenants_shown
from fairlead.core.instant import SECOND
from fairlead.core.queues.fair_place import is_noisy
from fairlead.core.task import Priority
from fairlead.engine.fair_keys import MOST_NAMED, FairKeys
from fairlead.storage.protocol import Sharing, Store
from tests.engine.building import Bench, a_wish


@pytest.fixture
async def bench(any_store: Store) -> Bench:
    if not isinstance(any_store, Sharing):
        pytest.skip("the store gives no turns")
    bench = Bench(store=any_store)
    await bench.engine.queues.change("default", fair="tenant", weight={"acme": 3})
    return bench


async def submit(bench: Bench, count: int, tenant: str | None, **wish: object) -> None:
    answers = await bench.engine.submit_many([a_wish(tenant=tenant, **wish)] * count)
    assert not [answer for answer in answers if isinstance(answer, Exception)]


async def test_each_has_what_waits_and_runs_and_its_part_of_the_turns(bench: Bench) -> None:
    await submit(bench, 120, "acme")
    bench.clock.advance(5 * SECOND)
    await submit(bench, 2, "umbrella", priority=Priority.HIGH)
    await submit(bench, 1, None)
    await bench.claim(3)
    (shared,) = await bench.engine.tenants.all()
    acme, umbrella = shared.shares
    assert (shared.queue, shared.by, shared.others) == ("default", "tenant", 0)
    assert (acme.key, acme.waiting, acme.executing, acme.weight, acme.noisy) == ("acme", 119, 1, 3, False)
    assert (acme.part, acme.oldest_age) == (3 / 4, 5 * SECOND)
    assert (umbrella.key, umbrella.waiting, umbrella.executing, umbrella.part) == ("umbrella", 0, 2, None)
    assert shares_of(tenants_shown([shared])) == [shared]


async def test_very_many_are_counted_and_few_are_named(bench: Bench) -> None:
    for number in range(30):
        await submit(bench, 2 if number == 29 else 1, f"tenant-{number:02}")
    told = (await bench.engine.stats()).queues["default"].fair
    assert told is not None and (told.keys, len(told.waiting), told.others) == (30, MOST_NAMED, 31 - 2 - 9)
    assert next(iter(told.waiting.items())) == ("tenant-29", 2)
    assert stats_of(standing(await bench.engine.stats())).queues["default"].fair == told


async def test_who_is_bound_to_a_tenant_is_told_of_its_own_share_only(bench: Bench) -> None:
    await submit(bench, 200, "umbrella")
    await submit(bench, 2, "acme")
    (shared,) = await TenantEngine(bench.engine, "acme").tenants.all()
    assert [share.key for share in shared.shares] == ["acme"]
    assert (shared.shares[0].waiting, shared.keys, shared.others) == (2, 0, 0)
    assert await TenantEngine(bench.engine, "initech").tenants.all() == []
    await bench.engine.queues.change("default", fair="type")
    assert await TenantEngine(bench.engine, "acme").tenants.all() == []


async def test_who_has_nearly_all_that_waits_is_a_noisy_neighbour(bench: Bench) -> None:
    await submit(bench, 150, "acme")
    (alone,) = await bench.engine.tenants.all("default")
    assert not alone.shares[0].noisy, "nobody else waits"
    await submit(bench, 3, "umbrella")
    (shared,) = await bench.engine.tenants.all("default")
    assert [(share.key, share.noisy) for share in shared.shares] == [("acme", True), ("umbrella", False)]
    assert not is_noisy(99, 100) and not is_noisy(400, 500) and is_noisy(401, 500)


async def test_queues_that_nobody_shares_cost_nothing_and_are_not_there() -> None:
    bench = Bench()
    await submit(bench, 3, "acme")
    assert await bench.engine.tenants.all() == []
    assert (await bench.engine.stats()).queues["default"].fair is None
    assert FairKeys() == FairKeys(keys=0, waiting={}, others=0)
