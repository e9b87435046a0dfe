"""How the queues stand is counted once for all who ask at the same time, and shown as it was made."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.core.errors import StoreUnavailable
from fairlead.core.submission import Submission
from fairlead.engine.queue_ages import QueueAges
from fairlead.engine.stats import Stats
from fairlead.server.live.queue_depths import Depths, StatsAnswers
from fairlead.storage.memory import MemoryStore
from fairlead.storage.values import Tally


class Counting(MemoryStore):
    """Counts how often it was asked for its tally, which it gives when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.fails = False
        self.open = asyncio.Event()

    async def tally(self) -> Tally:
        self.asked += 1
        await self.open.wait()
        if self.fails:
            raise StoreUnavailable("the store is away")
        return await super().tally()


async def asking(depths: Depths, number: int) -> list[asyncio.Task[Stats]]:
    """So many who have asked."""
    tasks = [asyncio.create_task(depths.stats()) for _ in range(number)]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


async def test_those_who_ask_while_it_is_counted_are_told_of_the_same_count() -> None:
    store = Counting()
    engine = AdminEngine(store)
    waiting = await asking(Depths(engine), 3)
    store.open.set()
    first, *others = await asyncio.gather(*waiting)
    assert store.asked == 1
    assert all(other is first for other in others)
    await engine.close()


async def test_who_leaves_takes_the_count_from_nobody() -> None:
    store = Counting()
    engine = AdminEngine(store)
    left, stays = await asking(Depths(engine), 2)
    left.cancel()
    await asyncio.sleep(0)
    store.open.set()
    assert isinstance(await stays, Stats)
    assert left.cancelled()
    await engine.close()


async def test_an_error_is_told_to_all_who_asked_and_the_next_asks_anew() -> None:
    store = Counting()
    engine, store.fails = AdminEngine(store), True
    depths = Depths(engine)
    waiting = await asking(depths, 2)
    store.open.set()
    for each in waiting:
        with pytest.raises(StoreUnavailable, match="away"):
            await each
    store.fails = False
    assert isinstance(await depths.stats(), Stats)
    await engine.close()


async def test_what_is_shown_is_made_once_of_the_same_count_and_for_one_queue() -> None:
    engine = AdminEngine(MemoryStore())
    await engine.submit(Submission(type="echo"))
    stats, again, ages, shown = await engine.stats(), await engine.stats(), QueueAges(), StatsAnswers()
    answer = shown.show(stats, ages, None)
    assert shown.show(stats, ages, None) is answer
    assert shown.show(stats, QueueAges(), None) is not answer
    assert shown.show(again, ages, None) is not answer
    assert bytes(shown.show(again, ages, "other")) != bytes(answer)
    assert b'"by_queue":{}' in bytes(shown.show(again, ages, "other"))
    await engine.close()
