"""What an operation costs with many lanes beside one, counted in steps of SQLite's machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from msgspec.structs import replace

from fairlead.core.events import Completed
from fairlead.core.queues.promotion import Place
from fairlead.core.task import Task
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.storage.values import Stretch
from fairlead.testing.builders import NOW, a_settle, a_task
from tests.storage.lane_counts import Crowd, variants

Result = TypeVar("Result")

TIMES = {"claim(100)": 4.0, "submit(100)": 4.0, "submit(64)": 3.0, "settle(100)": 2.2}
"""How many times the steps of one lane an operation may take that writes in a hundred lanes what it wrote in one."""
SINGLE = 2.0
"""How many times any other may."""


class Counted:
    """A store whose steps are counted."""

    def __init__(self, path: Path) -> None:
        self.store = SqliteStore(path, blocking=True, synchronous="OFF")
        self._steps = 0
        for runner in (self.store._writer, self.store._reader):
            runner._connection.set_progress_handler(self._step, 1)  # type: ignore[attr-defined]

    async def steps(self, operation: Callable[[], Awaitable[Result]]) -> tuple[int, Result]:
        """How many steps an operation takes, and its result."""
        before = self._steps
        result = await operation()
        return self._steps - before, result

    def _step(self) -> int:
        self._steps += 1
        return 0


@asynccontextmanager
async def counted(path: Path) -> AsyncIterator[Counted]:
    made = Counted(path)
    try:
        yield made
    finally:
        await made.store.close()


async def costs(crowd: Crowd, path: Path) -> dict[str, int]:
    """The steps of each operation, once claims have met what they pass over."""
    async with counted(path) as made:
        store = made.store
        await crowd.fill(store)
        await store.claim(crowd.claim(crowd.size // 4))
        found: dict[str, int] = {}
        found["claim(1)"], _ = await made.steps(lambda: store.claim(crowd.claim(1)))
        found["claim(100)"], tasks = await made.steps(lambda: store.claim(crowd.claim(100)))
        assert len(tasks) == 100
        changes = [a_settle(task, Completed()) for task in tasks]
        found["settle(100)"], _ = await made.steps(lambda: store.apply(changes))
        more = [_another(crowd, number) for number in range(165)]
        for number in range(64):
            await store.add([more[number]], now=NOW, bounds={})
        # The one that finds no room among those that have arrived files them all.
        found["submit(64)"], _ = await made.steps(lambda: store.add(more[64:65], now=NOW, bounds={}))
        found["submit(1)"], _ = await made.steps(lambda: store.add([_another(crowd, 0)], now=NOW, bounds={}))
        bounds = {crowd.queue_of(number): 1_000_000 for number in range(65, 165)}
        await store.add([], now=NOW, bounds=bounds)
        found["submit(100)"], _ = await made.steps(lambda: store.add(more[65:], now=NOW, bounds={}))
        found["submit(10), bounded"], _ = await made.steps(
            lambda: store.add([_another(crowd, 0) for _ in range(10)], now=NOW, bounds={crowd.queue_of(0): 1_000_000})
        )
        lane = more[0].lane
        stretch = Stretch(lane, Place(0, more[0].id), Place(NOW, more[0].id))
        found["count"], _ = await made.steps(lambda: store.count([stretch]))
        found["usage"], _ = await made.steps(lambda: store.usage(lane.queue, lane.type, None))
        found["tally, by lane"], tally = await made.steps(store.tally)
        found["tally, by lane"] //= len(tally.lanes)
        return found


def _another(crowd: Crowd, number: int) -> Task:
    return a_task(queue=crowd.queue_of(number), type=crowd.type_of(number), ready_at=NOW)


def too_dear(one: dict[str, int], many: dict[str, int]) -> dict[str, float]:
    """The operations that take more steps than they may, and how many times those of one lane."""
    ratios = {name: many[name] / one[name] for name in one}
    return {name: round(ratio, 1) for name, ratio in ratios.items() if ratio > TIMES.get(name, SINGLE)}


@pytest.mark.parametrize("crowd", variants(1_000), ids=lambda crowd: crowd.name)
async def test_no_operation_feels_how_many_types_there_are(crowd: Crowd, tmp_path: Path) -> None:
    one = await costs(replace(crowd, types=1, tasks=crowd.size), tmp_path / "one.db")
    many = await costs(crowd, tmp_path / "many.db")
    assert too_dear(one, many) == {}


async def test_no_operation_feels_how_many_queues_there_are(tmp_path: Path) -> None:
    crowd = Crowd(queues=1_000)
    one = await costs(replace(crowd, queues=1, tasks=crowd.size), tmp_path / "one.db")
    many = await costs(crowd, tmp_path / "many.db")
    assert too_dear(one, many) == {}
