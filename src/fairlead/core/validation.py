"""What a value may be: its type, to the letter, its range, and how deep its JSON is.

Each function that checks gives back the value, or refuses it with an error that names the option, the value and the
remedy. Types are exact because what is stored must be readable again: the codec refuses a subclass of `int` or `str`
when it writes, and a number with a fraction where a whole one is kept when it reads. The error is made by `refuse`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from itertools import accumulate
from typing import Any, Final, TypeAlias, TypeVar

from fairlead.core.errors import FairleadError, InvalidSettings, InvalidTask
from fairlead.core.errors import shown as shown
from fairlead.core.instant import LATEST, LONGEST, LONGEST_DELAY, SECOND, Instant, Span
from fairlead.core.secret_mask import masked

Kind = TypeVar("Kind")
Word = TypeVar("Word", bound=StrEnum)

Duration: TypeAlias = float | timedelta
"""A span as users write it: a number of seconds, or a timedelta."""

Refuse: TypeAlias = Callable[[str, str], FairleadError]
"""Makes the error from the name of the option and the message."""

TEXT_LIMIT: Final = 500
_FAR: Final = LATEST // SECOND
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def bad_setting(name: str, message: str) -> InvalidSettings:
    """The error of a setting."""
    del name
    return InvalidSettings(message)


def check_login(name: str, url: str) -> None:
    """Raise InvalidSettings if it is not clear where the password in a URL ends.

    What comes behind a `/`, `?`, `#` or a second `@` in it would pass for a host or an option, and be told as one.
    """
    # Not by urllib, which of newer Pythons takes several hosts with brackets for an error.
    _, mark, rest = url.partition("://" if "://" in url else ":")
    authority = rest if mark == "://" else ""
    for end in "/?#":
        authority = authority.partition(end)[0]
    path, _, query = rest[len(authority) :].partition("?")
    _, login, hosts = authority.rpartition("@")
    strayed = "@" in path or "#" in url or (login and "@" in query)
    if strayed or (not login and not all(map(_has_port, hosts.split(",")))):
        raise InvalidSettings(
            f"{name} {masked(url)!r} cannot be read: its port is not a number, or its password has a character that "
            f"ends it; write @ / ? # : in a password as %40 %2F %3F %23 %3A"
        )


def check_type(name: str, value: object, kind: type[Kind], remedy: str, refuse: Refuse = InvalidTask) -> Kind:
    """A value of exactly this type."""
    if type(value) is not kind:
        raise refuse(name, f"{name} {shown(value)} is not {_a(kind.__name__)}; {remedy}")
    return value


def check_count(name: str, value: object, least: int, most: int, refuse: Refuse = InvalidTask) -> int:
    """A whole number in a range."""
    limits = f"use {'a whole number from ' if type(value) is not int else ''}{least:,} to {most:,}"
    if type(value) is not int:
        raise refuse(name, f"{name} {shown(value)} is not a whole number; {limits}")
    if not least <= value <= most:
        raise refuse(name, f"{name} {shown(value)} is out of range; {limits}")
    return value


def check_number(name: str, value: object, least: float, most: float, refuse: Refuse = InvalidTask) -> float:
    """A number in a range."""
    if type(value) not in (int, float):
        raise refuse(name, f"{name} {shown(value)} is not a number; use one from {least:g} to {most:g}")
    number: float = value  # type: ignore[assignment]
    if not least <= number <= most:
        raise refuse(name, f"{name} {shown(value)} is out of range; use {least:g} to {most:g}")
    return number


def check_flag(name: str, value: object, refuse: Refuse = InvalidTask) -> bool:
    """True or False."""
    if type(value) is not bool:
        raise refuse(name, f"{name} {shown(value)} is neither true nor false; use True or False")
    return value


def check_span(name: str, value: object, least: Span, most: Span, refuse: Refuse = InvalidTask) -> Span:
    """A span in microseconds, as it is kept."""
    if type(value) is not int:
        raise refuse(name, f"{name} {shown(value)} is not a whole number of microseconds; use seconds as a number")
    if not least <= value <= most:
        lowest = "0 or more" if least == 0 else "more than 0" if least == 1 else f"{shown_span(least)} or more"
        raise refuse(name, f"{name} of {shown_span(value)} is out of range; use {lowest}, and at most {_longest(most)}")
    return value


def check_instant(name: str, value: object, refuse: Refuse = InvalidTask) -> Instant:
    """A moment in microseconds, as it is kept."""
    if type(value) is not int or not 0 <= value <= LATEST:
        raise refuse(name, f"{name} {shown(value)} µs is out of range; use a moment of the years 1970 to 2255")
    return value


def check_text(name: str, value: object, most: int = TEXT_LIMIT, refuse: Refuse = InvalidTask) -> str:
    """A text that is not empty, of so many characters at most, in valid Unicode."""
    if type(value) is str and value.isascii() and 0 < len(value) <= most:
        return value
    if type(value) is not str:
        raise refuse(name, f"{name} {shown(value)} is not a text; write it as a str of 1 to {most} characters")
    if not 1 <= len(value) <= most:
        raise refuse(name, f"{name} has {len(value)} characters; use 1 to {most}")
    if not is_unicode(value):
        raise refuse(name, f"{name} {shown(value)} is not valid Unicode; remove its lone surrogates")
    return value


def is_unicode(text: str) -> bool:
    """Whether a text is valid Unicode, so that it can be written down."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_several(name: str, values: object, kind: type[Collection[Any]], most: int) -> None:
    """A collection of exactly this type with so many entries at most; what they are is for others to check."""
    if type(values) is not kind:
        raise InvalidTask(name, f"{name} {shown(values)} is not {_a(kind.__name__)}; write a list of names")
    if len(values) > most:
        raise InvalidTask(name, f"{name} has {len(values):,} entries; {most:,} is the most")


