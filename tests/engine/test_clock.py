"""Clocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.admin.engine import AdminEngine
from fairlead.core.instant import HOUR, MINUTE, SECOND, Instant, Span
from fairlead.engine.runtime.clock import FollowingClock, ManualClock, SystemClock
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.memory import MemoryStore


class ADistantStore:
    """A store's clock, some way off: each half of the round trip takes its time."""

    def __init__(self, host: ManualClock, ahead: Span, there: Span = 0, back: Span = 0) -> None:
        self._host, self._ahead, self._there, self._back = host, ahead, there, back

    async def time(self) -> Instant:
        self._host.advance(self._there)
        answer = self._host.now() + self._ahead
        self._host.advance(self._back)
        return answer


def test_a_following_clock_is_the_hosts_until_it_has_asked() -> None:
    host = ManualClock()
    clock = FollowingClock(host)

    assert (clock.now(), clock.monotonic()) == (host.now(), host.monotonic())


@given(st.integers(-HOUR, HOUR), st.integers(0, SECOND))
def test_over_an_even_way_it_agrees_with_the_store_exactly(ahead: Span, way: Span) -> None:
    host = ManualClock()
    clock = FollowingClock(host)
    run_inline(clock.measure(ADistantStore(host, ahead, way, way).time))

    assert clock.now() == host.now() + ahead


@given(st.integers(-HOUR, HOUR), st.integers(0, SECOND), st.integers(0, SECOND))
def test_over_any_way_it_is_off_by_at_most_half_the_round_trip(ahead: Span, there: Span, back: Span) -> None:
    host = ManualClock()
    clock = FollowingClock(host)
    run_inline(clock.measure(ADistantStore(host, ahead, there, back).time))

    assert abs(clock.now() - (host.now() + ahead)) <= (there + back) / 2 + 1


def test_it_can_be_set_right_again_and_its_monotonic_time_never_jumps() -> None:
    host = ManualClock()
    clock = FollowingClock(host)
    run_inline(clock.measure(ADistantStore(host, HOUR).time))
    host.jump(HOUR)
    before = clock.monotonic()
    run_inline(clock.measure(ADistantStore(host, 0).time))

    assert clock.now() == host.now()
    assert clock.monotonic() == before


async def test_a_store_without_a_clock_leaves_it_as_it_is() -> None:
    host = ManualClock()
    clock = FollowingClock(host)
    await clock.measure(MemoryStore().time)
    host.jump(HOUR)

    assert clock.now() == host.now()


def test_setting_the_hosts_clock_does_not_move_a_clock_that_follows_a_store() -> None:
    host = ManualClock()
    clock = FollowingClock(host)
    run_inline(clock.measure(ADistantStore(host, MINUTE).time))
    before = clock.now()
    host.jump(HOUR)
    host.advance(SECOND)

    assert clock.now() == before + SECOND


async def test_an_engine_follows_its_store() -> None:
    host = ManualClock()
    engine = AdminEngine(StoreWithAClock(host), clock=FollowingClock(host))
    await engine.follow_clock()

    assert engine.clock.now() == host.now() + MINUTE


async def test_an_engine_leaves_a_clock_that_it_was_given_alone() -> None:
    host = ManualClock()
    engine = AdminEngine(StoreWithAClock(host), clock=host)
    await engine.follow_clock()

    assert engine.clock.now() == host.now()


def test_a_manual_clock_moves_when_it_is_told_to() -> None:
    clock = ManualClock(start=100)
    clock.advance(5)
    clock.jump(-50)

    assert (clock.now(), clock.monotonic()) == (55, 5)
    with pytest.raises(ValueError, match="use jump"):
        clock.advance(-1)


def test_the_system_clock_counts_microseconds_forward() -> None:
    clock = SystemClock()
    first, then = (clock.now(), clock.monotonic()), (clock.now(), clock.monotonic())

    assert 1_700_000_000 * SECOND < first[0] < 4_000_000_000 * SECOND
    assert then[1] >= first[1]


class StoreWithAClock(MemoryStore):
    def __init__(self, host: ManualClock) -> None:
        super().__init__()
        self._host = host

    async def time(self) -> Instant | None:
        return self._host.now() + MINUTE
