"""Fixtures of the worker's tests."""

from __future__ import annotations

import pytest

from tests.worker.building import Crew


@pytest.fixture
def crew() -> Crew:
    return Crew()
