"""Limits: how many tasks may run at once, and how many may start in a while.

A limit is of a whole queue, of a task type in it, or of each concurrency key in it. What runs is counted from leases: a
task counts from its claim until it is no longer executing, so a crash never leaks a place.

A rate is kept by one instant, `due`: when the next start would be due if starts were evenly spaced. A start is let
through up to `slack` early, and moves `due` on by `interval`. With these, no more than `count` tasks start in any
`period`, wherever it begins, and who looks a little late catches up. Stores do the same arithmetic in Lua and SQL.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import DAY, HOUR, LATEST, MILLISECOND, MINUTE, SECOND, Instant, Span
from fairlead.core.validation import bad_setting, check_count, check_type, shown

NEVER: Final[Instant] = LATEST
"""When a place comes free that only the end of a lease can free."""

_PERIODS: Final = {"s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
_RATE: Final = re.compile(r"([0-9]{1,9})/([smhd])")
_MOST: Final = 1_000_000
_MANY: Final = 20
"""From how many in a period on it costs little to let two start at once, so that who looks late loses nothing."""
_LATE: Final[Span] = 50 * MILLISECOND
"""How late a look may come and still catch up on what it missed."""


class Pace(Struct, frozen=True, array_like=True, gc=False):
    """A rate as a claim carries it."""

    interval: Span
    """How far apart starts are when they are evenly spaced."""
    slack: Span
    """How much earlier than that a start may be."""


class Rate(Struct, frozen=True, array_like=True, gc=False):
    """At most so many starts in any period of this length."""

    count: int
    period: Span

    def __post_init__(self) -> None:
        check_count("rate", self.count, 1, _MOST, bad_setting)
        if type(self.period) is not int or self.period not in _PERIODS.values():
            raise InvalidSettings(f"rate in {shown(self.period)} µs: use a second, minute, hour or day")

    @classmethod
    def parse(cls, text: str) -> Rate:
        """The rate a user wrote, such as `10/s` or `100/m`."""
        match = _RATE.fullmatch(check_type("rate", text, str, "write 10/s or 100/m", bad_setting).strip())
        if match is None or not 1 <= int(match[1]) <= _MOST:
            raise InvalidSettings(
                f"rate {shown(text)} is not a rate; write one per second, minute, hour or day, such as 10/s or 100/m"
            )
        return cls(int(match[1]), _PERIODS[match[2]])

    def __str__(self) -> str:
        letter = next(letter for letter, period in _PERIODS.items() if period == self.period)
        return f"{self.count}/{letter}"

    @property
    def pace(self) -> Pace:
        """What keeps this rate: a few starts may come at once, and all others are far enough apart."""
        burst = 1 + self.count * _LATE // self.period + (self.count >= _MANY)
        interval = -(-self.period // (self.count - burst + 1))
        return Pace(interval, interval * (burst - 1))


def check_rate(name: str, value: object) -> Rate:
    """A rate, which has checked itself when it was made."""
    return check_type(name, value, Rate, "write Rate.parse('10/s')", bad_setting)


def opens_at(pace: Pace, due: Instant | None, now: Instant) -> Instant:
    """From when on the next task may start; at or before `now`, it may at once."""
    return now if due is None or _is_foreign(pace, due, now) else due - pace.slack


def after_start(pace: Pace, due: Instant | None, now: Instant) -> Instant:
    """`due` after a task has started."""
    return (now if due is None or _is_foreign(pace, due, now) else max(now, due)) + pace.interval


def _is_foreign(pace: Pace, due: Instant, now: Instant) -> bool:
    """Whether no start at this pace can have led there: the rate was lower then, or a clock has gone back.

    A start moves it to one such span ahead; clocks that differ a little must not make it look foreign.
    """
    return due > now + _reach(pace)


def _reach(pace: Pace) -> Span:
    return 2 * (pace.slack + pace.interval)


class Limit(Struct, frozen=True, array_like=True, gc=False):
    """How many may run at once, and how they may start; None for as many as come."""

    running: int | None = None
    pace: Pace | None = None

    def horizon(self, now: Instant) -> Instant:
        """The last moment that a start may be put off to; what is put off to a later one was by another clock."""
        return NEVER if self.pace is None else now + _reach(self.pace)


class Limits(Struct, frozen=True, array_like=True):
    """The limits of one queue, as a claim carries them."""

    queue: Limit = Limit()
    types: dict[str, Limit] = {}
    """By task type."""
    key: Limit = Limit(running=1)
    """Of each concurrency key: one at once, unless said otherwise."""

    @property
    def paced(self) -> bool:
        """Whether any of them is a rate."""
        return any(limit.pace is not None for limit in (self.queue, self.key, *self.types.values()))

    @property
    def pause(self) -> Span:
        """How long to wait at most before another look, so as to miss no start for long that a rate lets through."""
        limits = (self.queue, self.key, *self.types.values())
        return max(_LATE, min((limit.pace.interval for limit in limits if limit.pace is not None), default=SECOND))


NO_LIMITS: Final = Limits()
"""What holds for a queue of which nothing is said: the keys of tasks that have one are still kept apart."""


class Meter:
    """One limited thing during one claim: how many run, and when the next start is due."""

    __slots__ = ("_limit", "due", "running")

    def __init__(self, limit: Limit, running: int, due: Instant | None) -> None:
        self._limit = limit
        self.running = running
        self.due = due

    def opens_at(self, now: Instant) -> Instant:
        """From when on one more may start: at or before `now` at once, `NEVER` when one that runs must end first."""
        limit = self._limit
        if limit.running is not None and self.running >= limit.running:
            return NEVER
        return now if limit.pace is None else opens_at(limit.pace, self.due, now)

    def start(self, now: Instant) -> None:
        """Count one more."""
        self.running += 1
        if self._limit.pace is not None:
            self.due = after_start(self._limit.pace, self.due, now)
