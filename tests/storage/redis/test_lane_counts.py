"""What an operation asks of Redis does not grow with the number of a queue's lanes.

Commands are counted, also those that scripts run: the same on every machine. Tasks of one lane are taken or added
together and those of many lanes one by one, so an operation on a hundred tasks may run a few commands for each.

`python -m tests.storage.redis.test_lane_counts` prints them all, with the processor time of the server.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from fairlead.core.events import Completed
from fairlead.core.task import Task
from fairlead.storage.redis.store import RedisStore, open_redis
from fairlead.testing.builders import NOW, a_settle, a_task, a_token
from tests.servers.redis import RedisServer, started_single
from tests.storage.lane_counts import MANY, MOST_QUEUES, Crowd, variants

_ROUNDS: Final = 5
_NOT_COUNTED: Final = ("config", "info")

_MOST_OF_ONE: Final = 2.0
"""How many times as many commands an operation on one task may run as in a queue of one type."""
_MOST_PER_TASK: Final[dict[str, float]] = {"claim of 100": 3.2, "submit of 100": 2.2, "settle of 100": 0.3}
"""How many commands more for each task, where a hundred are of as many lanes."""
_MOST_FOR_MORE: Final = 1.2
"""How many times as many with 1,000 or 10,000 types as with 300."""
_FEWER: Final = 300

Costs = dict[str, tuple[float, float]]
"""By operation: commands, and microseconds of the server's processor."""


async def costs_of(server: RedisServer, crowd: Crowd) -> Costs:
    """What each operation takes with these tasks waiting, mostly."""
    server.ask("FLUSHALL")
    store = await open_redis(server.url())
    await crowd.fill(store)
    counted: dict[str, list[tuple[int, float]]] = {}
    await store.claim(crowd.claim(1))  # it makes the view
    for round_ in range(_ROUNDS):
        for name, work in _operations(store, crowd, round_):
            server.ask("CONFIG", "RESETSTAT")
            before = _worked(server)
            await work()
            counted.setdefault(name, []).append((_commands(server), _worked(server) - before))
    await store.close()
    # A view is made anew now and then, a different number of times on a machine that is slow.
    return {
        name: (statistics.median(n for n, _ in each), statistics.median(worked for _, worked in each))
        for name, each in counted.items()
    }


def _operations(store: RedisStore, crowd: Crowd, round_: int) -> Iterator[tuple[str, Callable[[], Awaitable[object]]]]:
    taken: list[Task] = []

    async def claim(limit: int) -> None:
        taken[:] = await store.claim(replace(crowd.claim(limit), token=a_token()))
        assert len(taken) == limit

    async def settle() -> None:
        await store.apply([a_settle(task, Completed(b"1")) for task in taken])

    first = 202 * round_
    more = [
        a_task(queue=crowd.queue_of(number), type=crowd.type_of(number), ready_at=NOW + number)
        for number in range(first, first + 202, 2)
    ]
    yield "claim of 1", lambda: claim(1)
    yield "settle of 1", settle
    yield "claim of 100", lambda: claim(100)
    yield "settle of 100", settle
    yield "submit of 1", lambda: store.add(more[:1], now=NOW, bounds={})
    yield "submit of 100", lambda: store.add(more[1:], now=NOW, bounds={})


def _commands(server: RedisServer) -> int:
    lines = [line.removeprefix("cmdstat_") for line in server.ask("INFO", "commandstats").decode().splitlines()]
    counts = [line.partition(":calls=") for line in lines if not line.startswith(_NOT_COUNTED)]
    return sum(int(rest.partition(",")[0]) for _, mark, rest in counts if mark)


def _worked(server: RedisServer) -> float:
    clock = Path(f"/proc/{server.pid}/schedstat")
    return int(clock.read_text().split()[0]) / 1_000 if clock.exists() else 0.0


def _sized(crowd: Crowd) -> Crowd:
    return replace(crowd, tasks=max(2_000, 4 * crowd.types))


@pytest.mark.parametrize("number", range(len(variants(1))), ids=[crowd.name for crowd in variants(1)])
async def test_an_operation_does_not_feel_how_many_types_a_queue_has(single: RedisServer, number: int) -> None:
    await _compare(single, number, (1, _FEWER, 1_000))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(variants(1))), ids=[crowd.name for crowd in variants(1)])
async def test_nor_does_it_feel_ten_thousand(single: RedisServer, number: int) -> None:
    await _compare(single, number, (1, _FEWER, 10_000))


async def _compare(server: RedisServer, number: int, types: tuple[int, int, int]) -> None:
    one, fewer, more = [await costs_of(server, _sized(variants(each)[number])) for each in types]
    for name, (commands, _) in more.items():
        most = one[name][0] + 100 * _MOST_PER_TASK[name] if name in _MOST_PER_TASK else _MOST_OF_ONE * one[name][0]
        assert commands <= most, (name, one, more)
        assert commands <= _MOST_FOR_MORE * fewer[name][0], (name, fewer, more)


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize(("busy", "most"), [(0, 5), (1, 60), (MOST_QUEUES, 2 * MOST_QUEUES + 60)])
async def test_queues_without_tasks_are_looked_at_together(
    single: RedisServer, busy: int, most: int, limited: bool
) -> None:
    single.ask("FLUSHALL")
    store = await open_redis(single.url())
    if busy:
        await Crowd(queues=busy, tasks=2 * busy).fill(store)
    claim = Crowd(queues=MOST_QUEUES, limited=limited).claim(1)
    await store.claim(claim)
    single.ask("CONFIG", "RESETSTAT")
    assert len(await store.claim(replace(claim, token=a_token()))) == min(busy, 1)
    assert _commands(single) <= most * (1.5 if limited else 1)
    await store.close()


async def _show() -> None:
    for server in started_single():
        for number, crowd in enumerate(variants(1)):
            for types in (1, *MANY):
                costs = await costs_of(server, _sized(variants(types)[number]))
                told = (f"{name} {commands:.0f} ({worked:.0f} µs)" for name, (commands, worked) in costs.items())
                print(f"{crowd.name}, {types:,} types:", *told, sep="\n  ")


if __name__ == "__main__":
    asyncio.run(_show())
