"""The memory store keeps the storage contract."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fairlead.storage.memory import MemoryStore
from fairlead.storage.protocol import Store
from fairlead.testing.builders import a_claim, a_task
from fairlead.testing.clauses.claim import ClaimingClauses
from fairlead.testing.clauses.limits import RateLimitClauses, RunningLimitClauses
from fairlead.testing.clauses.order import OrderClauses
from fairlead.testing.contract import SharingContract, StoreContract
from fairlead.testing.leases import check_leases
from fairlead.testing.machine import compare_with_memory
from fairlead.testing.races import Crew, RaceContract, SharingRaceContract, ThreadCrew
from fairlead.testing.steps import add, ids, opened_memory


class TestMemory(StoreContract, SharingContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        async with opened_memory() as store:
            yield store


@asynccontextmanager
async def opened_by_index() -> AsyncIterator[Store]:
    """A store whose claims go by its index of lane heads, however few lanes there are."""
    yield MemoryStore(few=0)


class TestMemoryByIndex(ClaimingClauses, OrderClauses, RunningLimitClauses, RateLimitClauses, SharingContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        async with opened_by_index() as store:
            yield store


class TestMemoryRaces(RaceContract, SharingRaceContract):
    @pytest.fixture
    def crew(self) -> Crew:
        """Threads that share one store, since it lives in this process only."""
        store = MemoryStore()

        @asynccontextmanager
        async def shared() -> AsyncIterator[Store]:
            yield store

        return ThreadCrew(shared)


def test_memory_agrees_with_memory() -> None:
    compare_with_memory(opened_memory)


def test_memory_agrees_with_memory_by_its_index() -> None:
    compare_with_memory(opened_by_index)


def test_memory_keeps_its_leases() -> None:
    check_leases(opened_memory)


async def test_claims_of_ever_other_types_hide_nothing_from_one_another() -> None:
    """What is kept of who passes over which lanes is bounded, and forgotten when there is too much of it."""
    store = MemoryStore(few=0)
    tasks = [a_task(type=f"type-{number}") for number in range(60)]
    await add(store, *tasks)
    for number in range(60):
        types = [f"type-{number}", *(f"other-{number}-{more}" for more in range(3))]
        assert ids(await store.claim(a_claim(limit=2, types=types))) == [tasks[number].id]
        assert await store.claim(a_claim(limit=2, types=types[1:])) == []
