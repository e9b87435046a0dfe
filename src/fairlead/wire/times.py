"""Moments as JSON has them."""

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
