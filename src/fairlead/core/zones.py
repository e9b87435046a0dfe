"""Wall clocks: from instants to local time, and back through the hours that are skipped or repeated.

A time zone is a table of constants, so looking something up in it is as pure as a sine.
"""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from fairlead.core.errors import InvalidSchedule
from fairlead.core.instant import SECOND, Instant, Span

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
