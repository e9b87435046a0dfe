"""Idempotency keys are of their tenant, on every store, and through an upgrade no key ever makes two tasks."""

from __future__ import annotations

import pytest

from fairlead.core.instant import DAY, SECOND
from fairlead.core.settings import Settings
from fairlead.core.task import Task
from fairlead.engine.submit import KEY_SCOPE as NAME
from fairlead.engine.submit import UPGRADE as KIND
from fairlead.storage.protocol import Store
from fairlead.storage.values import Added, KeyHeld
from fairlead.testing.builders import a_spec, a_status, a_task
from fairlead.testing.steps import contents
from tests.engine.building import Bench, a_wish

KEY = "order-17"


@pytest.fixture
def bench(any_store: Store) -> Bench:
    return Bench(store=any_store)


async def submitted(bench: Bench, tenant: str | None, key: str = KEY) -> tuple[Task, bool]:
    """The task that is answered, and whether it was there before."""
    answer = await bench.engine.submit(a_wish(tenant=tenant, idempotency_key=key))
    return answer.task, answer.existing


async def by_an_older_server(bench: Bench, tenant: str | None) -> Task | None:
    """A submit as it was done before keys had scopes; the task, or None if somebody holds its key."""
    now = bench.clock.now()
    spec = a_spec(tenant=tenant, key=KEY, created_at=now, key_until=now + DAY)
    task = Task(spec, a_status(ready_at=now))
    (receipt,) = await bench.store.add([task], now=now, bounds={})
    assert isinstance(receipt, Added | KeyHeld)
    return task if isinstance(receipt, Added) else None


async def upgraded(bench: Bench) -> None:
    """A store with a task of before."""
    await bench.store.add([a_task()], now=bench.clock.now(), bounds={})


async def test_a_key_is_of_its_tenant(bench: Bench) -> None:
    tasks = {tenant: (await submitted(bench, tenant))[0].id for tenant in (None, "acme", "globex")}
    assert len(set(tasks.values())) == 3
    for tenant, task_id in tasks.items():
        task, existing = await submitted(bench, tenant)
        assert (task.id, existing) == (task_id, True)
        assert task.spec.key == KEY


async def test_a_server_that_is_the_first_says_so_before_anything_is_submitted(bench: Bench) -> None:
    await bench.engine.begin_key_scopes()
    await bench.submit()
    second = Bench(store=bench.store, clock=bench.clock)
    task, _ = await submitted(second, "acme")
    assert task.spec.idempotency_key != KEY


async def test_tasks_of_one_batch_are_told_apart_by_their_tenants(bench: Bench) -> None:
    wishes = [a_wish(tenant=tenant, idempotency_key=KEY) for tenant in ("acme", "globex", "acme", None)]
    answers = await bench.engine.submit_many(wishes)
    ids = [answer.task.id for answer in answers]  # type: ignore[union-attr]
    assert ids[2] == ids[0]
    assert len(set(ids)) == 3


async def test_nothing_of_a_task_without_a_tenant_is_named_otherwise(bench: Bench) -> None:
    task, _ = await submitted(bench, None)
    assert task.spec.idempotency_key == KEY


async def test_for_a_day_older_servers_and_new_ones_make_one_task(bench: Bench) -> None:
    """Whoever comes first."""
    await upgraded(bench)
    first, _ = await submitted(bench, "acme")
    assert await by_an_older_server(bench, "acme") is None
    assert (await submitted(bench, "acme")) == (first, True)
    bench.clock.advance(DAY - SECOND)
    assert await by_an_older_server(bench, "acme") is None


async def test_what_an_older_server_made_is_found_as_long_as_its_key_is_held(bench: Bench) -> None:
    await upgraded(bench)
    await submitted(bench, "globex", key="another")
    bench.clock.advance(DAY - SECOND)
    old = await by_an_older_server(bench, "acme")
    assert old is not None
    for _ in range(2):
        task, existing = await submitted(bench, "acme")
        assert (task.id, existing) == (old.id, True)
        bench.clock.advance(DAY - 2 * SECOND)
    bench.clock.advance(10 * SECOND)
    new, existing = await submitted(bench, "acme")
    assert not existing
    bench.clock.advance(SECOND)
    assert await submitted(bench, "acme") == (new, True)


async def test_after_the_day_a_tenant_s_key_is_free_for_the_others(bench: Bench) -> None:
    await upgraded(bench)
    await submitted(bench, "globex")
    bench.clock.advance(DAY)
    task, existing = await submitted(bench, "acme")
    assert not existing
    assert await submitted(bench, "acme") == (task, True)


async def test_a_second_server_goes_by_what_the_first_wrote_down(bench: Bench) -> None:
    await upgraded(bench)
    await submitted(bench, "globex")
    bench.clock.advance(2 * DAY)
    second = Bench(store=bench.store, clock=bench.clock)
    task, _ = await submitted(second, "acme")
    assert task.spec.idempotency_key != KEY
    assert await submitted(bench, "acme") == (task, True)


async def test_when_it_cannot_be_read_since_when_both_names_are_looked_at(bench: Bench) -> None:
    await upgraded(bench)
    old = await by_an_older_server(bench, "acme")
    await bench.store.put(KIND, NAME, b"\xff")
    assert old is not None
    task, existing = await submitted(bench, "acme")
    assert (task.id, existing) == (old.id, True)
    other, existing = await submitted(bench, "globex")
    assert not existing
    assert await submitted(bench, "globex") == (other, True)
    assert len(await contents(bench.store)) == 3


async def test_a_longer_retention_is_waited_for(any_store: Store) -> None:
    bench = Bench(store=any_store, settings=Settings(key_retention=7 * DAY))
    await upgraded(bench)
    first, _ = await submitted(bench, "acme")
    bench.clock.advance(6 * DAY)
    assert await by_an_older_server(bench, "acme") is None
    assert await submitted(bench, "acme") == (first, True)
