"""Limits: rates as people write them, and the arithmetic that keeps them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.core.errors import InvalidSettings, InvalidTask
from fairlead.core.instant import DAY, HOUR, MINUTE, SECOND, Instant
from fairlead.core.queues.limits import NEVER, NO_LIMITS, Limit, Limits, Meter, Pace, Rate, after_start, opens_at
from fairlead.core.queues.queue import QueueSettings

rates = st.builds(Rate, st.integers(1, 300), st.sampled_from([SECOND, MINUTE, HOUR]))


def starts(pace: Pace, looks: list[Instant]) -> list[Instant]:
    """When tasks start of which there are enough, if these are the moments at which someone looks."""
    due: Instant | None = None
    started: list[Instant] = []
    for now in looks:
        while opens_at(pace, due, now) <= now:
            due = after_start(pace, due, now)
            started.append(now)
    return started


@pytest.mark.parametrize(
    ("text", "rate"),
    [("10/s", Rate(10, SECOND)), (" 100/m ", Rate(100, MINUTE)), ("1/h", Rate(1, HOUR)), ("7/d", Rate(7, DAY))],
)
def test_a_rate_is_read_as_it_is_written(text: str, rate: Rate) -> None:
    assert Rate.parse(text) == rate
    assert Rate.parse(str(rate)) == rate


@pytest.mark.parametrize(
    "text", ["", "10", "10/", "/s", "0/s", "-1/s", "1.5/s", "10/w", "10 per second", "9999999999/s"]
)
def test_what_is_no_rate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidSettings, match="such as 10/s or 100/m"):
        Rate.parse(text)


@settings(deadline=None)
@given(rates, st.lists(st.integers(0, 5 * SECOND), min_size=1, max_size=200))
def test_no_period_has_more_starts_than_the_rate_wherever_it_begins(rate: Rate, pauses: list[int]) -> None:
    now, looks = 1_800_000_000_000_000, []
    for pause in pauses:
        now += pause
        looks.append(now)
    started = starts(rate.pace, looks)
    for first in started:
        assert sum(1 for start in started if first <= start < first + rate.period) <= rate.count


@settings(deadline=None)
@given(rates)
def test_who_looks_when_the_next_start_is_due_gets_most_of_the_rate(rate: Rate) -> None:
    """At least nine tenths: the rest is what lets those catch up who look late."""
    step = Limits(queue=Limit(pace=rate.pace)).pause
    looks = [1_800_000_000_000_000 + at * step for at in range(1_000)]
    span = looks[-1] - looks[0] + step
    assert len(starts(rate.pace, looks)) >= int(0.9 * rate.count * span / rate.period)


@settings(deadline=None)
@given(rates, rates, st.integers(0, 10 * SECOND))
def test_a_rate_that_is_raised_counts_at_once_or_soon(before: Rate, now: Rate, waited: int) -> None:
    at = 1_800_000_000_000_000
    due = after_start(before.pace, None, at)
    later = at + waited
    assert opens_at(now.pace, due, later) <= later + 2 * (now.pace.interval + now.pace.slack)


def test_a_meter_says_when_one_more_may_start() -> None:
    meter = Meter(Limit(running=2, pace=Rate(1, SECOND).pace), running=0, due=None)
    assert meter.opens_at(100) == 100
    meter.start(100)
    assert meter.opens_at(100) == 100 + SECOND
    meter.start(100 + SECOND)
    assert meter.opens_at(100 + 2 * SECOND) == NEVER


def test_a_queue_says_its_limits_as_claims_carry_them() -> None:
    assert QueueSettings(bound=5).limits is None
    own = QueueSettings(
        running=3,
        type_running={"slow": 1},
        type_rate={"slow": Rate(1, SECOND)},
        key_running=0,
        key_rate=Rate(2, MINUTE),
    )
    assert own.limits == Limits(
        queue=Limit(3),
        types={"slow": Limit(1, Rate(1, SECOND).pace)},
        key=Limit(None, Rate(2, MINUTE).pace),
    )
    assert QueueSettings(running=3).limits == Limits(queue=Limit(3), key=NO_LIMITS.key)


@pytest.mark.parametrize("said", [{"running": 0}, {"key_running": -1}, {"type_running": {"a": 0}}])
def test_a_limit_that_would_hold_everything_is_refused(said: dict[str, object]) -> None:
    with pytest.raises(InvalidSettings, match="1 or more"):
        QueueSettings(**said)  # type: ignore[arg-type]


def test_a_type_that_is_no_name_is_refused() -> None:
    with pytest.raises(InvalidTask, match="not a valid name"):
        QueueSettings(type_rate={"two words": Rate(1, SECOND)})
