"""Moments and spans of time: integer microseconds, UTC.

Integers below 2^53 are exact in every store, in Lua and in JSON, so an instant survives any path unchanged.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Meta

Instant: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)]
"""Microseconds since 1970-01-01T00:00:00Z. What is stored and says anything else cannot be decoded."""

Span: TypeAlias = int
"""Microseconds between two instants."""

MILLISECOND: Final[Span] = 1_000
SECOND: Final[Span] = 1_000_000
MINUTE: Final[Span] = 60 * SECOND
HOUR: Final[Span] = 60 * MINUTE
DAY: Final[Span] = 24 * HOUR

AT_ONCE: Final[Instant] = 0
"""The alarm of what is to be looked at without delay: before that of anything that is due by the clock."""

LATEST: Final[Instant] = 2**53 - 1
"""The last instant that is exact everywhere, in the year 2255."""

LONGEST: Final[Span] = 366 * DAY
"""The longest span that a setting may name."""

LONGEST_DELAY: Final[Span] = 100 * LONGEST
"""The longest time that a task may be put off."""


def span(seconds: float) -> Span:
    """Seconds that are known to be some as a span, rounded to the nearest microsecond.

    What a user says may be anything, and comes in by `validation.span_of`.
    """
    return round(seconds * SECOND)


def seconds(of: Span) -> float:
    """A span as seconds."""
    return of / SECOND


def brief(of: Span) -> str:
    """A span in its largest fitting unit: 850ms, 12s, 5m, 3h, 9d."""
    size = abs(of)
    if size < SECOND:
        return f"{of / 1000:.0f}ms"
    for unit, length, limit in (("s", SECOND, 2 * MINUTE), ("m", MINUTE, 2 * HOUR), ("h", HOUR, 2 * DAY)):
        if size < limit:
            return f"{of / length:.0f}{unit}"
    return f"{of / DAY:.0f}d"
