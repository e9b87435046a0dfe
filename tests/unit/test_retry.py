"""How long to wait before the next attempt."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import MINUTE, SECOND
from fairlead.core.retry import Backoff
from tests.unit.building import backoffs


def test_the_delay_doubles_up_to_its_ceiling() -> None:
    delays = [Backoff().delay(retries, 0.0) for retries in range(11)]

    assert delays == [SECOND * 2**n for n in range(9)] + [5 * MINUTE] * 2


@pytest.mark.parametrize(("luck", "delay"), [(-1.0, 9 * SECOND), (0.0, 10 * SECOND), (0.5, 10_500_000)])
def test_luck_moves_the_delay_by_its_share_of_the_jitter(luck: float, delay: int) -> None:
    assert Backoff(initial=10 * SECOND, jitter=0.1).delay(0, luck) == delay


def test_a_factor_of_one_keeps_the_delay_as_it_is() -> None:
    assert {Backoff(factor=1.0).delay(retries, 0.0) for retries in range(100)} == {SECOND}


def test_no_initial_delay_is_no_delay_ever() -> None:
    assert Backoff(initial=0).delay(50, 1.0) == 0


@given(backoffs, st.integers(0, 10_000), st.floats(-1.0, 1.0))
def test_the_delay_is_never_negative_and_never_above_the_ceiling_and_its_jitter(
    backoff: Backoff, retries: int, luck: float
) -> None:
    assert 0 <= backoff.delay(retries, luck) <= backoff.ceiling * (1.0 + backoff.jitter) + 1


@given(backoffs, st.integers(0, 200))
def test_without_luck_the_delay_never_shrinks(backoff: Backoff, retries: int) -> None:
    assert backoff.delay(retries, 0.0) <= backoff.delay(retries + 1, 0.0)


def test_a_steep_backoff_reaches_its_ceiling_like_any_other() -> None:
    assert Backoff(factor=1_000.0, jitter=0.0).delay(64, 0.0) == 5 * MINUTE


@pytest.mark.parametrize(
    "wrong",
    [
        {"initial": -1},
        {"ceiling": -1},
        {"factor": 0.99},
        {"factor": math.nan},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": math.nan},
        {"factor": math.inf},
        {"factor": 1_001.0},
        {"initial": 2**70},
        {"ceiling": 2**70},
    ],
    ids=repr,
)
def test_a_backoff_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidSettings, match="use"):
        Backoff(**wrong)  # type: ignore[arg-type]
