"""A server on each kind of store, called without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.storage.open import open_store
from tests.server.serving import Service
from tests.servers.stores import database, empty_place, place, postgres, redis

__all__ = ["database", "in_memory", "place", "postgres", "redis", "service", "store_url"]


@pytest.fixture(params=["memory", "sqlite", "redis", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind."""
    return empty_place(request, tmp_path).url


@pytest.fixture
async def service(store_url: str) -> AsyncIterator[Service]:
    """A server on an empty store of each kind."""
    async with Service(await open_store(store_url)) as service:
        yield service


@pytest.fixture
async def in_memory() -> AsyncIterator[Service]:
    """A server on an empty memory store, for what has nothing to do with stores."""
    async with Service(await open_store("memory://")) as service:
        yield service
