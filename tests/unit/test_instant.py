"""Moments and spans of time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairlead
from fairlead.core.instant import DAY, HOUR, LATEST, MILLISECOND, MINUTE, SECOND, seconds, span


def test_the_units_build_on_each_other() -> None:
    assert (MILLISECOND, SECOND, MINUTE, HOUR, DAY) == (10**3, 10**6, 60 * 10**6, 3600 * 10**6, 86_400 * 10**6)


@pytest.mark.parametrize(
    ("given", "made"), [(0, 0), (1, SECOND), (0.1, 100_000), (1e-6, 1), (0.3, 300_000), (-2, -2 * SECOND)]
)
def test_seconds_become_the_nearest_microsecond(given: float, made: int) -> None:
    assert span(given) == made


@given(st.integers(-LATEST, LATEST))
def test_an_instant_survives_the_way_through_seconds_to_within_a_microsecond(at: int) -> None:
    assert abs(span(seconds(at)) - at) <= 1


@given(st.integers(-(2**43), 2**43))
def test_a_span_of_months_survives_the_way_through_seconds(at: int) -> None:
    assert span(seconds(at)) == at


def test_every_instant_is_exact_as_a_double() -> None:
    assert int(float(LATEST)) == LATEST
    assert int(float(LATEST - 1)) == LATEST - 1


def test_only_what_has_been_validated_becomes_a_span_unchecked() -> None:
    """What a user says comes in by `validation.span_of`; what a server or a configuration says is known to be right."""
    package = Path(fairlead.__file__).parent
    imports = re.compile(r"^from fairlead\.core\.instant import [^\n]*\bspan\b", re.MULTILINE)
    found = {path.relative_to(package).as_posix() for path in package.rglob("*.py") if imports.search(path.read_text())}
    assert found == {
        "client/worker_protocol.py",
        "client/source.py",
        "app/config.py",
        "server/routes/worker_results.py",
        "server/routes/worker_protocol.py",
        "admin/workers/api.py",
        "admin/tenants/api.py",
        "admin/stats.py",
        "wire/task_shown.py",
        "worker/keeper/lease_renewal.py",
    }
