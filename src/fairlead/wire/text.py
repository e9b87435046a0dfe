"""How moments are written, and text from anywhere, so that it is safe to be shown on a terminal or in a log."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta
from typing import Final

from fairlead.core.instant import AT_ONCE, LATEST, SECOND, Instant

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def iso(at: Instant) -> str:
    """An instant in UTC, always to the microsecond, so that the text sorts like the time.

    A number that is no instant, in a damaged column, is shown as the nearest: a listing must not fail for it.
    """
    if not AT_ONCE <= at <= LATEST:
        at = min(max(at, AT_ONCE), LATEST)
    seconds, micros = divmod(at, SECOND)
    return f"{_to_the_second(seconds)}.{micros:06d}Z"


@functools.lru_cache(maxsize=1024)
def _to_the_second(seconds: int) -> str:
    """Most moments that are shown together share their second with others."""
    return (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()


def maybe_iso(at: Instant | None) -> str | None:
    """An instant in UTC, if there is one."""
    return None if at is None else iso(at)


def instant_of(moment: datetime) -> Instant:
    """The instant of a moment that knows its zone."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def parse_iso(text: str) -> Instant:
    """The instant that `iso` wrote."""
    return instant_of(datetime.fromisoformat(text))


def maybe_parse_iso(text: str | None) -> Instant | None:
    """The instant of a text, if there is one."""
    return None if text is None else parse_iso(text)


_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
# Marks that turn the direction of text around can make one thing look like another.
_TURNS: Final = {code: f"\\u{code:04x}" for code in (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
_UNSAFE: Final = _CONTROLS | _TURNS | {ord("\u2028"): "\\u2028", ord("\u2029"): "\\u2029"}


def clean(text: str) -> str:
    """Text with everything made visible that would act on a terminal; newlines and tabs stay."""
    # What is printable has none of it, and is found out sooner.
    return text if text.isprintable() else text.translate(_UNSAFE)


def one_line(text: str) -> str:
    """Clean text on a single line."""
    return clean(text.replace("\n", " "))
