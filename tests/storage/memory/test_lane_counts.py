"""What an operation costs with many lanes beside one, counted in calls of functions."""

from __future__ import annotations

import gc
import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import TypeVar

import pytest
from msgspec.structs import replace

from fairlead.core.events import Completed
from fairlead.storage.memory import MemoryStore
from fairlead.testing.builders import NOW, a_settle, a_task
from tests.storage.lane_counts import Crowd, variants

Result = TypeVar("Result")

TIMES = {"claim(1)": 5.0, "claim(100)": 8.0}
"""How many times the calls of one lane an operation may take: a claim opens a hundred lanes where it opened one."""
FAIR_TIMES = {"claim(1)": 6.0, "claim(100)": 8.0}
"""The same where tasks take turns: a lane is opened in both of its orders."""
OTHERS = 2.0


async def calls(operation: Callable[[], Awaitable[Result]]) -> tuple[int, Result]:
    """How many functions an operation calls, and its result."""
    count = 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    # A collection of garbage calls what other tests of the process have hooked into it.
    gc.disable()
    sys.setprofile(called)
    try:
        result = await operation()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count, result


async def costs(crowd: Crowd) -> dict[str, int]:
    """The calls of each operation, once claims have met what they pass over."""
    store = MemoryStore()
    await crowd.fill(store)
    await store.claim(crowd.claim(crowd.size // 4))
    found: dict[str, int] = {}
    claim = crowd.claim(1)
    found["claim(1)"], _ = await calls(lambda: store.claim(claim))
    claims = crowd.claim(100)
    found["claim(100)"], tasks = await calls(lambda: store.claim(claims))
    assert len(tasks) == 100
    changes = [a_settle(task, Completed()) for task in tasks]
    found["settle(100)"], _ = await calls(lambda: store.apply(changes))
    more = [
        a_task(
            queue=crowd.queue_of(number),
            type=crowd.type_of(number),
            fair=f"key {number % crowd.keys}" if crowd.keys else None,
        )
        for number in range(100)
    ]
    found["submit(100)"], _ = await calls(
        lambda: store.add(more, now=NOW, bounds={task.spec.queue: 1_000_000 for task in more})
    )
    found["usage"], _ = await calls(lambda: store.usage(more[0].spec.queue, more[0].spec.type, None))
    return found


def too_dear(one: dict[str, int], many: dict[str, int], times: dict[str, float] = TIMES) -> dict[str, float]:
    """The operations that take more calls than they may, and how many times those of one lane."""
    ratios = {name: many[name] / one[name] for name in one}
    return {name: round(ratio, 1) for name, ratio in ratios.items() if ratio > times.get(name, OTHERS)}


@pytest.mark.parametrize("crowd", variants(1_000), ids=lambda crowd: crowd.name)
async def test_no_operation_feels_how_many_types_there_are(crowd: Crowd) -> None:
    one = await costs(replace(crowd, types=1, tasks=crowd.size))
    assert too_dear(one, await costs(crowd)) == {}


async def test_no_operation_feels_how_many_queues_there_are() -> None:
    crowd = Crowd(queues=1_000)
    one = await costs(replace(crowd, queues=1, tasks=crowd.size))
    assert too_dear(one, await costs(crowd)) == {}


@pytest.mark.parametrize("crowd", variants(1_000), ids=lambda crowd: crowd.name)
async def test_nor_where_their_tasks_take_turns(crowd: Crowd) -> None:
    fair = replace(crowd, keys=7)
    one = await costs(replace(fair, types=1, tasks=crowd.size))
    assert too_dear(one, await costs(fair), FAIR_TIMES) == {}


async def test_no_operation_feels_how_many_fair_keys_there_are() -> None:
    one = await costs(Crowd(keys=1, tasks=100_000))
    many = await costs(Crowd(keys=100_000, tasks=100_000))
    assert {name: round(many[name] / one[name], 2) for name in one if many[name] > 1.5 * one[name]} == {}
