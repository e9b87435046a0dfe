"""Fixtures of the tests of what reaches a store through a server."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.storage.open import open_store
from tests.client.serving import Port


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing from the shell of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith("FAIRLEAD_")]:
        monkeypatch.delenv(name)


@pytest.fixture(params=["memory", "sqlite"])
async def port(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Port]:
    """A server on an empty store."""
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'tasks.db'}"
    port = Port(await open_store(url))
    await port.open()
    try:
        yield port
    finally:
        await port.end()
