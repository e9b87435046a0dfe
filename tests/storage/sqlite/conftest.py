"""Fixtures of the SQLite store's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.storage.sqlite.store import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is, or will be."""
    return tmp_path / "tasks.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    yield store
    await store.close()
