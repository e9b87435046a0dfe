"""Cron expressions recur when people expect them to, and what is none says what is wrong with it."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import pytest

from fairlead.core.cron import Every, local, parse, zone_of
from fairlead.core.errors import InvalidSchedule
from fairlead.core.instant import LATEST, MINUTE, SECOND, Instant

BERLIN = "Europe/Berlin"


def at(text: str) -> Instant:
    """The instant of a moment with its offset, or in UTC."""
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) * SECOND


def following(cron: str, after: str, count: int, zone: str = "UTC") -> list[str]:
    """The next times as the wall clock of the zone shows them."""
    recurrence, now, found = parse(cron, zone), at(after), []
    for _ in range(count):
        following = recurrence.next_after(now)
        assert following is not None
        now = following
        found.append(f"{local(now, zone_of(zone)):%Y-%m-%d %H:%M:%S %z}".removesuffix(" +0000"))
    return found


@pytest.mark.parametrize(
    ("cron", "times"),
    [
        ("*/20 * * * *", ["2026-01-01 00:20:00", "2026-01-01 00:40:00", "2026-01-01 01:00:00"]),
        ("*/20 * * * * *", ["2026-01-01 00:00:20", "2026-01-01 00:00:40", "2026-01-01 00:01:00"]),
        ("30 15 9 * * *", ["2026-01-01 09:15:30", "2026-01-02 09:15:30"]),
        ("5,50-52 9-17/4 * * *", ["2026-01-01 09:05:00", "2026-01-01 09:50:00", "2026-01-01 09:51:00"]),
        ("0 9 * * MON-FRI", ["2026-01-01 09:00:00", "2026-01-02 09:00:00", "2026-01-05 09:00:00"]),
        ("0 9 * * sat-sun", ["2026-01-03 09:00:00", "2026-01-04 09:00:00", "2026-01-10 09:00:00"]),
        ("0 9 * * 7", ["2026-01-04 09:00:00", "2026-01-11 09:00:00"]),
        ("0 9 * * 5/2", ["2026-01-02 09:00:00", "2026-01-04 09:00:00", "2026-01-09 09:00:00"]),
        ("0 0 1 JAN,jul *", ["2026-07-01 00:00:00", "2027-01-01 00:00:00"]),
        ("0 0 L * *", ["2026-01-31 00:00:00", "2026-02-28 00:00:00", "2026-03-31 00:00:00"]),
        ("0 0 * * FRIL", ["2026-01-30 00:00:00", "2026-02-27 00:00:00"]),
        ("0 0 * * 5L", ["2026-01-30 00:00:00", "2026-02-27 00:00:00"]),
        ("0 0 * * TUE#2", ["2026-01-13 00:00:00", "2026-02-10 00:00:00"]),
        ("0 0 29 2 *", ["2028-02-29 00:00:00", "2032-02-29 00:00:00"]),
        ("0 0 * 2 MON#5", ["2044-02-29 00:00:00", "2072-02-29 00:00:00"]),
        # A day of month and a day of week: either is enough, unless one of them begins with a star.
        ("0 0 13 * FRI", ["2026-01-02 00:00:00", "2026-01-09 00:00:00", "2026-01-13 00:00:00"]),
        ("0 0 */2 * FRI", ["2026-01-09 00:00:00", "2026-01-23 00:00:00"]),
        ("@hourly", ["2026-01-01 01:00:00", "2026-01-01 02:00:00"]),
        ("@daily", ["2026-01-02 00:00:00", "2026-01-03 00:00:00"]),
        ("@weekly", ["2026-01-04 00:00:00", "2026-01-11 00:00:00"]),
        ("@monthly", ["2026-02-01 00:00:00", "2026-03-01 00:00:00"]),
        ("@YEARLY", ["2027-01-01 00:00:00", "2028-01-01 00:00:00"]),
        ("every 90 seconds", ["2026-01-01 00:01:30", "2026-01-01 00:03:00"]),
        ("Every 2 Hours", ["2026-01-01 02:00:00", "2026-01-01 04:00:00"]),
        ("every minute", ["2026-01-01 00:01:00", "2026-01-01 00:02:00"]),
    ],
)
def test_an_expression_recurs_when_it_says(cron: str, times: list[str]) -> None:
    assert following(cron, "2026-01-01T00:00:00", len(times)) == times


@pytest.mark.parametrize(
    ("zone", "cron", "after", "times"),
    [
        # Europe/Berlin: 02:00 to 03:00 is skipped on 29 March 2026 and repeated on 25 October 2026.
        (BERLIN, "30 2 * * *", "2026-03-28T12:00", ["2026-03-29 03:00:00 +0200", "2026-03-30 02:30:00 +0200"]),
        (BERLIN, "*/20 2 * * *", "2026-03-28T12:00", ["2026-03-29 03:00:00 +0200", "2026-03-30 02:00:00 +0200"]),
        (BERLIN, "0 2,3 * * *", "2026-03-28T12:00", ["2026-03-29 03:00:00 +0200", "2026-03-30 02:00:00 +0200"]),
        (BERLIN, "0 */2 * * *", "2026-03-28T23:30", ["2026-03-29 03:00:00 +0200", "2026-03-29 04:00:00 +0200"]),
        (BERLIN, "30 * * * *", "2026-03-29T00:00", ["2026-03-29 01:30:00 +0100", "2026-03-29 03:30:00 +0200"]),
        (BERLIN, "30 2 * * *", "2026-10-24T12:00", ["2026-10-25 02:30:00 +0200", "2026-10-26 02:30:00 +0100"]),
        (BERLIN, "30 2 * * *", "2026-10-25T01:15", ["2026-10-26 02:30:00 +0100", "2026-10-27 02:30:00 +0100"]),
        (
            BERLIN,
            "*/30 * * * *",
            "2026-10-25T00:15",
            [
                "2026-10-25 02:30:00 +0200",
                "2026-10-25 02:00:00 +0100",
                "2026-10-25 02:30:00 +0100",
                "2026-10-25 03:00:00 +0100",
            ],
        ),
        ("America/New_York", "30 2 * * *", "2026-03-08T01:00", ["2026-03-08 03:00:00 -0400"]),
        (
            "America/New_York",
            "30 1 * * *",
            "2026-11-01T01:00",
            ["2026-11-01 01:30:00 -0400", "2026-11-02 01:30:00 -0500"],
        ),
        # Lord Howe moves its clocks by half an hour.
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T00:00", ["2026-10-04 02:30:00 +1100"]),
        (
            "Australia/Lord_Howe",
            "45 1 * * *",
            "2026-04-04T00:00",
            ["2026-04-05 01:45:00 +1100", "2026-04-06 01:45:00 +1030"],
        ),
        # Casablanca goes back for Ramadan and forth after it.
        (
            "Africa/Casablanca",
            "30 2 * * *",
            "2026-02-14T12:00",
            ["2026-02-15 02:30:00 +0100", "2026-02-16 02:30:00"],
        ),
        ("Africa/Casablanca", "30 2 * * *", "2026-03-21T12:00", ["2026-03-22 03:00:00 +0100"]),
        # Havana changes at midnight: an hour of the day before is repeated.
        (
            "America/Havana",
            "30 0 * * *",
            "2026-10-31T12:00",
            ["2026-11-01 00:30:00 -0400", "2026-11-02 00:30:00 -0500"],
        ),
        ("America/Havana", "0 0 8 3 *", "2026-03-07T12:00", ["2026-03-08 01:00:00 -0400"]),
    ],
)
def test_hours_that_are_skipped_or_repeated_count_once(zone: str, cron: str, after: str, times: list[str]) -> None:
    assert following(cron, after, len(times), zone) == times


@pytest.mark.parametrize(
    ("cron", "said"),
    [
        ("60 * * * *", "minute '60' is out of range; use 0 to 59"),
        ("* 24 * * *", "hour '24' is out of range; use 0 to 23"),
        ("* * 0 * *", "day of month '0' is out of range; use 1 to 31"),
        ("* * * FOO *", "month 'FOO' is out of range; use 1 to 12 or JAN to DEC"),
        ("* * * * 8", "day of week '8' is out of range; use 0 to 7 or SUN to SAT"),
        ("5-1 * * * *", "minute '5-1' ends before it begins; write the two parts of it as a list"),
        ("*/0 * * * *", "minute '*/0' has step 0; use a step from 1 to 59"),
        ("a b c d e", "minute 'A' cannot be read; use *,"),
        ("*-5 * * * *", "minute '*-5' cannot be read; use *,"),
        ("1,, * * * *", "minute '' cannot be read; use *,"),
        ("* * * * MON#6", "'MON#6' names week 6 of a month; use 1 to 5, or L"),
        ("0 0 30 2 *", "names a day that no year has: day of month 30, month 2"),
        ("0 0 31 4,6 *", "names a day that no year has"),
        ("* * * *", "has 4 fields; use five"),
        ("", "has 0 fields; use five"),
        ("0 0 0 1 1 * 2026", "has 7 fields; use five"),
        ("@reboot", "'@reboot' is unknown; use one of @hourly, @daily"),
        ("every 0 seconds", "is not an interval; use whole seconds"),
        ("every 0.5 seconds", "is not an interval; use whole seconds"),
        ("every 400 days", "is not an interval; use whole seconds"),
    ],
)
def test_what_is_no_expression_says_which_field_and_what_to_do(cron: str, said: str) -> None:
    with pytest.raises(InvalidSchedule) as raised:
        parse(cron)
    assert said in str(raised.value)
    assert raised.value.field == "cron"


@pytest.mark.parametrize("name", ["Mars/Phobos", "", "../../etc/passwd", "/etc/localtime", "Europe/Berl\0in", "\ud800"])
def test_an_unknown_zone_is_refused_with_what_to_install(name: str) -> None:
    with pytest.raises(InvalidSchedule, match="pip install tzdata") as raised:
        parse("* * * * *", name)
    assert raised.value.field == "timezone"


def test_an_interval_counts_from_its_anchor() -> None:
    start = at("2026-01-01T00:00:07")
    every = parse("every 5 minutes", anchor=start)
    assert every.next_after(start - 1) == start
    assert every.next_after(start) == start + 5 * MINUTE
    assert every.next_after(0) == start % (5 * MINUTE)


def test_nothing_recurs_beyond_the_last_instant() -> None:
    assert parse("* * * * *").next_after(LATEST) is None
    assert parse("0 0 1 1 *").next_after(LATEST - SECOND) is None
    assert Every(SECOND).next_after(LATEST) is None


def test_seconds_of_a_repeated_hour_are_all_there() -> None:
    recurrence, now = parse("*/10 * * * * *", BERLIN), at("2026-10-25T00:00")
    times = []
    while now < at("2026-10-25T02:00"):
        following = recurrence.next_after(now)
        assert following is not None
        now = following
        times.append(now)
    assert {later - earlier for earlier, later in itertools.pairwise(times)} == {10 * SECOND}
