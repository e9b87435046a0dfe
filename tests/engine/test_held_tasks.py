"""The index by worker that a process makes of the leases when it is asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlead.core.errors import StoreUnavailable
from fairlead.core.identity import WorkerId
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission
from fairlead.core.task import Task
from fairlead.engine.engine import Engine
from fairlead.engine.runtime.clock import ManualClock
from fairlead.engine.worker_tasks import HeldTasks
from fairlead.storage.memory import MemoryStore
from fairlead.storage.values import Filter

SETTINGS = Settings()


class WatchedStore(MemoryStore):
    """Counts listings, and can be out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.listings = 0
        self.broken = False

    async def find(self, matching: Filter, **page: Any) -> list[Task]:
        self.listings += 1
        await asyncio.sleep(0)
        if self.broken:
            raise StoreUnavailable("the store is away")
        return await super().find(matching, **page)


class Crew:
    """An engine whose workers take tasks, and the index of what they hold."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = WatchedStore()
        self.engine = Engine(self.store, SETTINGS, clock=self.clock)
        self.held = HeldTasks(self.store, SETTINGS, self.clock)

    async def take(self, worker: str, registration: str, count: int = 1) -> list[str]:
        await self.engine.submit_many([Submission(type="work")] * count)
        tasks = await self.engine.claim(WorkerId(worker), ["default"], limit=count, registration=registration)
        return [task.id for task in tasks]

    async def of(self, worker: str, registration: str) -> list[str]:
        return [task_id for task_id, _ in await self.held.of(WorkerId(worker), registration)]


async def test_each_worker_finds_its_own_by_registration() -> None:
    crew = Crew()
    first = await crew.take("one", "a", 3)
    other = await crew.take("two", "b")
    again = await crew.take("one", "c")
    await crew.take("one", "")
    await crew.engine.submit(Submission(type="waits"))
    assert await crew.of("one", "a") == sorted(first)
    assert await crew.of("two", "b") == other
    assert await crew.of("one", "c") == again
    assert await crew.of("one", "") == [], "a lease that names no registration is of a worker that came to no server"
    assert await crew.of("two", "a") == []
    assert crew.store.listings == 1


async def test_what_was_claimed_since_is_found_before_one_heartbeat_is_over() -> None:
    crew = Crew()
    assert await crew.of("one", "a") == []
    taken = await crew.take("one", "a")
    assert await crew.of("one", "a") == []
    crew.clock.advance(SETTINGS.heartbeat // 2)
    assert await crew.of("one", "a") == taken


async def test_all_who_ask_at_once_share_one_listing() -> None:
    crew = Crew()
    taken = await crew.take("one", "a")
    found = await asyncio.gather(*[crew.of("one", "a") for _ in range(100)])
    assert found == [taken] * 100
    assert crew.store.listings == 1


async def test_a_store_that_is_away_is_an_error_for_who_asks_and_the_next_one_asks_again() -> None:
    crew = Crew()
    taken = await crew.take("one", "a")
    crew.store.broken = True
    answers = await asyncio.gather(*[crew.of("one", "a") for _ in range(3)], return_exceptions=True)
    assert all(isinstance(answer, StoreUnavailable) for answer in answers)
    crew.store.broken = False
    assert await crew.of("one", "a") == taken


async def test_who_gives_up_waiting_does_not_take_the_listing_from_others() -> None:
    crew = Crew()
    taken = await crew.take("one", "a")
    impatient = asyncio.create_task(crew.of("one", "a"))
    patient = asyncio.create_task(crew.of("one", "a"))
    await asyncio.sleep(0)
    impatient.cancel()
    assert await patient == taken
    with pytest.raises(asyncio.CancelledError):
        await impatient
