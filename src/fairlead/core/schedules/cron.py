"""When something recurs: cron expressions on the wall clock of a time zone, and plain intervals.

    ┌ second (0-59), only with six fields
    │ ┌ minute (0-59)
    │ │ ┌ hour (0-23)
    │ │ │ ┌ day of month (1-31, L for the last)
    │ │ │ │ ┌ month (1-12, JAN-DEC)
    │ │ │ │ │ ┌ day of week (0-7, SUN-SAT, 0 and 7 are Sunday; FRI#2 the second, FRIL or 5L the last of a month)
    * * * * * *

A field is `*`, a value, a range `1-5`, any of these with a step, `*/15` or `9-17/2`, or a list of them. With a day of
month and a day of week that both name days, either is enough, as in every cron; `@hourly`, `@daily`, `@weekly`,
`@monthly` and `@yearly` are short for the usual ones. `every 30 seconds` counts from 1970, or from an anchor.

Around a change to or from summer time, an expression that names hours recurs once for each time that it names: right
after an hour that is skipped, and only in the first pass of an hour that is repeated. One that names no hours, such as
`*/5 * * * *`, goes by the time that passes: it does not pause for the hour that is repeated.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

from fairlead.core.errors import InvalidSchedule
from fairlead.core.fields import ALL_HOURS, Days, days_of, values_of
from fairlead.core.instant import DAY, HOUR, LATEST, LONGEST, MINUTE, SECOND, Instant, Span
from fairlead.core.zones import first_pass, local, passes, repeated, zone_of

_NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_UNITS: Final = {"second": SECOND, "minute": MINUTE, "hour": HOUR, "day": DAY}
_EVERY: Final = re.compile(r"every (?:(\d{1,9}) )?(second|minute|hour|day)s?")
_DAY: Final = timedelta(days=1)
_CYCLE: Final = date(2000, 1, 1), date(2400, 1, 1)
"""After 400 years the calendar repeats, weekdays and all."""
_LAST: Final = date(2255, 6, 1)
"""Days near `LATEST`, beyond which nothing recurs."""


@dataclass(frozen=True, slots=True)
class Every:
    """Recurs at a fixed interval, whatever the wall clocks show."""

    span: Span
    anchor: Instant = 0

    def next_after(self, at: Instant) -> Instant | None:
        """The first time beyond an instant; None when there is none any more."""
        following = at + self.span - (at - self.anchor) % self.span
        return following if following <= LATEST else None


@dataclass(frozen=True, slots=True)
class Cron:
    """Recurs when the wall clock of a zone shows certain times."""

    zone: ZoneInfo
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: Days

    def next_after(self, at: Instant) -> Instant | None:
        """The first time beyond an instant; None when there is none any more."""
        shown = local(at, self.zone)
        wall = shown.replace(microsecond=0, tzinfo=None)
        if self.hours != ALL_HOURS:
            return self._search(wall, at, lambda found: first_pass(found, self.zone))
        first = self._search(wall, at, lambda found: min(passes(found, self.zone), default=None))
        # What a wall clock shows for the first time now may come round again before it shows anything new.
        again = 0 if shown.fold else repeated(wall, self.zone)
        last = self._search(
            wall - timedelta(microseconds=again), at, lambda found: max(passes(found, self.zone), default=None)
        )
        return min((found for found in (first, last) if found is not None), default=None)

    def _search(
        self, wall: datetime, beyond: Instant, instant_of: Callable[[datetime], Instant | None]
    ) -> Instant | None:
        """The instant of the first time after a wall time that lies beyond an instant."""
        following = self._next_wall(wall)
        while following is not None:
            found = instant_of(following)
            if found is not None and found > beyond:
                return found if found <= LATEST else None
            following = self._next_wall(following)
        return None

    def _next_wall(self, wall: datetime) -> datetime | None:
        day = wall.date()
        later = self._later(wall.hour, wall.minute, wall.second) if self.days.admit(day) else None
        if later is None:
            following = next_day(self.days, day, _LAST)
            if following is None:
                return None
            day, later = following, time(self.hours[0], self.minutes[0], self.seconds[0])
        return datetime.combine(day, later)

    def _later(self, hour: int, minute: int, second: int) -> time | None:
        """The next time of the same day."""
        if hour in self.hours:
            if minute in self.minutes and (further := bisect_right(self.seconds, second)) < len(self.seconds):
                return time(hour, minute, self.seconds[further])
            if (further := bisect_right(self.minutes, minute)) < len(self.minutes):
                return time(hour, self.minutes[further], self.seconds[0])
        if (further := bisect_right(self.hours, hour)) < len(self.hours):
            return time(self.hours[further], self.minutes[0], self.seconds[0])
        return None


Recurrence: TypeAlias = Cron | Every


@functools.lru_cache(maxsize=4096)
def parse(text: str, timezone: str = "UTC", anchor: Instant = 0) -> Recurrence:
    """When an expression recurs; raises InvalidSchedule, naming field, value and remedy, if it is none.

    The time zone is for expressions of fields, the anchor for intervals: one of the times they count from.
    """
    zone = zone_of(timezone)
    words = text.split()
    if words and words[0].lower() == "every":
        return Every(_interval(text), anchor)
    if len(words) == 1 and words[0].startswith("@"):
        words = _nickname(words[0]).split()
    if len(words) not in (5, 6):
        raise InvalidSchedule(
            "cron",
            f"cron {text!r} has {len(words)} fields; use five (minute, hour, day of month, month, day of week), six "
            f"with the second first, a word such as @daily, or `every 30 seconds`",
        )
    second, minute, hour, day, month, weekday = words if len(words) == 6 else ("0", *words)
    cron = Cron(
        zone,
        values_of("second", second),
        values_of("minute", minute),
        values_of("hour", hour),
        days_of(day, month, weekday),
    )
    if next_day(cron.days, *_CYCLE) is None:
        raise InvalidSchedule(
            "cron",
            f"cron {text!r} names a day that no year has: day of month {day}, month {month}, day of week {weekday}; "
            f"use L for the last day of a month",
        )
    return cron


def next_day(days: Days, day: date, last: date) -> date | None:
    """The first day after one that is admitted, up to a last one."""
    while day < last:
        day += _DAY
        if day.month not in days.months:
            day = (day.replace(day=28) + timedelta(days=4)).replace(day=1) - _DAY
        elif days.admit(day):
            return day
    return None


def _interval(text: str) -> Span:
    match = _EVERY.fullmatch(" ".join(text.lower().split()))
    span = int(match[1] or 1) * _UNITS[match[2]] if match else 0
    if not 0 < span <= LONGEST:
        raise InvalidSchedule(
            "cron",
            f"cron {text!r} is not an interval; use whole seconds, minutes, hours or days, at most a year: "
            f"`every 30 seconds`",
        )
    return span


def _nickname(word: str) -> str:
    try:
        return _NICKNAMES[word.lower()]
    except KeyError:
        raise InvalidSchedule("cron", f"cron {word!r} is unknown; use one of {', '.join(_NICKNAMES)}") from None
