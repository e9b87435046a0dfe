"""From when on a clock may be believed: a pure rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.core.health.clock_watch import ClockReading, LeaseTerms, Watch, Watches
from fairlead.core.instant import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Instant, Span
from fairlead.testing.builders import NOW

LEASE: Span = 30 * SECOND
HEARTBEAT: Span = 10 * SECOND
GAP: Span = 15 * SECOND
STEPS = [2 * MINUTE, -2 * MINUTE, HOUR, -HOUR, DAY, -DAY, 6 * SECOND, -6 * SECOND]


class Looking:
    """A watch, and the clocks that it looks at."""

    def __init__(self) -> None:
        self.watch = Watch(length=LEASE, gap=GAP, tolerance=LEASE - HEARTBEAT - GAP)
        self.monotonic: Span = 5 * HOUR
        self.time: Instant = NOW

    def believed_from(self) -> Instant | None:
        return self.watch.from_when

    def is_calm(self) -> bool:
        return self.watch.is_calm

    def look(self, *, took: Span = 0) -> None:
        sight = ClockReading(at=self.time, asked=self.monotonic, answered=self.monotonic + took)
        self.monotonic += took
        self.time += took
        self.watch = self.watch.after(sight)

    def look_for(self, span: Span, every: Span = SECOND) -> None:
        for _ in range(span // every):
            self.monotonic += every
            self.time += every
            self.look()


@pytest.fixture
def looking() -> Looking:
    """One that has watched for long."""
    looking = Looking()
    looking.look()
    looking.look_for(MINUTE)
    assert looking.believed_from() == NOW
    return looking


def test_who_has_seen_nothing_believes_nothing() -> None:
    looking = Looking()
    assert looking.believed_from() is None
    looking.look()
    assert looking.believed_from() is None


def test_a_clock_is_believed_after_one_lease_length_and_not_before() -> None:
    looking = Looking()
    looking.look()
    looking.look_for(LEASE - SECOND)
    assert looking.believed_from() is None
    looking.look_for(SECOND)
    assert looking.believed_from() == NOW


@pytest.mark.parametrize("by", STEPS)
def test_after_a_step_it_is_watched_again(looking: Looking, by: Span) -> None:
    looking.time += by
    looking.look()
    stepped_at = looking.time
    assert looking.believed_from() is None
    assert not looking.is_calm()
    looking.look_for(LEASE - SECOND)
    assert looking.believed_from() is None
    assert not looking.is_calm()
    looking.look_for(SECOND)
    assert looking.believed_from() == stepped_at
    assert looking.is_calm()


def test_a_second_step_begins_the_watch_anew(looking: Looking) -> None:
    looking.time += HOUR
    looking.look()
    looking.look_for(20 * SECOND)
    looking.time -= HOUR
    looking.look()
    looking.look_for(20 * SECOND)
    assert looking.believed_from() is None


def test_a_gap_is_no_step_but_is_to_be_watched_again(looking: Looking) -> None:
    """While nobody looked, the store may have been away, or its clock set and set right."""
    looking.monotonic += GAP + 1
    looking.time += GAP + 1
    looking.look()
    assert looking.believed_from() is None
    assert looking.is_calm()


def test_a_machine_that_slept_watches_again(looking: Looking) -> None:
    """Its own clock stood still."""
    looking.time += HOUR
    looking.look()
    assert looking.believed_from() is None


class TestSeveralClocks:
    def test_a_server_that_has_taken_over_is_watched_anew(self) -> None:
        """A failover, or a restart: what was renewed last may be lost, though the clock shows what it should."""
        watches, now = watched_for(MINUTE, "one", "two"), MINUTE
        assert watches.from_when == NOW
        for past in range(0, LEASE, SECOND):
            watches = watches.after(sights(now + past, "one", "three"))
            assert watches.from_when is None
            assert watches.is_calm
        assert watches.after(sights(now + LEASE, "one", "three")).from_when == NOW + MINUTE

    def test_a_server_that_is_gone_counts_no_more(self) -> None:
        watches = watched_for(MINUTE, "one", "two").after(sights(MINUTE, "two"))
        assert watches.from_when == NOW

    def test_a_server_that_comes_back_is_watched_anew(self) -> None:
        watches = watched_for(MINUTE, "one", "two").after(sights(MINUTE, "two"))
        assert watches.after(sights(MINUTE + SECOND, "one", "two")).from_when is None

    def test_one_that_steps_is_enough(self) -> None:
        after = sights(MINUTE, "one") | {"two": sights(MINUTE + HOUR, "two")["two"]}
        stepped = replace(after["two"], asked=after["one"].asked, answered=after["one"].answered)
        watches = watched_for(MINUTE, "one", "two").after(after | {"two": stepped})
        assert watches.from_when is None
        assert not watches.is_calm
        assert watches.stepped == stepped.answered

    def test_who_has_seen_none_believes_none(self) -> None:
        watches = Watches.of([LeaseTerms(LEASE, HEARTBEAT)])
        assert watches.from_when is None
        assert watches.is_calm


def sights(past: Span, *names: str) -> dict[str, ClockReading]:
    """What clocks show that are right, after so long."""
    return {name: ClockReading(at=NOW + past, asked=HOUR + past, answered=HOUR + past) for name in names}


def watched_for(span: Span, *names: str) -> Watches:
    watches = Watches.of([LeaseTerms(LEASE, HEARTBEAT)])
    for past in range(0, span, SECOND):
        watches = watches.after(sights(past, *names))
    return watches


def test_small_steps_add_up(looking: Looking) -> None:
    for _ in range(3):
        looking.time += 2 * SECOND
        looking.look_for(SECOND)
    assert looking.believed_from() is None


def test_a_clock_that_is_slewed_is_believed(looking: Looking) -> None:
    """A host's own clock may run by 500 parts in a million faster or slower, for days."""
    for _ in range(3_600):
        looking.time += SECOND // 2_000
        looking.look_for(SECOND)
    assert looking.believed_from() == NOW


