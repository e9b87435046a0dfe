"""The memory store keeps the storage contract."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fairlead.storage.memory import MemoryStore
from fairlead.storage.protocol import Store
from fairlead.testing.contract import StoreContract
from fairlead.testing.leases import check_leases
from fairlead.testing.machine import compare_with_memory
from fairlead.testing.races import Crew, RaceContract, ThreadCrew
from fairlead.testing.steps import opened_memory


class TestMemory(StoreContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        async with opened_memory() as store:
            yield store


class TestMemoryRaces(RaceContract):
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


def test_memory_keeps_its_leases() -> None:
    check_leases(opened_memory)
