"""The order of service: policies as data, and the reference that every store is held to."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.core.errors import InvalidSettings
from fairlead.core.identity import TaskId
from fairlead.core.instant import DAY, HOUR, MINUTE, SECOND, Instant, Span
from fairlead.core.queues.order import (
    HeadStart,
    Line,
    Policy,
    Promote,
    QueueTurns,
    Share,
    Step,
    Strict,
    Table,
    Weighted,
    effective_priority,
    passed_after,
    rank_after,
    serve,
    service_key,
    share_of,
    treated_as,
)
from fairlead.core.task import Priority, State, Task
from tests.unit.building import NOW, a_spec, a_task, an_id

CRITICAL, HIGH, MEDIUM, LOW = Priority


def never() -> float:
    raise AssertionError("this policy needs no luck")


def table_of(policy: Policy) -> Table:
    return policy.tables(1, never)[0]


def waiting(priority: Priority, ready_at: Instant, noise: int = 0, queue: str = "default") -> Task:
    spec = a_spec(id=an_id(noise=noise, queue=queue), queue=queue)
    return a_task(spec=spec, priority=priority, ready_at=ready_at)


def served(tasks: list[Task], policy: Policy, now: Instant = NOW, limit: int = 100) -> list[TaskId]:
    return [task.id for task in serve(tasks, {"default": QueueTurns(policy.tables(limit, never))}, now, limit)]


positive = st.integers(0, DAY)
promotes = st.builds(Promote, low=positive, medium=positive, high=positive)
lines = st.lists(st.tuples(positive, st.integers(0, 3)), max_size=4).map(
    lambda steps: Line(
        3,
        0,
        tuple(
            Step(after, rank)
            for after, rank in zip(
                sorted(a for a, _ in steps), sorted((r for _, r in steps), reverse=True), strict=True
            )
        ),
    )
)


class TestALine:
    @pytest.mark.parametrize(
        ("waited", "rank"),
        [(0, 3), (MINUTE - 1, 3), (MINUTE, 2), (HOUR - 1, 2), (HOUR, 0), (DAY, 0)],
    )
    def test_a_step_counts_from_its_moment_on(self, waited: Span, rank: int) -> None:
        assert rank_after(Line(3, 0, (Step(MINUTE, 2), Step(HOUR, 0))), waited) == rank

    def test_a_task_from_the_future_has_the_rank_it_began_with(self) -> None:
        assert rank_after(Line(3, 0, (Step(MINUTE, 2),)), -HOUR) == 3

    @given(lines, positive, positive)
    def test_a_longer_wait_never_worsens_the_rank(self, line: Line, one: Span, other: Span) -> None:
        assert rank_after(line, max(one, other)) <= rank_after(line, min(one, other))

    @pytest.mark.parametrize(
        "steps",
        [(Step(-1, 2),), (Step(HOUR, 2), Step(MINUTE, 1)), (Step(MINUTE, 4),), (Step(MINUTE, 1), Step(HOUR, 2))],
        ids=["before the wait", "out of order", "worse than the start", "worse than the step before"],
    )
    def test_steps_that_make_no_sense_are_refused(self, steps: tuple[Step, ...]) -> None:
        with pytest.raises(InvalidSettings, match="order step"):
            Line(3, 0, steps)


class TestPromote:
    @pytest.mark.parametrize(
        ("priority", "waited", "treated_as"),
        [
            (LOW, 10 * MINUTE - 1, LOW),
            (LOW, 10 * MINUTE, MEDIUM),
            (LOW, 30 * MINUTE, HIGH),
            (LOW, 60 * MINUTE, CRITICAL),
            (MEDIUM, 20 * MINUTE - 1, MEDIUM),
            (MEDIUM, 20 * MINUTE, HIGH),
            (MEDIUM, 50 * MINUTE, CRITICAL),
            (HIGH, 30 * MINUTE - 1, HIGH),
            (HIGH, 30 * MINUTE, CRITICAL),
            (CRITICAL, DAY, CRITICAL),
        ],
    )
    def test_waiting_tasks_are_treated_as_the_next_priority(
        self, priority: Priority, waited: Span, treated_as: Priority
    ) -> None:
        assert effective_priority(table_of(Promote()), priority, waited) is treated_as

    @given(promotes, st.sampled_from(Priority))
    def test_the_bound_is_when_a_task_is_treated_as_critical(self, policy: Promote, priority: Priority) -> None:
        table, bound = table_of(policy), policy.bound(priority)

        assert effective_priority(table, priority, bound) is CRITICAL
        if bound > 0:
            assert effective_priority(table, priority, bound - 1) > CRITICAL or priority is CRITICAL

    @given(
        promotes,
        st.sampled_from(Priority),
        st.sampled_from(Priority),
        positive,
        st.integers(1, 2 * DAY),
    )
    def test_once_treated_as_critical_nothing_queued_later_passes(
        self, policy: Promote, priority: Priority, newcomer: Priority, extra: Span, later_by: Span
    ) -> None:
        ready_at = NOW
        now = ready_at + policy.bound(priority) + extra
        old = service_key(table_of(policy), priority, ready_at, an_id(noise=1), now)
        new = service_key(table_of(policy), newcomer, ready_at + later_by, an_id(noise=0), now)

        assert old < new

    def test_by_default_no_task_can_be_passed_for_longer_than_an_hour(self) -> None:
        assert [Promote().bound(priority) for priority in Priority] == [0, 30 * MINUTE, 50 * MINUTE, 60 * MINUTE]

    def test_a_higher_priority_goes_first_among_tasks_that_came_together(self) -> None:
        tasks = [waiting(priority, NOW, noise=priority) for priority in (LOW, HIGH, CRITICAL, MEDIUM)]

        assert served(tasks, Promote()) == [an_id(noise=priority) for priority in Priority]

    def test_within_what_they_are_treated_as_the_older_goes_first(self) -> None:
        promoted, fresh = waiting(LOW, NOW - 15 * MINUTE, noise=1), waiting(MEDIUM, NOW - MINUTE, noise=0)

        assert served([fresh, promoted], Promote()) == [promoted.id, fresh.id]

    def test_a_negative_wait_is_refused_when_the_policy_is_made(self) -> None:
        with pytest.raises(InvalidSettings):
            Promote(low=-1)


class TestStrict:
    @given(st.integers(0, 10 * DAY))
    def test_a_fresh_critical_task_passes_a_low_one_of_any_age(self, age: Span) -> None:
        low, critical = waiting(LOW, NOW - age, noise=0), waiting(CRITICAL, NOW, noise=1)

        assert served([low, critical], Strict()) == [critical.id, low.id]


class TestHeadStart:
    @pytest.mark.parametrize(
        ("age", "first"), [(10 * MINUTE - 1, MEDIUM), (10 * MINUTE + 1, LOW)], ids=["just under", "just over"]
    )
    def test_a_low_task_that_came_earlier_than_the_head_start_goes_first(self, age: Span, first: Priority) -> None:
        tasks = {LOW: waiting(LOW, NOW - age, noise=0), MEDIUM: waiting(MEDIUM, NOW, noise=1)}

        assert served(list(tasks.values()), HeadStart())[0] == tasks[first].id

    @given(st.sampled_from(Priority), st.sampled_from(Priority), positive, positive, positive)
    def test_who_goes_first_never_changes_with_time(
        self, one: Priority, other: Priority, one_age: Span, other_age: Span, passed: Span
    ) -> None:
        tasks = [waiting(one, NOW - one_age, noise=0), waiting(other, NOW - other_age, noise=1)]

        assert served(tasks, HeadStart()) == served(tasks, HeadStart(), now=NOW + passed)

    def test_a_head_start_is_not_a_promotion(self) -> None:
        assert effective_priority(table_of(HeadStart()), LOW, 0) is LOW


class TestWeighted:
    def first_served(self, policy: Weighted, turns: int) -> Counter[Priority]:
        tables = policy.tables(turns, random.Random(7).random)
        return Counter(min(Priority, key=lambda priority: table[priority].rank) for table in tables)

    def test_each_priority_is_first_as_often_as_its_weight_says(self) -> None:
        firsts = self.first_served(Weighted(), 15_000)

        assert {priority: round(count / 1_000) for priority, count in firsts.items()} == {
            CRITICAL: 8,
            HIGH: 4,
            MEDIUM: 2,
            LOW: 1,
        }

    def test_every_priority_is_served_while_all_have_work(self) -> None:
        tasks = [waiting(priority, NOW, noise=100 * priority + n) for priority in Priority for n in range(50)]
        tables = {"default": QueueTurns(Weighted().tables(100, random.Random(7).random))}

        assert {task.status.priority for task in serve(tasks, tables, NOW, 100)} == set(Priority)

    @given(st.floats(0.0, 1.0, exclude_max=True), st.builds(Weighted, critical=st.integers(1, 99)))
    def test_every_draw_ranks_each_priority_once(self, luck: float, policy: Weighted) -> None:
        (table,) = policy.tables(1, lambda: luck)

        assert sorted(line.rank for line in table) == [0, 1, 2, 3]

    def test_there_is_a_table_for_every_turn(self) -> None:
        assert len(Weighted().tables(5, random.Random(7).random)) == 5

    @pytest.mark.parametrize("priority", ["critical", "high", "medium", "low"])
    def test_a_priority_without_weight_is_refused(self, priority: str) -> None:
        with pytest.raises(InvalidSettings, match="without service"):
            Weighted(**{priority: 0})


class TestTheReference:
    def test_the_id_breaks_ties(self) -> None:
        second, first = waiting(LOW, NOW, noise=2), waiting(LOW, NOW, noise=1)

        assert served([second, first], Strict()) == [first.id, second.id]

    def test_it_serves_no_more_than_the_limit(self) -> None:
        tasks = [waiting(LOW, NOW, noise=noise) for noise in range(5)]

        assert served(tasks, Strict(), limit=2) == [an_id(noise=0), an_id(noise=1)]
        assert served(tasks, Strict(), limit=0) == []

    def test_each_turn_uses_the_next_table_and_round_again(self) -> None:
        low_first: Table = (Line(3), Line(2), Line(1), Line(0))
        (high_first,) = Strict().tables(1, never)
        tasks = [waiting(priority, NOW, noise=10 * priority + n) for priority in (CRITICAL, LOW) for n in range(3)]

        order = serve(tasks, {"default": QueueTurns((high_first, low_first))}, NOW, 4)

        assert [task.status.priority for task in order] == [CRITICAL, LOW, CRITICAL, LOW]

    def test_each_queue_has_tables_of_its_own(self) -> None:
        promoted = waiting(LOW, NOW - HOUR - SECOND, queue="patient")
        strict = waiting(LOW, NOW - 2 * HOUR, noise=1)
        tables = {
            "patient": QueueTurns(Promote().tables(1, never)),
            "default": QueueTurns(Strict().tables(1, never)),
        }

        assert serve([strict, promoted], tables, NOW, 2) == [promoted, strict]

    @given(
        st.lists(st.tuples(st.sampled_from(Priority), positive), max_size=12),
        st.sampled_from([Promote(), Strict(), HeadStart()]),
        st.randoms(use_true_random=False),
    )
    def test_the_order_does_not_depend_on_how_the_tasks_are_given(
        self, ages: list[tuple[Priority, Span]], policy: Policy, luck: random.Random
    ) -> None:
        tasks = [waiting(priority, NOW - age, noise=noise) for noise, (priority, age) in enumerate(ages)]
        shuffled = tasks.copy()
        luck.shuffle(shuffled)

        assert served(tasks, policy) == served(shuffled, policy)
        assert sorted(served(tasks, policy)) == [task.id for task in tasks]

    @given(
        st.lists(st.tuples(st.sampled_from(Priority), positive), min_size=2, max_size=12),
        st.sampled_from([Promote(), Strict(), HeadStart()]),
    )
    def test_tasks_of_one_priority_are_first_in_first_out(
        self, ages: list[tuple[Priority, Span]], policy: Policy
    ) -> None:
        tasks = [waiting(priority, NOW - age, noise=noise) for noise, (priority, age) in enumerate(ages)]
        by_id = {task.id: task for task in tasks}
        for priority in Priority:
            line = [by_id[task_id] for task_id in served(tasks, policy) if by_id[task_id].status.priority is priority]
            assert line == sorted(line, key=lambda task: (task.status.ready_at, task.id))

    def test_it_leaves_the_tasks_as_they_are(self) -> None:
        task = waiting(LOW, NOW)

        assert serve([task], {"default": QueueTurns(Strict().tables(1, never))}, NOW, 1) == [replace(task)]


class TestSharing:
    """The top is shared: neither an old backlog nor a stream of critical tasks has it alone."""

    def turns(self, policy: Promote, passed: int = 0) -> QueueTurns:
        return QueueTurns(policy.tables(1, never), share_of(policy), passed)

    def words(self, tasks: list[Task], policy: Promote, passed: int, limit: int = 100) -> str:
        """What is served: the first letters of its priorities, capital where it was promoted."""
        order = serve(tasks, {"default": self.turns(policy, passed)}, NOW, limit)
        return "".join(
            task.status.priority.word[0].upper()
            if treated_as(table_of(policy), task, NOW) != task.status.priority
            else task.status.priority.word[0]
            for task in order
        )

    def crowd(self, promoted: int, critical: int, others: int = 2) -> list[Task]:
        old = [waiting(LOW, NOW - 2 * HOUR + n, noise=n) for n in range(promoted)]
        new = [waiting(CRITICAL, NOW - 50 + n, noise=100 + n) for n in range(critical)]
        return [*old, *new, *(waiting(HIGH, NOW - n, noise=200 + n) for n in range(others))]

    @pytest.mark.parametrize(
        ("passed", "order"), [(3, "LcccLcccLhh"), (0, "cccLcccLLhh"), (1, "ccLcccLcLhh"), (2, "cLcccLccLhh")]
    )
    def test_of_every_four_turns_one_goes_to_a_promoted_task(self, passed: int, order: str) -> None:
        assert self.words(self.crowd(3, 6), Promote(), passed) == order

    def test_without_anyone_else_either_has_every_turn(self) -> None:
        assert self.words(self.crowd(4, 0), Promote(), 0) == "LLLLhh"
        assert self.words(self.crowd(0, 6), Promote(), 3) == "cccccchh"

    def test_below_the_top_the_longest_wait_is_first(self) -> None:
        tasks = [waiting(LOW, NOW - 40 * MINUTE, noise=1), waiting(HIGH, NOW - 1, noise=2)]

        assert self.words(tasks, Promote(), 0) == "Lh"
        assert self.words(tasks, Promote(share="all"), 0) == "hL"
        assert self.words(tasks, Promote(share="all"), 3) == "Lh"

    @given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 3), st.integers(1, 40))
    def test_claims_of_one_serve_what_one_claim_would(
        self, promoted: int, critical: int, passed: int, limit: int
    ) -> None:
        tasks = self.crowd(promoted, critical)
        at_once = serve(tasks, {"default": self.turns(Promote(), passed)}, NOW, limit)
        one_by_one: list[Task] = []
        left = tasks
        for _ in range(min(limit, len(tasks))):
            turns = self.turns(Promote(), passed)
            (task,) = serve(left, {"default": turns}, NOW, 1)
            passed = passed_after(turns, [(task.status.priority, NOW - task.status.ready_at)])
            left = [other for other in left if other != task]
            one_by_one.append(task)

        assert one_by_one == at_once

    @given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 3), st.integers(1, 40))
    def test_a_batch_counts_as_its_tasks_do_one_by_one(
        self, promoted: int, critical: int, passed: int, limit: int
    ) -> None:
        for policy in (Promote(), Promote(share="all")):
            turns = self.turns(policy, passed)
            tasks = serve(self.crowd(promoted, critical), {"default": turns}, NOW, limit)
            served = [(task.status.priority, NOW - task.status.ready_at) for task in tasks]
            singly = turns
            for each in served:
                singly = self.turns(policy, passed_after(singly, [each]))
            assert passed_after(turns, served) == singly.passed

    @given(st.integers(1, 12), st.integers(1, 40), st.sampled_from([2, 3, 4, 7]), st.data())
    def test_both_promises_hold(self, promoted: int, critical: int, of: int, data: st.DataObject) -> None:
        passed = data.draw(st.integers(0, of - 1))
        turns = QueueTurns(Promote().tables(1, never), Share(of=of), passed)
        order = serve(self.crowd(promoted, critical, others=0), {"default": turns}, NOW, promoted + critical)
        kinds = [task.status.priority is CRITICAL for task in order]

        for number, at in enumerate((at for at, is_critical in enumerate(kinds) if not is_critical), 1):
            assert sum(kinds[:at]) <= number * (of - 1)
        for number, at in enumerate((at for at, is_critical in enumerate(kinds) if is_critical), 1):
            assert at + 1 - number <= 1 + (number - 1 + passed) // (of - 1)

    def test_strict_and_drawn_orders_share_nothing(self) -> None:
        assert [share_of(policy) for policy in (Strict(), HeadStart(), Weighted())] == [None] * 3

    def test_a_place_to_share_that_there_is_not_is_refused(self) -> None:
        with pytest.raises(InvalidSettings, match="neither 'critical' nor 'all'"):
            Promote(share="high")  # type: ignore[arg-type]


class TestTreatedAs:
    """What the wait of a task makes of its priority."""

    def test_a_waiting_task_is_promoted_as_it_waits(self) -> None:
        table, task = table_of(Promote()), waiting(Priority.LOW, NOW)
        assert treated_as(table, task, NOW) is Priority.LOW
        assert treated_as(table, task, NOW + 10 * MINUTE) is Priority.MEDIUM
        assert treated_as(table, task, NOW + HOUR) is Priority.CRITICAL

    def test_a_claimed_task_stays_what_it_was_treated_as(self) -> None:
        task = a_task(State.COMPLETED, priority=Priority.LOW, ready_at=NOW, started_at=NOW + 10 * MINUTE)
        assert treated_as(table_of(Promote()), task, NOW + DAY) is Priority.MEDIUM

    def test_a_task_that_does_not_wait_yet_has_its_own_priority(self) -> None:
        task = a_task(State.SCHEDULED, priority=Priority.LOW, ready_at=NOW)
        assert treated_as(table_of(Promote()), task, NOW + DAY) is Priority.LOW
