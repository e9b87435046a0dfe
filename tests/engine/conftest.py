"""Fixtures of the engine's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fairlead.storage.open import open_store
from fairlead.storage.protocol import Store
from tests.engine.building import Bench
from tests.servers.stores import Place, database, place, postgres, redis

__all__ = ["any_store", "bench", "database", "place", "postgres", "redis"]


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
async def any_store(place: Place) -> AsyncIterator[Store]:
    """An empty store of each kind."""
    store = await open_store(place.url, journal=place.journal)
    yield store
    await store.close()
