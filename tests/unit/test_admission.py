"""Admission: who is refused while tasks flood in, and how several servers keep one rate."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import DAY, HOUR, MINUTE, SECOND
from fairlead.core.queues.admission import (
    SLOTS,
    STANDARD,
    AdmissionRule,
    AdmissionSettings,
    PortionRequest,
    RateBudget,
    Tiers,
    check_allow_list,
    granted,
    is_listed,
    opens_after,
    refusal_above,
    refusal_in_flight,
    refusal_over,
    slot_of,
    whole_seconds,
)
from fairlead.core.queues.limits import Rate
from fairlead.core.queues.queue import QueueSettings
from fairlead.core.settings import Settings
from fairlead.core.task import Priority

TIERS = Tiers(5, 10)
NOW = 1_700_000_000 * SECOND + 1


def _rule(waiting: int, priority: Priority, *, listed: bool = False, tiers: Tiers = TIERS) -> str | None:
    refusal = refusal_above(tiers, waiting, priority, listed=listed)
    return None if refusal is None else refusal.rule


def test_below_the_first_mark_all_are_taken() -> None:
    assert {_rule(4, priority) for priority in Priority} == {None}


def test_above_the_first_mark_only_critical_and_high_are_taken() -> None:
    assert [_rule(5, priority) for priority in Priority] == [None, None, "urgent_only", "urgent_only"]
    assert [_rule(9, priority) for priority in Priority] == [None, None, "urgent_only", "urgent_only"]


def test_above_the_second_mark_only_the_listed_are_taken_whatever_the_priority() -> None:
    assert {_rule(10, priority) for priority in Priority} == {"listed_only"}
    assert {_rule(10, priority, listed=True) for priority in Priority} == {None}


def test_the_listed_are_taken_between_the_marks_too() -> None:
    assert _rule(7, Priority.LOW, listed=True) is None


def test_each_mark_holds_without_the_other() -> None:
    assert [_rule(10**9, priority, tiers=Tiers(5)) for priority in Priority] == [None, None, *["urgent_only"] * 2]
    assert {_rule(9, priority, tiers=Tiers(None, 10)) for priority in Priority} == {None}
    assert {_rule(10, priority, tiers=Tiers(None, 10)) for priority in Priority} == {"listed_only"}
    assert {_rule(10**9, priority, tiers=Tiers()) for priority in Priority} == {None}


def test_a_refusal_names_the_number_the_mark_and_the_remedy() -> None:
    first = refusal_above(TIERS, 7, Priority.LOW, listed=False, queue="mail")
    second = refusal_above(TIERS, 12, Priority.LOW, listed=False)
    assert first is not None and second is not None
    assert "7 tasks wait in queue 'mail': from 5 on" in str(first) and "this one is low" in str(first)
    assert "12 tasks wait over all queues: from 10 on" in str(second)
    assert 0 < first.retry_after < second.retry_after
    over = refusal_over(Rate.parse("100/m"), tenant="acme", seconds=7)
    assert over.rule == AdmissionRule.TENANT_RATE and over.retry_after == 7 and "'acme'" in str(over)
    assert refusal_over(Rate.parse("100/m"), tenant=None, seconds=7).rule == AdmissionRule.KEY_RATE
    assert refusal_in_flight(3).rule == AdmissionRule.OVERLOADED


def test_the_standard_numbers_are_those_of_the_designs() -> None:
    assert STANDARD.tiers == Tiers(50_000, 100_000)
    assert [str(rate) for rate in STANDARD.rates] == ["100/m", "1000/h"]
    assert STANDARD.in_flight is not None and not AdmissionSettings()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Tiers(10, 5),
        lambda: Tiers(0),
        lambda: Tiers(True),
        lambda: Tiers(None, 1.5),  # type: ignore[arg-type]
        lambda: QueueSettings(urgent_above=10, listed_above=5),
        lambda: QueueSettings(urgent_above=0),
        lambda: AdmissionSettings(rates=(Rate(5, DAY),)),
        lambda: AdmissionSettings(rates=(Rate(5, SECOND), Rate(6, SECOND))),
        lambda: AdmissionSettings(rates="100/m"),  # type: ignore[arg-type]
        lambda: AdmissionSettings(in_flight=0),
        lambda: Settings(admission_allow=("ops",)),
        lambda: Settings(admission_allow=("key:",)),
        lambda: Settings(admission_allow="key:ops"),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidSettings):
        wrong()  # type: ignore[operator]


def test_an_allow_list_names_keys_and_tenants_apart() -> None:
    listed = check_allow_list("admission_allow", ("key:ops", "tenant:acme corp"))
    assert is_listed(listed, "ops", None) and is_listed(listed, None, "acme corp")
    assert not is_listed(listed, "acme corp", "ops") and not is_listed(listed, None, None)
    assert not is_listed((), "ops", "acme corp")


def _used(budget: RateBudget, rate: Rate, now: int, number: int = 1) -> tuple[RateBudget, int]:
    budget, (grant,) = granted(budget, [PortionRequest(rate, number)], now)
    return budget, grant.granted


def test_a_burst_gets_as_much_as_the_rate_says_and_not_one_more() -> None:
    rate = Rate(100, MINUTE)
    budget, first = _used(RateBudget(), rate, NOW, 70)
    budget, second = _used(budget, rate, NOW, 70)
    budget, third = _used(budget, rate, NOW, 1)
    assert (first, second, third) == (70, 30, 0)


@pytest.mark.parametrize("rate", [Rate(100, MINUTE), Rate(1_000, HOUR), Rate(40, SECOND)])
def test_who_submits_evenly_at_the_rate_is_never_refused(rate: Rate) -> None:
    budget = RateBudget()
    for number in range(3 * rate.count):
        budget, got = _used(budget, rate, NOW + number * rate.period // rate.count)
        assert got == 1, number


@given(st.integers(0, 10**6), st.sampled_from([7, 20, 100]))
def test_no_period_has_more_than_five_percent_too_many(seed: int, count: int) -> None:
    rate, chance, budget, now = Rate(count, MINUTE), random.Random(seed), RateBudget(), NOW
    taken: Counter[int] = Counter()
    for _ in range(100):
        now += chance.choice([0, 1, SECOND, 3 * SECOND, 20 * SECOND, MINUTE])
        budget, got = _used(budget, rate, now, chance.choice([1, 2, count // 2, count]))
        taken[now] += got
    for start in taken:
        assert sum(got for at, got in taken.items() if start <= at < start + MINUTE) <= count * 1.05


def test_what_is_refused_is_told_when_to_come_back_and_is_taken_then() -> None:
    rate = Rate(100, MINUTE)
    budget, _ = _used(RateBudget(), rate, NOW, 100)
    wait = opens_after(budget, rate, NOW)
    assert 0 < wait <= MINUTE * (SLOTS + 1) // SLOTS
    assert _used(budget, rate, NOW + wait - 1)[1] == 0
    assert _used(budget, rate, NOW + wait)[1] == 1
    assert opens_after(RateBudget(), rate, NOW) == 0
    assert [whole_seconds(span) for span in (0, 1, SECOND, SECOND + 1)] == [1, 1, 1, 2]


def test_what_a_server_did_not_use_is_given_back() -> None:
    rate = Rate(100, MINUTE)
    budget, (grant,) = granted(RateBudget(), [PortionRequest(rate, 90)], NOW)
    later = NOW + MINUTE // SLOTS
    budget, (second,) = granted(budget, [PortionRequest(rate, 1, unused_slot=grant.slot, unused=60)], later)
    assert second.granted == 1
    assert _used(budget, rate, later, 100)[1] == 69


def test_a_portion_is_a_small_share_and_less_when_little_is_left() -> None:
    rate = Rate(1_000, MINUTE)
    budget, (first,) = granted(RateBudget(), [PortionRequest(rate, 1, ahead=10**6)], NOW)
    assert first.granted == 50
    budget, _ = _used(budget, rate, NOW, 910)
    budget, (last,) = granted(budget, [PortionRequest(rate, 1, ahead=10**6)], NOW)
    assert last.granted == 10


def test_rates_are_granted_apart_and_forgotten_when_they_count_no_more() -> None:
    minute, hour = Rate(10, MINUTE), Rate(15, HOUR)
    budget, grants = granted(RateBudget(), [PortionRequest(minute, 10), PortionRequest(hour, 10)], NOW)
    assert [each.granted for each in grants] == [10, 10]
    later = NOW + 2 * MINUTE
    _, grants = granted(budget, [PortionRequest(minute, 10), PortionRequest(hour, 10)], later)
    assert [each.granted for each in grants] == [5, 5]
    assert not budget.is_over(later) and budget.is_over(NOW + 2 * HOUR)


def test_a_rate_grants_no_more_than_the_others_let_through() -> None:
    minute, hour = Rate(100, MINUTE), Rate(1_000, HOUR)
    budget, grants = granted(RateBudget(), [PortionRequest(minute, 1_000), PortionRequest(hour, 1_000)], NOW)
    assert [each.granted for each in grants] == [100, 100]
    requests = [PortionRequest(minute, 1, held=0), PortionRequest(hour, 1, held=0, ahead=50)]
    assert [each.granted for each in granted(budget, requests, NOW)[1]] == [0, 0]


def test_a_clock_that_goes_back_shuts_nobody_out_for_long() -> None:
    rate = Rate(10, MINUTE)
    budget, _ = _used(RateBudget(), rate, NOW, 10)
    assert _used(budget, rate, NOW - HOUR, 10)[1] == 10
    assert 0 < opens_after(budget, rate, NOW - 30 * SECOND) < 2 * MINUTE


def test_slots_are_shares_of_a_period() -> None:
    assert slot_of(MINUTE, 0) == 0 and slot_of(MINUTE, MINUTE) == SLOTS
