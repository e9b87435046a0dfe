"""What fair tasks cost on Redis: commands of the server, and bytes. Without them nothing is dearer than before.

Commands are counted, also those that scripts run: the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from fairlead.core.events import Completed
from fairlead.core.queues.order import Promote
from fairlead.storage.redis.store import RedisStore, open_redis
from fairlead.testing.builders import NOW, a_claim, a_settle, a_task, a_token
from tests.servers.redis import RedisServer
from tests.storage.redis.test_lane_counts import _commands

_BATCH = 1_000
_CLAIM = a_claim(policy=Promote(share="all"))

Costs = dict[str, int]


async def _fill(store: RedisStore, number: int, key_of: Callable[[int], str | None]) -> None:
    for first in range(0, number, _BATCH):
        tasks = [a_task(fair=key_of(at), ready_at=NOW + at) for at in range(first, min(first + _BATCH, number))]
        await store.add(tasks, now=NOW, bounds={})


async def _costs(server: RedisServer, number: int, key_of: Callable[[int], str | None]) -> Costs:
    """The commands of each operation with so many tasks waiting."""
    server.ask("FLUSHALL")
    store = await open_redis(server.url())
    await _fill(store, number, key_of)
    for _ in range(2):  # the first learns what there is
        await store.claim(replace(_CLAIM, token=a_token()))
    costs: Costs = {}
    for size in (1, 100):
        server.ask("CONFIG", "RESETSTAT")
        taken = await store.claim(replace(_CLAIM, limit=size, token=a_token()))
        costs[f"claim of {size}"] = _commands(server)
        assert len(taken) == size
        server.ask("CONFIG", "RESETSTAT")
        await store.apply([a_settle(task, Completed(b"1")) for task in taken])
        costs[f"settle of {size}"] = _commands(server)
        more = [a_task(fair=key_of(number + at)) for at in range(size)]
        server.ask("CONFIG", "RESETSTAT")
        await store.add(more, now=NOW, bounds={})
        costs[f"submit of {size}"] = _commands(server)
    await store.close()
    return costs


def _held_to(costs: Costs, most: Costs, times: float) -> None:
    assert all(costs[name] <= times * most[name] for name in most), (costs, most)


async def test_many_keys_cost_what_one_does(single: RedisServer) -> None:
    one = await _costs(single, 2_000, lambda _: "A")
    _held_to(await _costs(single, 20_000, lambda at: f"tenant-{at:06}"), one, 1.5)


@pytest.mark.slow
async def test_nor_do_a_hundred_thousand_cost_more(single: RedisServer) -> None:
    one = await _costs(single, 2_000, lambda _: "A")
    _held_to(await _costs(single, 100_000, lambda at: f"tenant-{at:06}"), one, 1.5)


async def test_turns_cost_a_few_commands_for_each_call(single: RedisServer) -> None:
    none, one = [await _costs(single, 2_000, key_of) for key_of in (lambda _: None, lambda _: "A")]
    assert all(one[name] <= none[name] + 16 for name in none), (none, one)


@pytest.mark.parametrize("keys", [1, 20_000])
async def test_a_key_and_a_waiting_task_take_few_bytes(single: RedisServer, keys: int) -> None:
    """About 134 more for a task, and at most 150 for each key."""
    used: list[int] = []
    for key_of in (lambda _: None, lambda at: f"t-{at % keys:06}"):
        single.ask("FLUSHALL")
        store = await open_redis(single.url())
        before = _used(single)
        await _fill(store, 20_000, key_of)
        used.append(_used(single) - before)
        await store.close()
    assert used[1] - used[0] <= 20_000 * 138 + keys * 150, used


def _used(server: RedisServer) -> int:
    lines = server.ask("INFO", "memory").decode().splitlines()
    return int(next(line for line in lines if line.startswith("used_memory:")).partition(":")[2])
