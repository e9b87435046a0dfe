"""Fixtures of the engine's tests."""

from __future__ import annotations

import pytest

from tests.engine.building import Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()
