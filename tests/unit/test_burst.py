"""A burst of dead letters is told once, and no two alerts are less than a pause apart."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.dead_letters import Burst
from fairlead.core.instant import MINUTE, SECOND

PAUSE = 15 * MINUTE
LOOK = 10 * SECOND


def told(counts: list[int], threshold: int = 10, step: int = LOOK, pause: int = PAUSE) -> list[int]:
    """At which of the looks, which are so far apart, there was an alert."""
    burst, alerts = Burst(), []
    for number, count in enumerate(counts):
        now = number * step
        after = burst.after(count, threshold, now, pause)
        if after.told_at == now and burst.told_at != now:
            alerts.append(number)
        burst = after
    return alerts


def test_what_reaches_the_threshold_is_told_once_however_long_it_goes_on() -> None:
    assert told([0, 9, 10, *range(11, 2_000)]) == [2]
    assert told([9] * 100) == []
    assert told([500] * 2_000) == [0]


def test_what_hovers_at_the_threshold_is_told_once() -> None:
    assert told([10, 9] * 1_000) == [0]


def test_a_burst_that_has_ended_does_not_count_towards_the_next() -> None:
    quiet = [10] * 91
    assert told([*quiet, *range(11, 20)]) == [0]
    assert told([*quiet, *range(11, 21)]) == [0, 100]


def test_what_is_dealt_with_and_comes_again_is_told_again_after_the_pause() -> None:
    assert told([10, 0, 10]) == [0]
    assert told([10, 0, *[10] * 89]) == [0, 90]
    assert told([10, *[0] * 90, 10]) == [0, 91]


def test_a_burst_of_which_nothing_is_left_is_over() -> None:
    burst = Burst().after(10, 10, 0, PAUSE)
    assert not burst.is_over(PAUSE, PAUSE)
    gone = burst.after(0, 10, LOOK, PAUSE)
    assert not gone.is_over(LOOK, PAUSE) and gone.is_over(PAUSE, PAUSE)


@given(st.lists(st.integers(0, 50), max_size=200), st.integers(1, 30), st.sampled_from([LOOK, MINUTE, PAUSE]))
def test_alerts_are_a_pause_apart_and_there_are_never_fewer_than_the_threshold(
    counts: list[int], threshold: int, step: int
) -> None:
    alerts = told(counts, threshold, step)
    assert all(counts[number] >= threshold for number in alerts)
    assert all((later - earlier) * step >= PAUSE for earlier, later in pairwise(alerts))
    first = next((number for number, count in enumerate(counts) if count >= threshold), None)
    assert alerts[:1] == ([] if first is None else [first])
