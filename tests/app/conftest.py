"""Fixtures of the SDK's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fairlead import Fairlead
from fairlead.core.settings import Settings
from tests.servers.stores import Place, database, place, postgres, redis

__all__ = ["any_app", "database", "place", "postgres", "redis"]


@pytest.fixture
async def any_app(place: Place) -> AsyncIterator[Fairlead]:
    """An app on an empty store of each kind."""
    app = Fairlead(place.url, journal=place.journal, settings=Settings())
    yield app
    await app.close()
