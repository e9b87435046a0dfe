"""Moments as people write them, and text that is safe to show."""

from __future__ import annotations

import pytest

from fairlead.cli.times import ago, brief, parse
from fairlead.core.errors import InvalidTask
from fairlead.core.instant import AT_ONCE, DAY, HOUR, MINUTE, SECOND
from fairlead.wire.text import clean, iso, one_line

NOW = 1_800_000_000_000_000


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("-1h", NOW - HOUR),
        ("+30m", NOW + 30 * MINUTE),
        ("-1.5d", NOW - 36 * HOUR),
        ("+2w", NOW + 14 * DAY),
        ("-0s", NOW),
        ("1970-01-02", DAY),
        ("1970-01-01T00:00:01", SECOND),
        ("1970-01-01T02:00:00+01:00", HOUR),
        ("1970-01-01T00:00:00.000001Z", 1),
    ],
)
def test_a_moment_is_relative_or_iso_and_utc_unless_it_says_otherwise(text: str, instant: int) -> None:
    assert parse("--when", text, NOW) == instant


def test_what_is_to_be_done_at_once_is_not_told_as_of_1970() -> None:
    assert ago(AT_ONCE, NOW) == "now"


@pytest.mark.parametrize("text", ["", "now-ish", "1h", "-1y", "1969-12-31", "9999-01-01", "-99999999999999w", "- 1h"])
def test_what_is_no_moment_is_refused_with_the_forms_it_may_have(text: str) -> None:
    with pytest.raises(InvalidTask, match="--when") as caught:
        parse("--when", text, NOW)
    assert "-1h" in str(caught.value)


def test_instants_are_written_so_that_they_sort() -> None:
    assert iso(0) == "1970-01-01T00:00:00.000000Z"
    assert iso(NOW + 1) == "2027-01-15T08:00:00.000001Z"


def test_spans_are_written_in_their_largest_fitting_unit() -> None:
    spans = [850_000, 12 * SECOND, 119 * SECOND, 5 * MINUTE, 3 * HOUR, 9 * DAY]
    assert [brief(span) for span in spans] == ["850ms", "12s", "119s", "5m", "3h", "9d"]
    assert (ago(NOW - HOUR, NOW), ago(NOW + DAY, NOW)) == ("60m ago", "in 24h")


def test_nothing_that_acts_on_a_terminal_gets_through() -> None:
    hostile = "a\x1b]0;title\x07b\x9b31m\r\x7f\u202ec\u2066"
    assert clean(hostile) == "a\\x1b]0;title\\x07b\\x9b31m\\x0d\\x7f\\u202ec\\u2066"
    assert (
        clean("tab\tand\nnewline stay, and so do ü, 漢字 and 🙂") == "tab\tand\nnewline stay, and so do ü, 漢字 and 🙂"
    )
    assert one_line("two\nlines") == "two lines"
