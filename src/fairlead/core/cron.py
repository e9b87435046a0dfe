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

import calendar
import functools
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

from fairlead.core.errors import InvalidSchedule
from fairlead.core.instant import DAY, HOUR, LATEST, LONGEST, MINUTE, SECOND, Instant, Span

ALL_HOURS: Final = tuple(range(24))

_MONTHS: Final = {
    "JAN": 1,
    "FEB": 2,
    "MAR": 3,
    "APR": 4,
    "MAY": 5,
    "JUN": 6,
    "JUL": 7,
    "AUG": 8,
    "SEP": 9,
    "OCT": 10,
    "NOV": 11,
    "DEC": 12,
}
_WEEKDAYS: Final = {"SUN": 0, "MON": 1, "TUE": 2, "WED": 3, "THU": 4, "FRI": 5, "SAT": 6}
_MOST_WEEKS: Final = 5
_PART: Final = re.compile(r"(\*|[0-9]{1,4}|[A-Z]{3})(?:-([0-9]{1,4}|[A-Z]{3}))?(?:/([0-9]{1,4}))?")
_NTH: Final = re.compile(r"([0-9]|[A-Z]{3})(?:#([0-9])|(L))")


@dataclass(frozen=True, slots=True)
class Field:
    """One kind of field: its name, its limits and the words for its values."""

    name: str
    least: int
    most: int
    words: Mapping[str, int]

    @property
    def limits(self) -> str:
        """What it takes, for people."""
        names = list(self.words)
        return f"{self.least} to {self.most}" + (f" or {names[0]} to {names[-1]}" if names else "")


_FIELDS: Final = {
    field.name: field
    for field in (
        Field("second", 0, 59, {}),
        Field("minute", 0, 59, {}),
        Field("hour", 0, 23, {}),
        Field("day of month", 1, 31, {}),
        Field("month", 1, 12, _MONTHS),
        Field("day of week", 0, 7, _WEEKDAYS),
    )
}


