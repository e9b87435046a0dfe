"""How long to wait before the next attempt."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import LONGEST, MINUTE, SECOND, Span

_LARGEST_FACTOR: Final = 1_000.0
_ENOUGH_GROWTH: Final = 64
"""Exponents are cut here: any factor has reached any ceiling long before, and floats overflow long after."""


class Backoff(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """Exponential backoff with a ceiling and jitter."""

    initial: Span = SECOND
    factor: float = 2.0
    ceiling: Span = 5 * MINUTE
    jitter: float = 0.1
    """How far luck may move the delay, as a share of it."""

    def __post_init__(self) -> None:
        if not (0 <= self.initial <= LONGEST and 0 <= self.ceiling <= LONGEST):
            raise InvalidSettings(f"backoff of {self.initial} up to {self.ceiling} µs: use 0 seconds to a year")
        if not 1.0 <= self.factor <= _LARGEST_FACTOR:
            raise InvalidSettings(f"backoff factor {self.factor} is out of range; use 1.0 to {_LARGEST_FACTOR:g}")
        if not 0.0 <= self.jitter <= 1.0:
            raise InvalidSettings(f"backoff jitter {self.jitter} is not a share; use a number from 0.0 to 1.0")

    def delay(self, retries: int, luck: float) -> Span:
        """The delay before the next attempt when `retries` were spent before it; luck is from -1.0 to 1.0."""
        grown = self.initial * self.factor ** min(retries, _ENOUGH_GROWTH)
        return round(min(grown, self.ceiling) * (1.0 + self.jitter * luck))
