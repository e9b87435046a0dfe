"""What lies ahead of a waiting task, held against the order of service itself."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.instant import HOUR, MINUTE, SECOND, Instant
from fairlead.core.queues.order import (
    HeadStart,
    Policy,
    Promote,
    QueueTurns,
    Strict,
    Table,
    Weighted,
    effective_priority,
    serve,
)
from fairlead.core.queues.promotion import (
    Place,
    drawn_share,
    next_promotion,
    on_top_from,
    overtaken_until,
    parts_ahead,
    place_among_older,
    starts_at_the_top,
    steady_table,
    steady_turns,
    turns_from,
    unpassable_from,
)
from fairlead.core.task import Priority, Task
from tests.unit.building import NOW, a_spec, a_task, an_id

CRITICAL, HIGH, MEDIUM, LOW = Priority

spans = st.integers(0, 40)
promotes = st.builds(Promote, low=spans, medium=spans, high=spans)
head_starts = st.builds(HeadStart, critical=spans, high=spans, medium=spans, low=spans)
unshared = st.one_of(head_starts, st.just(Strict()))
policies = st.one_of(promotes, unshared)
priorities = st.sampled_from(Priority)
ages = st.integers(0, 100)


def table_of(policy: Policy) -> Table:
    table = steady_table(policy)
    assert table is not None
    return table


def waiting(priority: Priority, ready_at: Instant, noise: int = 0) -> Task:
    """Its id is of its moment, as ids are; `noise` tells those of one moment apart."""
    return a_task(spec=a_spec(id=an_id(ready_at, noise=noise)), priority=priority, ready_at=ready_at)


def before(others: list[Task], place: Place) -> int:
    return sum((other.status.ready_at, other.id) < (place.ready_at, place.id) for other in others)


def turns_of(policy: Policy, passed: int = 0) -> QueueTurns:
    turns = steady_turns(policy, passed)
    assert turns is not None
    return turns


def order_of(tasks: list[Task], turns: QueueTurns, now: Instant) -> list[Task]:
    return serve(tasks, {"default": turns}, now, len(tasks))


crowds = st.lists(st.tuples(priorities, ages), min_size=1, max_size=12)


class TestWhoIsAhead:
    @given(policies, crowds, st.integers(0, 3))
    def test_the_parts_count_exactly_those_that_are_served_before(
        self, policy: Policy, crowd: list[tuple[Priority, int]], passed: int
    ) -> None:
        turns = turns_of(policy, passed)
        tasks = [waiting(priority, NOW - age, noise) for noise, (priority, age) in enumerate(crowd)]
        for position, task in enumerate(order_of(tasks, turns, NOW)):
            ahead = by_turns = 0
            for others in Priority:
                lane = [other for other in tasks if other.status.priority is others]
                reached = 0
                for part in parts_ahead(turns, task, others, NOW):
                    end = before(lane, part.end)
                    ahead, by_turns = (
                        (ahead, by_turns + end - reached) if part.by_turns else (ahead + end - reached, by_turns)
                    )
                    reached = end
            if by_turns and turns.share is not None:
                table = turns.tables[0]
                promoted = effective_priority(table, task.status.priority, NOW - task.status.ready_at)
                counted = turns.share.promoted_before if promoted is task.status.priority else turns.share.others_before
                ahead += min(by_turns, counted(ahead, passed))
            assert ahead == position

    @given(policies, crowds)
    def test_each_part_is_treated_as_the_priority_it_is_told_for(
        self, policy: Policy, crowd: list[tuple[Priority, int]]
    ) -> None:
        turns, table = turns_of(policy), table_of(policy)
        tasks = [waiting(priority, NOW - age, noise) for noise, (priority, age) in enumerate(crowd)]
        for others in Priority:
            lane = sorted(
                (other for other in tasks if other.status.priority is others),
                key=lambda other: (other.status.ready_at, other.id),
            )
            parts = parts_ahead(turns, tasks[0], others, NOW)
            ends = [(others, 0), *((part.treated, before(lane, part.end)) for part in parts)]
            for (_, start), (treated, end) in pairwise(ends):
                for other in lane[start:end]:
                    assert effective_priority(table, others, NOW - other.status.ready_at) is treated

    def test_where_every_turn_is_drawn_no_table_holds(self) -> None:
        assert steady_table(Weighted()) is None

    def test_even_luck_gives_the_others_their_share_as_far_as_they_have_tasks(self) -> None:
        policy = Weighted(critical=8, high=4, medium=2, low=1)
        assert drawn_share(policy, LOW, 9, CRITICAL, 1_000) == 80
        assert drawn_share(policy, LOW, 9, CRITICAL, 30) == 30
        assert drawn_share(policy, CRITICAL, 0, LOW, 100) == 0


class TestPromotion:
    def test_a_low_task_is_promoted_three_times(self) -> None:
        table, task = table_of(Promote()), waiting(LOW, NOW)
        now, told = NOW, []
        while promotion := next_promotion(table, task, now):
            told.append((promotion.at - NOW, promotion.to))
            now = promotion.at
        assert told == [(10 * MINUTE, MEDIUM), (30 * MINUTE, HIGH), (HOUR, CRITICAL)]

    @given(promotes, priorities, ages)
    def test_it_is_treated_otherwise_at_that_moment_and_not_before(
        self, policy: Promote, priority: Priority, age: int
    ) -> None:
        table, task = table_of(policy), waiting(priority, NOW - age)
        promotion = next_promotion(table, task, NOW)
        if promotion is None:
            assert effective_priority(table, priority, age) is CRITICAL
            return
        wait = promotion.at - task.status.ready_at
        assert effective_priority(table, priority, wait - 1) is effective_priority(table, priority, age)
        assert effective_priority(table, priority, wait) is promotion.to
        assert promotion.to < effective_priority(table, priority, age)

    @pytest.mark.parametrize("policy", [Strict(), HeadStart()])
    def test_some_orders_promote_nothing(self, policy: Policy) -> None:
        assert next_promotion(table_of(policy), waiting(LOW, NOW), NOW) is None


class TestFromWhenNothingCanPass:
    @given(unshared, priorities, ages, st.data())
    def test_what_is_submitted_after_that_moment_is_never_served_first(
        self, policy: Policy, priority: Priority, age: int, data: st.DataObject
    ) -> None:
        turns, task = turns_of(policy), waiting(priority, NOW - age)
        moment = unpassable_from(turns, task)
        if moment is None:
            return
        later = waiting(data.draw(priorities), moment + data.draw(st.integers(1, 100)), noise=1)
        now = later.status.ready_at + data.draw(ages)
        assert order_of([task, later], turns, now)[0] is task

    @given(unshared, priorities)
    def test_until_that_moment_something_can(self, policy: Policy, priority: Priority) -> None:
        turns, task = turns_of(policy), waiting(priority, NOW)
        moment = unpassable_from(turns, task)
        last = NOW + HOUR if moment is None else moment - 1
        if last <= NOW:
            return
        passing = [waiting(other, last, noise=1) for other in Priority]
        assert any(order_of([task, other], turns, last)[0] is other for other in passing)

    @pytest.mark.parametrize(
        ("policy", "priority", "after", "with_turns"),
        [
            (Promote(), CRITICAL, None, 0),
            (Promote(), HIGH, None, 30 * MINUTE),
            (Promote(), LOW, None, HOUR),
            (Strict(), CRITICAL, 0, None),
            (Strict(), HIGH, None, None),
            (HeadStart(), CRITICAL, 0, None),
            (HeadStart(), LOW, HOUR, None),
        ],
    )
    def test_the_bounds_of_the_orders(
        self, policy: Policy, priority: Priority, after: int | None, with_turns: int | None
    ) -> None:
        turns, task = turns_of(policy), waiting(priority, NOW)
        assert unpassable_from(turns, task) == (None if after is None else NOW + after)
        assert turns_from(turns, task) == (None if with_turns is None else NOW + with_turns)


class TestTheLatestStart:
    @given(policies, priorities, ages, crowds, st.integers(0, 3), st.data())
    def test_once_on_top_so_many_starts_are_enough(
        self,
        policy: Policy,
        priority: Priority,
        age: int,
        crowd: list[tuple[Priority, int]],
        passed: int,
        data: st.DataObject,
    ) -> None:
        """Whatever is submitted meanwhile, if head starts can no longer help it."""
        turns, task = turns_of(policy, passed), waiting(priority, NOW - age)
        on_top = on_top_from(turns.tables[0], task)
        if on_top is None or overtaken_until(turns.tables[0], task) > NOW:
            return
        there = [waiting(each, NOW - old, noise) for noise, (each, old) in enumerate(crowd, 1)]
        new = [waiting(each, NOW + 1 + soon, noise) for noise, (each, soon) in enumerate(crowd * 4, 100)]
        now = max(on_top, NOW) + data.draw(st.integers(0, 200))
        everyone = [task, *there, *(each for each in new if each.status.ready_at <= now)]
        ahead = order_of(everyone, turns, now)
        older = 0
        for others in Priority:
            place = place_among_older(turns, task, others)
            lane = [each for each in there if each.status.priority is others]
            older += 0 if place is None else before(lane, place)
        assert ahead.index(task) < starts_at_the_top(turns, task, older, claimers=1)

    def test_an_hour_is_the_promise_for_low(self) -> None:
        assert on_top_from(table_of(Promote()), waiting(LOW, NOW - SECOND)) == NOW - SECOND + HOUR