def span_of(name: str, said: object, refuse: Refuse = InvalidTask) -> Span:
    """The span that a user means by a number of seconds or a timedelta; what is more than nothing never becomes it."""
    if type(said) in (int, float) and -_FAR <= said <= _FAR:  # type: ignore[operator]
        return round(said * SECOND) or int(said > 0)  # type: ignore[operator]
    if isinstance(said, timedelta):
        return said // _MICROSECOND
    if type(said) is not int and not (isinstance(said, float) and math.isfinite(said)):
        raise refuse(name, f"{name} {shown(said)} is not a number of seconds; use one such as 2.5, or a timedelta")
    if abs(said) > _FAR:
        raise refuse(name, f"{name} {shown(said)} is out of range; use a number of seconds within a century")
    return round(float(said) * SECOND if isinstance(said, float) else said * SECOND) or int(said > 0)


def delay_of(name: str, said: object, refuse: Refuse = InvalidTask) -> Span:
    """The time that a user means to put something off by."""
    return check_span(name, span_of(name, said, refuse), 0, LONGEST_DELAY, refuse)


def setting_of(name: str, said: object, least: Span = 0) -> Span:
    """The span that a user means by a setting, of a year at most."""
    return check_span(name, span_of(name, said, bad_setting), least, LONGEST, bad_setting)


def several_of(name: str, said: object, remedy: str, refuse: Refuse = InvalidTask) -> list[Any]:
    """The entries that a user means by a list, a set or anything else that has some; a text is no list of letters."""
    if isinstance(said, str):
        raise refuse(name, f"{name} {shown(said)} is one word; {remedy}")
    if isinstance(said, bytes | Mapping) or not isinstance(said, Iterable):
        raise refuse(name, f"{name} {shown(said)} is not a list; {remedy}")
    return [text_of(each) for each in said]


def text_of(said: object) -> object:
    """The text of a member of an enum of texts; anything else as it is."""
    return said.value if isinstance(said, str) and isinstance(said, Enum) else said


def member_of(name: str, said: object, words: type[Word], refuse: Refuse = InvalidTask) -> Word:
    """The member of an enum that a user means by its word."""
    if isinstance(said, str) and said in list(words):
        return words(said)
    raise refuse(name, f"{name} {shown(said)} is unknown; use one of {', '.join(words)}")


def instant_of(name: str, said: object, refuse: Refuse = InvalidTask) -> Instant:
    """The moment that a user means by a datetime."""
    if not isinstance(said, datetime):
        raise refuse(
            name,
            f"{name} {shown(said)} is not a datetime; use one with a time zone, such as datetime.now(timezone.utc)",
        )
    try:
        if said.utcoffset() is not None:
            return (said - _EPOCH) // _MICROSECOND
    except Exception as error:
        raise refuse(name, f"{name} {shown(said)} has a time zone that cannot be asked: {shown(error)}") from None
    raise refuse(name, f"{name} {shown(said)} has no time zone; use datetime.now(timezone.utc)")


def shown_span(value: Span) -> str:
    """A span as a message shows it."""
    return f"{value / SECOND:g} s" if abs(value) <= LATEST else "far too many seconds"


def _has_port(host: str) -> bool:
    """Whether what stands behind the colon of `host:port`, if there is one, is a number or nothing."""
    _, colon, port = host.rpartition("]")[2].rpartition(":")
    return not colon or not port or (port.isascii() and port.isdigit())


def _longest(most: Span) -> str:
    years, rest = divmod(most, LONGEST)
    if rest or not years:
        return shown_span(most)
    return "a year" if years == 1 else f"{years} years"


def _a(name: str) -> str:
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


# One step for each letter: no text can make it go back.
_TEXTS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_OTHERS: Final = bytes(byte for byte in range(256) if byte not in b"{}[]")
_UNMARKED: Final = bytes(byte for byte in _OTHERS if byte != ord('"'))
_STEPS: Final = tuple(1 if byte in b"{[" else -1 for byte in range(256))
_PEELED: Final = 4
"""How many levels are taken off at once."""


def is_deeper(text: bytes, most: int) -> bool:
    """Whether valid JSON has more than so many objects and lists inside each other; takes time in step with its length.

    Nearly all JSON has fewer of them in all, which two counts tell; and each takes two bytes. Of the rest nearly all is
    flat: without the innermost few levels hardly anything is left.
    """
    if len(text) <= 2 * most or text.count(b"{") + text.count(b"[") <= most:
        return False
    brackets = _brackets_in(text)
    rest = brackets
    for _ in range(_PEELED // 2):
        rest = rest.replace(b"{}", b"").replace(b"[]", b"")
    if len(rest) <= 2 * (most - _PEELED):
        return False
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > most


def _brackets_in(text: bytes) -> bytes:
    """The brackets of valid JSON, without those in its texts."""
    if b"\\" not in text:
        # Of a text without brackets two quotes are left, beside each other; any other leaves one that has no neighbour.
        brackets = text.translate(None, _UNMARKED).replace(b'""', b"")
        if b'"' not in brackets:
            return brackets
    return _TEXTS.sub(b"", text).translate(None, _OTHERS)
