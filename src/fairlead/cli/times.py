"""Moments and spans, as people write and read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from fairlead.core.errors import InvalidTask
from fairlead.core.instant import AT_ONCE, DAY, HOUR, LATEST, MINUTE, SECOND, Instant, brief
from fairlead.core.validation import span_of
from fairlead.wire.text import instant_of

__all__ = ["ago", "brief", "check_seconds", "moment", "parse"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RELATIVE: Final = re.compile(r"([+-])(\d+(?:\.\d+)?)([smhdw])")
_UNITS: Final = {"s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
_FORMS: Final = "a moment such as 2026-11-15T08:00:00Z, 2026-11-15 (UTC unless it says otherwise), -1h or +30m"


def parse(option: str, text: str, now: Instant) -> Instant:
    """The instant that a person means; raises InvalidTask when it is none."""
    relative = _RELATIVE.fullmatch(text.strip())
    try:
        if relative:
            sign, amount, unit = relative.groups()
            at = now + round(float(f"{sign}{amount}") * _UNITS[unit])
        else:
            written = datetime.fromisoformat(text.strip())
            aware = written if written.tzinfo else written.replace(tzinfo=UTC)
            at = instant_of(aware)
    except (ValueError, OverflowError):
        raise InvalidTask(option, f"{option} {text!r} is not a moment; use {_FORMS}") from None
    if not 0 <= at <= LATEST:
        raise InvalidTask(option, f"{option} {text!r} is outside the years 1970 to 2255; use {_FORMS}")
    return at


def moment(at: Instant) -> datetime:
    """An instant as a datetime."""
    return _EPOCH + timedelta(microseconds=min(max(at, AT_ONCE), LATEST))


def ago(at: Instant, now: Instant) -> str:
    """How far an instant is from now: 5m ago, in 3h; what is to be done at once has no moment of its own."""
    if at == AT_ONCE:
        return "now"
    return f"{brief(now - at)} ago" if at <= now else f"in {brief(at - now)}"


def check_seconds(option: str, value: float | None) -> float | None:
    """Seconds that can be a span; raises InvalidTask for infinity and what is not a number."""
    if value is not None:
        span_of(option, value)
    return value
