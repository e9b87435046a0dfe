"""Next times agree with looking at every single minute, in zones that change their clocks in every way there is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairlead.core.cron import ALL_HOURS, Cron, parse
from fairlead.core.instant import DAY, MINUTE, Instant

ZONES = {
    "UTC": [datetime(2026, 6, 1)],
    "Europe/Berlin": [datetime(2026, 3, 28), datetime(2026, 10, 24)],
    "America/New_York": [datetime(2026, 3, 7), datetime(2026, 10, 31)],
    "Australia/Lord_Howe": [datetime(2026, 4, 3), datetime(2026, 10, 2)],
    "Africa/Casablanca": [datetime(2026, 2, 14), datetime(2026, 3, 21)],
    "America/Havana": [datetime(2026, 3, 7), datetime(2026, 10, 31)],
    "Pacific/Apia": [datetime(2011, 12, 29)],  # Skipped a whole day.
    "Asia/Kathmandu": [datetime(2026, 1, 1)],
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS = 3

field = st.sampled_from


def crons() -> st.SearchStrategy[str]:
    minutes = field(["*", "0", "30", "59", "*/5", "*/7", "15,45", "10-20/3"])
    hours = field(["*", "0", "1", "2", "3", "23", "*/2", "1-3", "0,2,12"])
    days = field(["*", "*", "*", "L", "1", "8", "29", "*/2"])
    months = field(["*", "*", "3", "10", "OCT-DEC"])
    weekdays = field(["*", "*", "*", "SUN", "MON-FRI", "SUNL", "SUN#2"])
    return st.tuples(minutes, hours, days, months, weekdays).map(" ".join)


@st.composite
def windows(draw: st.DrawFn) -> tuple[str, Instant]:
    zone = draw(st.sampled_from(sorted(ZONES)))
    start = draw(st.sampled_from(ZONES[zone])) + timedelta(minutes=draw(st.integers(0, 2 * 24 * 60)))
    return zone, (start.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def shown(at: Instant, zone: ZoneInfo) -> datetime:
    return (_EPOCH + timedelta(microseconds=at)).astimezone(zone)


def matches(cron: Cron, wall: datetime) -> bool:
    return wall.hour in cron.hours and wall.minute in cron.minutes and cron.days.admit(wall.date())


def scanned(cron: Cron, begin: Instant, end: Instant) -> Iterator[Instant]:
    """The times in between, found by looking at every minute that passes, and at those that clocks leave out."""
    for at in range(begin - begin % MINUTE + MINUTE, end + 1, MINUTE):
        before = shown(at - MINUTE, cron.zone).replace(tzinfo=None)
        now = shown(at, cron.zone)
        wall = now.replace(tzinfo=None)
        if cron.hours == ALL_HOURS:
            if matches(cron, wall):
                yield at
            continue
        left_out = range(1, (wall - before) // timedelta(minutes=1))
        if (matches(cron, wall) and not now.fold) or any(
            matches(cron, before + timedelta(minutes=step)) for step in left_out
        ):
            yield at


def computed(cron: Cron, begin: Instant, end: Instant) -> Iterator[Instant]:
    at = cron.next_after(begin)
    while at is not None and at <= end:
        yield at
        at = cron.next_after(at)


@settings(deadline=None, max_examples=60)
@given(crons(), windows())
@example("30 2 * * *", ("Europe/Berlin", 1_774_659_600_000_000))
@example("0 12 30 12 *", ("Pacific/Apia", 1_325_152_800_000_000))
def test_next_times_are_those_of_a_scan_of_every_minute(text: str, window: tuple[str, Instant]) -> None:
    zone, begin = window
    cron = parse(text, zone)
    assert isinstance(cron, Cron)
    end = begin + _DAYS * DAY
    assert list(computed(cron, begin, end)) == list(scanned(cron, begin, end))


@settings(deadline=None, max_examples=300)
@given(crons(), windows(), st.integers(0, MINUTE))
def test_the_next_time_is_beyond_and_the_same_from_anywhere_before_it(
    text: str, window: tuple[str, Instant], more: int
) -> None:
    zone, begin = window
    cron, at = parse(text, zone), begin + more
    following = cron.next_after(at)
    assert following is not None
    assert following > at
    assert cron.next_after((at + following) // 2) == following
    assert cron.next_after(following - 1) == following
    further = cron.next_after(following)
    assert further is not None
    assert further > following


@pytest.mark.soak
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca"])
@pytest.mark.parametrize("text", ["*/15 * * * *", "15 1-3 * * *"])
def test_a_whole_year_is_that_of_a_scan(text: str, zone: str) -> None:
    cron = parse(text, zone)
    assert isinstance(cron, Cron)
    begin = 1_767_225_600_000_000
    end = begin + 366 * DAY
    assert list(computed(cron, begin, end)) == list(scanned(cron, begin, end))
