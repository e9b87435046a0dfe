"""Circuits: closed, open, half-open, and every step between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from fairlead.core.circuit import (
    Circuit,
    CircuitSettings,
    CircuitState,
    ProbeAnswer,
    answered,
    closed,
    configured,
    confirmed,
    counted,
    free_probes,
    opened,
    reserved,
    verdict,
)
from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import DAY, HOUR, MINUTE, SECOND, Instant, Span
from fairlead.core.task import Reason, State
from tests.unit.building import NOW, a_task

SETTINGS = CircuitSettings(failure_ratio=0.5, window=MINUTE, min_outcomes=10, open_for=30 * SECOND, probes=3)
CLOSED = Circuit(settings=SETTINGS)
LATER = NOW + 30 * SECOND


def half_open(probes: int = 3, token: str = "t") -> Circuit:
    circuit, granted = reserved(opened(CLOSED, NOW), token, probes, LATER + MINUTE, LATER)
    assert (circuit.state, granted) == (CircuitState.HALF_OPEN, probes)
    return circuit


class TestClosed:
    @given(st.integers(0, 30), st.integers(0, 30))
    def test_it_opens_when_enough_outcomes_are_there_and_the_share_of_failures_is_reached(
        self, passed: int, failed: int
    ) -> None:
        circuit = counted(CLOSED, passed, failed, NOW)

        tripped = passed + failed >= 10 and failed >= 0.5 * (passed + failed)
        assert circuit.state is (CircuitState.OPEN if tripped else CircuitState.CLOSED)
        assert circuit.tally(NOW) == (passed + failed, failed)

    def test_outcomes_are_forgotten_with_the_window(self) -> None:
        circuit = counted(CLOSED, 0, 9, NOW)

        assert counted(circuit, 0, 1, NOW + 50 * SECOND).state is CircuitState.OPEN
        assert counted(circuit, 0, 1, NOW + MINUTE).state is CircuitState.CLOSED

    def test_it_says_when_it_will_half_open_and_what_opened_it(self) -> None:
        status = counted(CLOSED, 4, 8, NOW).status

        assert (status.since, status.until, status.outcomes, status.failures) == (NOW, LATER, 12, 8)

    def test_a_clock_that_was_set_back_forgets_what_was_counted_in_its_future(self) -> None:
        assert counted(counted(CLOSED, 0, 9, NOW), 0, 1, NOW - 2 * MINUTE).state is CircuitState.CLOSED

    def test_other_settings_count_anew_and_leave_the_state(self) -> None:
        other = replace(SETTINGS, min_outcomes=5)

        assert configured(counted(CLOSED, 0, 9, NOW), other, declared=False).tally(NOW) == (0, 0)
        assert configured(opened(CLOSED, NOW), other, declared=False).state is CircuitState.OPEN
        assert configured(None, other, declared=True) == Circuit(settings=other, declared=True)


class TestOpen:
    def test_it_lets_nothing_through_until_its_time_has_come(self) -> None:
        circuit = opened(CLOSED, NOW)

        assert reserved(circuit, "t", 5, LATER, LATER - 1) == (circuit, 0)
        assert free_probes(circuit, LATER) == 3

    def test_what_ends_meanwhile_changes_nothing(self) -> None:
        circuit = opened(CLOSED, NOW)

        assert counted(circuit, 100, 0, NOW) == circuit
        assert answered(circuit, [ProbeAnswer("t", True), ProbeAnswer("t", False)], NOW) == circuit


class TestHalfOpen:
    @given(st.lists(st.integers(1, 5), max_size=8))
    def test_it_never_lets_more_through_than_its_probes(self, wishes: list[int]) -> None:
        circuit, out = opened(CLOSED, NOW), 0
        for number, wanted in enumerate(wishes):
            circuit, granted = reserved(circuit, f"t{number}", wanted, LATER + MINUTE, LATER)
            out += granted
        assert out == min(3, sum(wishes))

    def test_it_closes_when_all_probes_pass(self) -> None:
        two = answered(half_open(), [ProbeAnswer("t", True), ProbeAnswer("t", True)], LATER)
        assert (two.state, free_probes(two, LATER)) == (CircuitState.HALF_OPEN, 0)

        three = answered(two, [ProbeAnswer("t", True)], LATER + 1)
        assert three == closed(CLOSED, LATER + 1)

    def test_it_opens_again_when_one_fails(self) -> None:
        circuit = answered(
            half_open(), [ProbeAnswer("t", True), ProbeAnswer("t", False), ProbeAnswer("t", True)], LATER
        )

        assert (circuit.state, circuit.status.until) == (CircuitState.OPEN, LATER + 30 * SECOND)

    def test_an_answer_that_says_nothing_makes_room_for_another_probe(self) -> None:
        circuit = answered(half_open(), [ProbeAnswer("t", None)], LATER)

        assert (circuit.state, free_probes(circuit, LATER)) == (CircuitState.HALF_OPEN, 1)

    def test_the_answer_of_a_stranger_changes_nothing(self) -> None:
        assert answered(half_open(), [ProbeAnswer("other", False), ProbeAnswer("other", True)], LATER) == half_open()

    def test_room_for_which_no_task_was_found_is_free_again(self) -> None:
        assert free_probes(confirmed(half_open(), "t", 0, LATER, LATER), LATER) == 3
        assert free_probes(confirmed(half_open(), "t", 2, LATER + 1, LATER), LATER) == 1

    def test_a_probe_that_nobody_answers_is_given_up(self) -> None:
        circuit = half_open()

        assert free_probes(circuit, LATER + MINUTE - 1) == 0
        assert reserved(circuit, "u", 9, LATER + 2 * MINUTE, LATER + MINUTE)[1] == 3

    @pytest.mark.parametrize("step", [2 * MINUTE, HOUR, DAY])
    def test_nor_is_it_waited_for_until_a_clock_that_went_back_has_made_up_for_that(self, step: Span) -> None:
        circuit = confirmed(half_open(), "t", 3, LATER + MINUTE, LATER)

        assert free_probes(circuit, LATER - step) == 3
        assert reserved(circuit, "u", 3, LATER - step + MINUTE, LATER - step)[1] == 3


@pytest.mark.parametrize(
    ("state", "reason", "said"),
    [
        (State.COMPLETED, Reason.COMPLETED, True),
        (State.SCHEDULED, Reason.FAILED, False),
        (State.SCHEDULED, Reason.TIMED_OUT, False),
        (State.SCHEDULED, Reason.WORKER_LOST, False),
        (State.SCHEDULED, Reason.CRASHED, False),
        (State.DEAD_LETTER, Reason.RETRIES_USED_UP, False),
        (State.DEAD_LETTER, Reason.RULE_USED_UP, False),
        (State.DEAD_LETTER, Reason.CRASH_LOOP, False),
        (State.FAILED, Reason.REJECTED, None),
        (State.FAILED, Reason.REJECTED_BY_RULE, None),
        (State.QUEUED, Reason.HANDED_BACK, None),
        (State.CANCELLED, Reason.CANCELLED, None),
    ],
)
def test_an_attempt_passes_fails_or_says_nothing(state: State, reason: Reason, said: bool | None) -> None:
    assert verdict(replace(a_task(state).status, reason=reason)) is said


@pytest.mark.parametrize(
    "wrong",
    [
        {"failure_ratio": 0.0},
        {"failure_ratio": 1.1},
        {"window": 0},
        {"open_for": -1},
        {"min_outcomes": 0},
        {"probes": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidSettings, match=next(iter(wrong))):
        CircuitSettings(**wrong)  # type: ignore[arg-type]


class Fleet(RuleBasedStateMachine):
    """Any number of processes, each with an old view at times, take steps on one circuit."""

    def __init__(self) -> None:
        super().__init__()
        self.now: Instant = NOW
        self.circuit = CLOSED
        self.out: dict[str, int] = {}
        """Tasks let through since it half-opened that are neither answered nor given up."""
        self.number = 0

    @rule(by=st.integers(0, 40 * SECOND))
    def time_passes(self, by: int) -> None:
        self.now += by

    @rule(passed=st.integers(0, 9), failed=st.integers(0, 9))
    def some_end(self, passed: int, failed: int) -> None:
        self.circuit = counted(self.circuit, passed, failed, self.now)

    @rule(wanted=st.integers(1, 9), found=st.integers(0, 9))
    def someone_probes(self, wanted: int, found: int) -> None:
        self.number += 1
        token = f"t{self.number}"
        before = self.circuit.state
        self.circuit, granted = reserved(self.circuit, token, wanted, self.now + MINUTE, self.now)
        assert granted <= SETTINGS.probes
        if before is CircuitState.OPEN:
            self.out = {}
        taken = min(granted, found)
        self.circuit = confirmed(self.circuit, token, taken, self.now + MINUTE, self.now)
        if taken:
            self.out[token] = taken

    @rule(token=st.integers(0, 30), passed=st.sampled_from([True, True, False, None]))
    def one_is_answered(self, token: int, passed: bool | None) -> None:
        self.circuit = answered(self.circuit, [ProbeAnswer(f"t{token}", passed)], self.now)

    @invariant()
    def the_parts_of_a_state_belong_to_it(self) -> None:
        status = self.circuit.status
        assert (status.until is not None) == (status.state is CircuitState.OPEN)
        assert not status.probes or status.state is CircuitState.HALF_OPEN
        assert not status.slices or status.state is CircuitState.CLOSED
        assert 0 <= status.passed < SETTINGS.probes
        assert sum(each.count for each in status.probes if each.until > self.now) + status.passed <= SETTINGS.probes
        assert len(status.slices) <= 10

    @invariant()
    def no_state_is_for_ever(self) -> None:
        """However it stands, in a while something may be claimed: a circuit delays tasks and never keeps them."""
        if self.circuit.state is not CircuitState.CLOSED:
            assert free_probes(self.circuit, self.now + MINUTE) > 0


TestFleet = Fleet.TestCase
