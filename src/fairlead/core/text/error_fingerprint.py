"""Fingerprints: one for all errors that are the same but for ids, numbers, quoted values, paths and moments."""

from __future__ import annotations

import functools
import re
from typing import Final

from fairlead.core.task import Failure

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
