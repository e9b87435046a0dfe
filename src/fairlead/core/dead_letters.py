"""Dead letters as they are counted: by type, and by a fingerprint that all errors have in common that are the same.

Errors are the same but for ids, numbers, quoted values, paths and moments.
"""

from __future__ import annotations

import functools
import re
from typing import Final

from msgspec import Struct

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant, Span
from fairlead.core.task import Failure


class ErrorGroup(Struct, frozen=True, kw_only=True):
    """Dead letters of one type whose errors are the same but for what varies."""

    type: str
    fingerprint: str
    error: str
    """The error's own type."""
    pattern: str
    """Its message, with what varies named instead."""
    count: int
    first_seen: Instant
    """When the first of them became a dead letter."""
    last_seen: Instant
    example: TaskId
    """The latest of them."""
    message: str
    """The message of that one."""


class TypeCount(Struct, frozen=True, kw_only=True):
    """How many dead letters of one type there are."""

    type: str
    count: int
    alert_at: int | None
    """From how many on they are reason for an alert; None for never."""

    @property
    def alert(self) -> bool:
        """Whether that number is reached."""
        return self.alert_at is not None and self.count >= self.alert_at


class Burst(Struct, frozen=True, kw_only=True):
    """What was told of the dead letters of one task type, or of one queue, that has an alert threshold.

    They are a burst from the alert on until as many are dealt with, or none has been added for a while. A burst is told
    once. What is left of it does not count towards the next.
    """

    known: int = 0
    """How many there were that do not count towards the next alert."""
    seen: int = 0
    """How many there were at the last look."""
    grew_at: Span = 0
    told_at: Span | None = None
    under_way: bool = False

    def after(self, count: int, threshold: int, now: Span, pause: Span) -> Burst:
        """The same after a look at this moment of a steady clock; it is an alert if it was told of just then.

        No two alerts are less than a pause apart.
        """
        known, under_way = min(self.known, count), self.under_way
        grew_at = now if count > self.seen else self.grew_at
        if under_way and (count - known < threshold or now - grew_at >= pause):
            known, under_way = count, False
        rested = self.told_at is None or now - self.told_at >= pause
        if not under_way and rested and count - known >= threshold:
            return Burst(known=known, seen=count, grew_at=now, told_at=now, under_way=True)
        return Burst(known=known, seen=count, grew_at=grew_at, told_at=self.told_at, under_way=under_way)

    def is_over(self, now: Span, pause: Span) -> bool:
        """Whether nothing needs to be remembered of it."""
        rested = self.told_at is None or now - self.told_at >= pause
        return rested and not self.under_way and not self.known


class Groups(Struct, frozen=True, kw_only=True):
    """The dead letters, grouped; the largest group comes first."""

    as_of: Instant
    total: int
    complete: bool
    """Whether all were looked at; otherwise these are the newest."""
    types: list[TypeCount]
    groups: list[ErrorGroup]


_READ: Final = 1_000
_KEPT: Final = 300

_VARYING: Final = (
    # What must be there for it to be worth looking, its name, and how it looks. Those before go first.
    (("://",), "<url>", re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://[^\s'\"`<>]+")),
    (("'", '"', "`"), "<value>", re.compile(r"(?<!\w)(?:'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`)(?!\w)")),
    (("@",), "<email>", re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")),
    (("/", "\\"), "<path>", re.compile(r"(?<![\w<])(?:[A-Za-z]:)?(?:[\\/][\w.@%+~:-]+){2,}[\\/]?")),
)
_NUMBERED: Final = re.compile(
    r"""
      (?P<id>\b[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}\b)
    | (?P<time>\b\d{4}-\d\d-\d\d(?:[T\ ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?)
    | (?P<hex>\b0[xX][0-9a-fA-F]+\b|\b(?=[a-fA-F]*\d)(?=\d*[a-fA-F])[0-9a-fA-F]{8,}\b)
    | (?P<n>(?<![\w.])[+-]?\d+(?:[.,:]\d+)*|\d+)
    """,
    re.VERBOSE,
)
_WITH_DIGIT: Final = re.compile(r"(?<!\S)[^\s\d]*\d\S*(?:\ \d\d:\d\S*)?")
"""A word with a digit in it; all that `_NUMBERED` looks for is within one."""
_REPEATED: Final = re.compile(r"(<[a-z]+>)(?:[,;]\s*\1)+")


@functools.lru_cache(maxsize=4_096)
def pattern_of(message: str) -> str:
    """A message with what varies from one occurrence to the next named instead: `user <n> is not in <value>`."""
    # Cut first, for speed, and then again: what varied may have had any length.
    named = message[:_READ]
    for signs, name, looks in _VARYING:
        if any(sign in named for sign in signs):
            named = looks.sub(name, named)
    named = _WITH_DIGIT.sub(_without_numbers, named)
    if ">," in named or ">;" in named:
        named = _REPEATED.sub(r"\1…", named)
    return " ".join(named.split())[:_KEPT]


def _without_numbers(word: re.Match[str]) -> str:
    return _NUMBERED.sub(lambda found: f"<{found.lastgroup}>", word[0])


def fingerprint_of(failure: Failure) -> str:
    """Sixteen hexadecimal digits that are the same for errors of one type whose messages have the same pattern."""
    return _digest(failure.type, pattern_of(failure.message))


@functools.lru_cache(maxsize=4_096)
def _digest(kind: str, pattern: str) -> str:
    # For failures only: it brings in all digests of OpenSSL, which most processes never use.
    import hashlib

    return hashlib.blake2b(f"{kind}\0{pattern}".encode(errors="backslashreplace"), digest_size=8).hexdigest()
