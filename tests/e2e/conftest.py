"""Fixtures of the end-to-end tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.sdk.connection import Connection
from tests.e2e import fleet
from tests.e2e.processes import Yard, store_of


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    """An empty store on which the fleet's tasks are submitted and its workers work."""
    for name in [name for name in os.environ if name.startswith("FAIRLEAD_")]:
        monkeypatch.delenv(name)
    former = fleet.app._swap(Connection(store_of(tmp_path), fleet.SETTINGS))
    with Yard(tmp_path).manned() as yard:
        yield yard
    fleet.app.connection().close_inline()
    fleet.app._swap(former)
