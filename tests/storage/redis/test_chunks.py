"""What is too much for one call takes several, and no one notices."""

from __future__ import annotations

import pytest

from fairlead.core.events import Completed
from fairlead.core.queues.order import Weighted
from fairlead.core.task import State
from fairlead.storage.redis import read
from fairlead.storage.redis.scripts import CHUNK, CHUNK_BYTES, cut
from fairlead.storage.redis.store import RedisStore
from fairlead.storage.values import Filter, Verdict
from fairlead.testing.builders import WORKER, a_claim, a_settle, some_tasks
from fairlead.testing.steps import add, ids


def test_entries_are_cut_by_number_and_by_size() -> None:
    assert cut([], len) == []
    assert [len(chunk) for chunk in cut(range(2 * CHUNK + 1), lambda entry: 1)] == [CHUNK, CHUNK, 1]
    assert cut([1, 1, 2, 9], lambda entry: entry * CHUNK_BYTES // 2) == [[1, 1], [2], [9]]


@pytest.mark.parametrize("limit", [20, 60])
async def test_large_tasks_are_claimed_in_several_calls_and_in_their_order(store: RedisStore, limit: int) -> None:
    tasks = some_tasks(50, parameters=b'{"x": "' + b"y" * 100_000 + b'"}')
    await add(store, *tasks)
    taken = await store.claim(a_claim(limit=limit))
    assert ids(taken) == ids(tasks[:limit])
    settles = [a_settle(task, Completed(b'"' + b"z" * 100_000 + b'"')) for task in taken]
    assert set(await store.apply(settles)) == {Verdict.APPLIED}
    assert ids(await store.claim(a_claim(limit=50))) == ids(tasks[limit:])


async def test_the_turns_of_a_claim_go_on_from_call_to_call(store: RedisStore) -> None:
    small, large = some_tasks(40), some_tasks(40, parameters=b'{"x": "' + b"y" * 100_000 + b'"}')
    await add(store, *(task for pair in zip(small, large, strict=True) for task in pair))
    taken = await store.claim(a_claim(limit=80, policy=Weighted()))
    assert sorted(ids(taken)) == sorted(ids([*small, *large]))


async def test_all_that_a_worker_holds_is_found(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_LEASED_CHUNK", 7)
    await add(store, *some_tasks(50))
    taken = await store.claim(a_claim(limit=45))
    assert ids(await store.find(Filter(worker=WORKER), limit=100)) == ids(taken)[::-1]
    executing = Filter(states=frozenset({State.EXECUTING}))
    assert ids(await store.find(executing, limit=100, newest_first=False)) == ids(taken)