def test_a_slow_answer_is_no_step(looking: Looking) -> None:
    """The store may have read its clock at any moment while it was asked."""
    looking.look(took=10 * SECOND)
    looking.look_for(5 * SECOND)
    assert looking.believed_from() == NOW


class TestOneThatIsHeldUpAgainAndAgain:
    """It never looks twice within a gap, and the leases of the dead are to be given up all the same."""

    def test_it_believes_a_clock_that_it_was_shown_at_every_look(self) -> None:
        looking = Looking()
        looking.look()
        looking.look_for(7 * 20 * SECOND, every=20 * SECOND)
        assert looking.believed_from() is None
        looking.look_for(20 * SECOND, every=20 * SECOND)
        assert looking.believed_from() == NOW

    def test_it_does_not_while_looks_go_unanswered(self) -> None:
        looking = Looking()
        looking.look()
        for _ in range(10):
            looking.look_for(3 * 20 * SECOND, every=20 * SECOND)
            looking.watch = looking.watch.failed()
        assert looking.believed_from() is None

    def test_it_does_not_after_a_step(self) -> None:
        looking = Looking()
        looking.look()
        looking.look_for(10 * 20 * SECOND, every=20 * SECOND)
        looking.time += HOUR
        looking.look_for(20 * SECOND, every=20 * SECOND)
        assert looking.believed_from() is None

    def test_it_does_not_after_a_stop_that_is_longer_than_all_it_has_seen(self) -> None:
        looking = Looking()
        looking.look()
        looking.look_for(10 * 20 * SECOND, every=20 * SECOND)
        looking.look_for(HOUR, every=HOUR)
        assert looking.believed_from() is None

    def test_what_was_seen_before_a_first_gap_counts_for_nothing(self, looking: Looking) -> None:
        looking.look_for(HOUR)
        looking.look_for(20 * SECOND, every=20 * SECOND)
        assert looking.believed_from() is None


class TestLeasesByDifferentTerms:
    def test_the_longest_says_how_long_to_watch_and_the_tightest_how_closely(self) -> None:
        watches = Watches.of([LeaseTerms(30 * SECOND, 10 * SECOND), LeaseTerms(HOUR, 59 * MINUTE), LeaseTerms(5, 1)])
        assert (watches.length, watches.gap, watches.tolerance) == (HOUR, 3, 1)

    def test_what_was_seen_is_seen_when_the_terms_change(self) -> None:
        watches = watched_for(MINUTE, "one")
        assert watches.over([LeaseTerms(HOUR, MINUTE)]).from_when is None
        assert watches.over([LeaseTerms(HOUR, MINUTE)]).over([LeaseTerms(LEASE, HEARTBEAT)]).from_when == NOW

    @given(lease=st.integers(2, DAY), part=st.floats(0, 0.5))
    def test_a_lease_outlasts_a_gap_and_a_step_that_go_unseen(self, lease: Span, part: float) -> None:
        heartbeat = max(1, int(lease * part))
        watches = Watches.of([LeaseTerms(lease, heartbeat)])
        assert heartbeat + watches.gap + watches.tolerance <= lease


@given(looks=st.lists(st.integers(1, GAP // MILLISECOND), min_size=1, max_size=60), by=st.sampled_from(STEPS))
def test_no_step_goes_unseen_however_one_looks(looks: list[int], by: Span) -> None:
    """It is believed only what was watched for a lease length after the last step."""
    looking = Looking()
    looking.look()
    for pause in looks:
        looking.look_for(pause * MILLISECOND, every=pause * MILLISECOND)
    looking.time += by
    stepped = looking.monotonic
    for pause in looks:
        looking.look_for(pause * MILLISECOND, every=pause * MILLISECOND)
        if looking.believed_from() is not None:
            assert looking.monotonic - stepped >= LEASE


@given(looks=st.lists(st.integers(1, GAP // MILLISECOND), min_size=1, max_size=100))
def test_time_that_only_passes_is_believed_in_time(looks: list[int]) -> None:
    looking = Looking()
    looking.look()
    begun = looking.monotonic
    for pause in looks:
        looking.look_for(pause * MILLISECOND, every=pause * MILLISECOND)
        assert (looking.believed_from() is not None) == (looking.monotonic - begun >= LEASE)
