"""The fields of a cron expression: what is written in them, and the values it stands for."""

from __future__ import annotations

import calendar
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

from fairlead.core.errors import InvalidSchedule

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
