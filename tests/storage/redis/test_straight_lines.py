"""What is common has a script of its own, and no one notices where it hands over to the general one."""

from __future__ import annotations

import random

import pytest

from fairlead.core.events import Completed
from fairlead.core.task import State
from fairlead.storage.redis.keys import Keys
from fairlead.storage.redis.store import RedisStore
from fairlead.storage.values import Added, Filter, Known, Verdict
from fairlead.testing.builders import NOW, a_claim, a_dependent, a_removal, a_settle, a_task, some_tasks
from fairlead.testing.steps import add, ids
from tests.servers.redis import RedisServer


async def test_a_task_given_twice_at_once_is_stored_once(store: RedisStore) -> None:
    first, second = some_tasks(2)
    receipts = await store.add([first, second, first], now=NOW, bounds={})
    assert receipts == [Added(), Added(), Known()]
    assert ids(await store.claim(a_claim(limit=5))) == ids([first, second])


async def test_beside_a_task_that_is_stored_already_the_others_are_added(store: RedisStore) -> None:
    tasks = some_tasks(3)
    await add(store, tasks[1])
    assert await store.add(tasks, now=NOW, bounds={}) == [Added(), Known(), Added()]
    assert ids(await store.claim(a_claim(limit=5))) == ids(tasks)


async def test_beside_an_outcome_that_is_refused_the_others_are_applied(store: RedisStore) -> None:
    await add(store, *some_tasks(3))
    held = await store.claim(a_claim(limit=3))
    settles = [a_settle(task, Completed(b"1")) for task in held]
    other = await store.apply([a_settle(held[1], Completed(b"2"))])
    assert other == [Verdict.APPLIED]
    assert await store.apply(settles) == [Verdict.APPLIED, Verdict.STALE, Verdict.APPLIED]
    completed = await store.find(Filter(states=frozenset({State.COMPLETED})), limit=5, newest_first=False)
    assert ids(completed) == ids(held)


async def test_of_two_outcomes_of_one_task_at_once_the_first_counts(store: RedisStore) -> None:
    await add(store, a_task())
    (held,) = await store.claim(a_claim())
    first, second = a_settle(held, Completed(b"1")), a_settle(held, Completed(b"2"))
    assert await store.apply([first, second]) == [Verdict.APPLIED, Verdict.STALE]
    (stored,) = await store.get([held.id])
    assert stored is not None and stored.status.result == b"1"


async def test_an_outcome_that_others_wait_for_releases_them(store: RedisStore) -> None:
    parent = a_task()
    await add(store, parent, a_task())
    await add(store, a_dependent(parent))
    held = await store.claim(a_claim(limit=2))
    verdicts = await store.apply([a_settle(task, Completed()) for task in held])
    assert sorted(verdicts, key=list(Verdict).index) == [Verdict.APPLIED, Verdict.RELEASED]


@pytest.mark.parametrize("seed", range(5))
async def test_listings_are_in_order_whatever_the_order_of_adding_and_removing(store: RedisStore, seed: int) -> None:
    chance = random.Random(seed)
    tasks = some_tasks(400)
    shuffled = chance.sample(tasks, len(tasks))
    stored = set()
    while shuffled:
        batch, shuffled = shuffled[: (size := chance.choice((1, 3, 64, 150)))], shuffled[size:]
        await store.add(batch, now=NOW, bounds={})
        stored.update(batch_ids := ids(batch))
        gone = [task for task in batch if task.id in batch_ids and chance.random() < 0.4]
        await store.apply([a_removal(task) for task in gone])
        stored.difference_update(ids(gone))
        expected = sorted(stored)
        assert ids(await store.find(Filter(), limit=500, newest_first=False)) == expected
        after = chance.choice(ids(tasks))
        page = await store.find(Filter(), limit=70, after=after)
        assert ids(page) == [task_id for task_id in reversed(expected) if task_id < after][:70]


async def test_with_the_last_ready_task_its_doorbell_goes(store: RedisStore, single: RedisServer, prefix: str) -> None:
    keys = Keys(prefix)
    doorbell = keys.base(keys.slot("default")) + b"bdefault"
    await add(store, *some_tasks(3))
    assert single.ask("LLEN", doorbell) == 3
    await store.claim(a_claim(limit=2))
    assert single.ask("LLEN", doorbell) == 3
    await store.claim(a_claim(limit=2))
    assert single.ask("EXISTS", doorbell) == 0


@pytest.mark.parametrize("seed", [None, 1])
async def test_tasks_added_one_by_one_are_listed_in_order(store: RedisStore, seed: int | None) -> None:
    tasks = some_tasks(200)
    for task in tasks if seed is None else random.Random(seed).sample(tasks, len(tasks)):
        assert await store.add([task], now=NOW, bounds={}) == [Added()]
    assert ids(await store.find(Filter(), limit=500, newest_first=False)) == ids(tasks)
    assert await store.add([tasks[7]], now=NOW, bounds={}) == [Known()]
    assert ids(await store.claim(a_claim(limit=500))) == ids(tasks)


@pytest.mark.parametrize("at_once", [1, 10, 100])
async def test_a_doorbell_keeps_a_few_rings_and_goes_by_itself(
    store: RedisStore, single: RedisServer, prefix: str, at_once: int
) -> None:
    keys = Keys(prefix)
    doorbell = keys.base(keys.slot("default")) + b"bdefault"
    for _ in range(2):
        # Claimed by someone who did not have to wait, they leave their rings.
        for _ in range(0, 100, at_once):
            await add(store, *some_tasks(at_once))
        await store.claim(a_claim(limit=99))
    assert 0 < single.ask("LLEN", doorbell) <= 64
    assert single.ask("PTTL", doorbell) > 0
