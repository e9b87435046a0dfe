"""Clocks: where the engine learns what time it is."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from fairlead.core.health.clock_watch import ClockReading
from fairlead.core.instant import Instant, Span


class Clock(Protocol):
    """A source of time."""

    def now(self) -> Instant:
        """The current instant; may jump when someone sets the clock."""
        ...

    def monotonic(self) -> Span:
        """Time since some fixed moment; never jumps."""
        ...

    def given(self) -> Instant | None:
        """The time that is given to a store's operation; None to leave it to the store's own clock, as all should."""
        ...


def look(clock: Clock) -> ClockReading:
    """What a clock shows."""
    asked = clock.monotonic()
    return ClockReading(at=clock.now(), asked=asked, answered=clock.monotonic())


class SystemClock:
    """The host's clock."""

    def now(self) -> Instant:
        return time.time_ns() // 1_000

    def monotonic(self) -> Span:
        return time.monotonic_ns() // 1_000

    def given(self) -> None:
        return None


class FollowingClock:
    """A shared store's clock, carried on by the host's monotonic one: hosts whose clocks differ or are set agree.

    Until it has asked a store, and with a store that has no clock of its own, it is the host's.
    """

    def __init__(self, host: Clock) -> None:
        self._host = host
        self.monotonic: Callable[[], Span] = host.monotonic
        self._origin: Instant | None = None
        """The store's time when the host's monotonic clock was zero."""

    def now(self) -> Instant:
        return self._host.now() if self._origin is None else self._origin + self.monotonic()

    def given(self) -> None:
        return None

    @property
    def follows(self) -> bool:
        """Whether it follows a store that has a clock of its own."""
        return self._origin is not None

    async def measure(self, store_time: Callable[[], Awaitable[Instant | None]]) -> ClockReading:
        """Ask the store for its time; half the round trip is taken to have passed since it answered."""
        asked = self._host.monotonic()
        answer = await store_time()
        if answer is None:
            return look(self._host)
        answered = self._host.monotonic()
        self._origin = answer - (asked + answered) // 2
        return ClockReading(at=answer, asked=asked, answered=answered)


class ManualClock:
    """A clock that stands still until it is moved: for tests and simulations."""

    def __init__(self, start: Instant = 1_800_000_000_000_000) -> None:
        self._now = start
        self._monotonic: Span = 0

    def now(self) -> Instant:
        return self._now

    def monotonic(self) -> Span:
        return self._monotonic

    def given(self) -> Instant:
        return self._now

    def advance(self, by: Span) -> None:
        """Let time pass."""
        if by < 0:
            raise ValueError(f"time cannot pass by {by} µs; use jump to set the clock back")
        self._now += by
        self._monotonic += by

    def jump(self, by: Span) -> None:
        """Set the clock forward or back, without time passing."""
        self._now += by