@dataclass(frozen=True, slots=True)
class Days:
    """Which days of the calendar an expression names."""

    months: tuple[int, ...]
    numbers: tuple[int, ...]
    """Days of the month."""
    last: bool
    """Whether the last day of a month is one of them."""
    weekdays: frozenset[int]
    """From 0, Sunday."""
    nth: frozenset[tuple[int, int]]
    """Weekdays and which of a month: 1 for the first, -1 for the last."""
    either: bool
    """Whether a day of month or a day of week is enough; else it takes both."""

    def admit(self, day: date) -> bool:
        """Whether this is one of the days."""
        if day.month not in self.months:
            return False
        if self.either:
            return self._by_number(day) or self._by_weekday(day)
        return self._by_number(day) and self._by_weekday(day)

    def _by_number(self, day: date) -> bool:
        return day.day in self.numbers or (self.last and day.day == _length(day))

    def _by_weekday(self, day: date) -> bool:
        weekday = day.isoweekday() % 7
        if weekday in self.weekdays:
            return True
        if not self.nth:
            return False
        is_last = day.day + 7 > _length(day)
        return (weekday, (day.day + 6) // 7) in self.nth or (is_last and (weekday, -1) in self.nth)


def days_of(day: str, month: str, weekday: str) -> Days:
    """The days that these three fields name."""
    numbers: set[int] = set()
    last = False
    for part in day.upper().split(","):
        if part == "L":
            last = True
        else:
            numbers.update(_range(_FIELDS["day of month"], part))
    weekdays: set[int] = set()
    nth: set[tuple[int, int]] = set()
    for part in weekday.upper().split(","):
        if match := _NTH.fullmatch(part):
            nth.add(_nth(part, *match.groups()))
        else:
            weekdays.update(value % 7 for value in _range(_FIELDS["day of week"], part))
    return Days(
        months=values_of("month", month),
        numbers=tuple(sorted(numbers)),
        last=last,
        weekdays=frozenset(weekdays),
        nth=frozenset(nth),
        # A field that begins with a star names no days, even with a step: the other one decides.
        either=not day.startswith("*") and not weekday.startswith("*"),
    )


def values_of(name: str, text: str) -> tuple[int, ...]:
    """The values that a field stands for, in order."""
    return tuple(sorted({value for part in text.upper().split(",") for value in _range(_FIELDS[name], part)}))


def _range(field: Field, part: str) -> range:
    """The values of one part of a list: `*`, `5`, `1-5`, `*/15`, `9-17/2`."""
    match = _PART.fullmatch(part)
    if match is None or (match[1] == "*" and match[2]):
        raise InvalidSchedule(
            "cron",
            f"cron: {field.name} {part!r} cannot be read; use *, a value, a range such as "
            f"{field.least}-{field.least + 1}, with a step such as */2, or a list of these",
        )
    begin, end, step = match.groups()
    first = field.least if begin == "*" else _value(field, begin)
    open_end = field.most if begin == "*" or step else first
    last = open_end if end is None else _value(field, end)
    if field.name == "day of week":
        # Sunday ends a week as well as it begins one. A star must not name it twice.
        last = 7 if end is not None and last == 0 and first > 0 else 6 if begin == "*" else last
    if last < first:
        raise InvalidSchedule(
            "cron", f"cron: {field.name} {part!r} ends before it begins; write the two parts of it as a list"
        )
    if step is not None and not 1 <= int(step) <= field.most:
        raise InvalidSchedule("cron", f"cron: {field.name} {part!r} has step {step}; use a step from 1 to {field.most}")
    return range(first, last + 1, int(step or 1))


def _nth(part: str, weekday: str, number: str | None, last: str | None) -> tuple[int, int]:
    week = -1 if last else int(number or 0)
    if week != -1 and not 1 <= week <= _MOST_WEEKS:
        raise InvalidSchedule(
            "cron", f"cron: day of week {part!r} names week {number} of a month; use 1 to {_MOST_WEEKS}, or L"
        )
    return _value(_FIELDS["day of week"], weekday) % 7, week


def _value(field: Field, text: str) -> int:
    value = field.words.get(text, -1) if text.isalpha() else int(text)
    if not field.least <= value <= field.most:
        raise InvalidSchedule("cron", f"cron: {field.name} {text!r} is out of range; use {field.limits}")
    return value


def _length(day: date) -> int:
    """How many days the month of a day has."""
    return calendar.monthrange(day.year, day.month)[1]


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@functools.lru_cache(maxsize=256)
def zone_of(name: str) -> ZoneInfo:
    """The time zone with this name."""
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise InvalidSchedule(
            "timezone",
            f"timezone {name!r} is unknown; use a name such as UTC or Europe/Berlin, and pip install tzdata if this "
            f"system has no time zones",
        ) from None


def local(at: Instant, zone: ZoneInfo) -> datetime:
    """What a wall clock in the zone shows at an instant; `fold` is 1 when it shows it for the second time."""
    return (_EPOCH + timedelta(microseconds=at)).astimezone(zone)


def passes(wall: datetime, zone: ZoneInfo) -> tuple[Instant, ...]:
    """The instants at which a wall clock shows this: one, two in an hour that is repeated, none in a skipped one."""
    first, second = _readings(wall, zone)
    if first == second:
        return (first,)
    return (first, second) if first < second else ()


def first_pass(wall: datetime, zone: ZoneInfo) -> Instant:
    """When a wall clock first shows this; in an hour that is skipped, the moment at which it is."""
    first, second = _readings(wall, zone)
    return first if first <= second else _change(second, first, zone)


def repeated(wall: datetime, zone: ZoneInfo) -> Span:
    """How long after it was first shown a wall clock shows this again; 0 for what is shown once or never."""
    first, second = _readings(wall, zone)
    return max(0, second - first)


def _readings(wall: datetime, zone: ZoneInfo) -> tuple[Instant, Instant]:
    """The instants that this is before and after a change of the offset that is near; the same if none is."""
    return _instant(wall.replace(tzinfo=zone, fold=0)), _instant(wall.replace(tzinfo=zone, fold=1))


def _instant(moment: datetime) -> Instant:
    return (moment - _EPOCH) // _MICROSECOND


def _change(before: Instant, after: Instant, zone: ZoneInfo) -> Instant:
    """The first instant with the offset that the later of two has."""
    offset = local(after, zone).utcoffset()
    low, high = before // SECOND, after // SECOND
    while high - low > 1:
        middle = (low + high) // 2
        if local(middle * SECOND, zone).utcoffset() == offset:
            high = middle
        else:
            low = middle
    return high * SECOND


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
