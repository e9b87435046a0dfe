"""Turns: who is served when keys share a line, and for each odd rule what happens without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from msgspec.structs import replace

from fairlead.core.errors import Forbidden, InvalidSettings, InvalidTask
from fairlead.core.instant import HOUR, SECOND
from fairlead.core.queues import fairness
from fairlead.core.queues.fairness import (
    STEP,
    FairRule,
    LineTurns,
    after_fair,
    after_others,
    check_fair,
    check_weight,
    entry_turn,
    queue_turn,
    step_of,
)
from fairlead.core.queues.order import Promote, QueueTurns, Share, Strict, passed_after, serve, share_of
from fairlead.core.queues.queue import QueueSettings, changed
from fairlead.core.settings import Settings, effective
from fairlead.core.submission import Submission, accept, of_bound
from fairlead.core.task import Fair, Priority, Task
from fairlead.testing.builders import NOW, a_spec, a_task, an_id

LOW = Priority.LOW
SHARED = Promote(share="all")


class Line:
    """The waiting tasks of one queue and priority, and what a store keeps of them: slow and obvious."""

    def __init__(self, policy: Promote | Strict = SHARED, passed: int = 0) -> None:
        self.waiting: list[Task] = []
        self.lines: dict[tuple[str, Priority], LineTurns] = {}
        self.policy = policy
        self.turns = QueueTurns(policy.tables(1, lambda: 0.0), share_of(policy), passed)
        self.can_take: Callable[[Task], bool] = lambda _: True

    @property
    def reached(self) -> int:
        return self.lines.get(("default", Priority.MEDIUM), LineTurns()).reached

    def add(self, key: str | None, count: int = 1, weight: float = 1, **options: Any) -> Task:
        task = a_task()
        for _ in range(count):
            task = a_task(fair=key, weight=weight, **options)
            if task.spec.fair is not None:
                alike = [other.status.turn for other in self.waiting if other.spec.fair_key == key]
                turn = queue_turn(0, self.reached, max(alike, default=0), task.spec.fair.step)
                task = Task(task.spec, replace(task.status, turn=turn))
            self.waiting.append(task)
        return task

    def serve(self, count: int = 1, now: int = NOW) -> str:
        """The keys of those that are served by claims of one task."""
        keys = ""
        for _ in range(count):
            able = [task for task in self.waiting if self.can_take(task)]
            for task in serve(able, {"default": self.turns}, now, 1, self.lines):
                self.waiting.remove(task)
                waited = now - task.status.ready_at
                passed = passed_after(self.turns, [(task.status.priority, waited)])
                self.turns = replace(self.turns, passed=passed)
                keys += task.spec.fair_key or "-"
        if not any(task.spec.fair is not None for task in self.waiting):
            self.lines.clear()
        return keys

    def serve_all(self) -> list[str]:
        """The ids of all that wait in the order in which they would be served; they stay."""
        return [
            task.id for task in serve(self.waiting, {"default": self.turns}, NOW, len(self.waiting), dict(self.lines))
        ]


def test_a_key_is_second_behind_any_backlog_of_another() -> None:
    line = Line()
    line.add("A", 1_000)
    line.add("B")
    assert line.serve(3) == "ABA"


@pytest.mark.parametrize(("weights", "share"), [((3, 1), 0.75), ((1, 1), 0.5), ((0.5, 2), 0.2), ((100, 1), 100 / 101)])
def test_keys_have_turns_as_their_weights_say(weights: tuple[float, float], share: float) -> None:
    line = Line(Strict())
    line.add("A", 250, weights[0])
    line.add("B", 250, weights[1])
    assert line.serve(202).count("A") == pytest.approx(202 * share, abs=2)


def _least_waiting(line: Line) -> int:
    return max(0, min((task.status.turn for task in line.waiting), default=0) - STEP)


def test_what_was_reached_goes_on_behind_a_head_that_nobody_can_take(monkeypatch: pytest.MonkeyPatch) -> None:
    def third_of_a_new_key() -> int:
        line = Line(Strict())
        line.can_take = lambda task: task.spec.type != "nobody"
        line.add("X", type="nobody")
        line.add("A", 400)
        line.serve(200)
        line.add("B", 400)
        return line.serve(200).count("B")

    assert third_of_a_new_key() == 100
    # If the line were where its least waiting turn is, X would hold it at its beginning, and B would have saved turns.
    monkeypatch.setattr(Line, "reached", property(_least_waiting))
    assert third_of_a_new_key() == 200


def test_a_backlog_older_than_every_bound_does_not_go_before_a_new_key() -> None:
    def place_of_b(policy: Promote) -> int:
        line = Line(policy)
        line.add("A", 100, ready_at=NOW - 5 * HOUR)
        line.add("B")
        return line.serve(101).index("B") + 1

    assert place_of_b(SHARED) == 2
    # If age went first wherever somebody was promoted, as in queues that no fair keys share.
    assert place_of_b(Promote()) == 101


def test_new_keys_without_end_do_not_starve_an_old_one() -> None:
    def served(policy: Promote | Strict) -> int:
        line = Line(policy)
        line.add("A", 50, ready_at=NOW - 2 * HOUR)
        keys = ""
        for number in range(200):
            line.add(f"{number % 10}")
            line.add("n" if number % 2 else "m")
            keys += line.serve()
        return keys.count("A")

    assert served(SHARED) >= 50
    # Without any order by age it has no more than its share of turns, which shrinks with every key that comes.
    assert served(Strict()) < 30


def test_who_may_choose_its_key_takes_nearly_every_turn() -> None:
    line = Line(Strict())
    line.add("A", 100)
    for number in range(100):
        line.add(f"made up {number}")
    assert sum(key == "A" for key in line.serve(100)[:100]) <= 2
    rule = FairRule("tenant")
    wish = of_bound(Submission(type="work", tenant="acme"), "acme")
    assert accept(wish, an_id(), NOW, Settings(), rule).spec.fair == Fair("acme")
    with pytest.raises(Forbidden, match="chooses no fair key; leave it out"):
        accept(replace(wish, fair_key="other"), an_id(), NOW, Settings(), rule)
    for by in ("type", "tag:customer", "parameter:account"):
        with pytest.raises(Forbidden, match=r"is shared by .*; use a queue that is shared by tenant"):
            accept(wish, an_id(), NOW, Settings(), FairRule(by))
    # Who is bound to none may choose.
    free = Submission(type="work", tenant="acme", fair_key="other")
    assert accept(free, an_id(), NOW, Settings(), rule).spec.fair == Fair("other")


def test_after_a_rebuild_a_new_key_has_saved_nothing() -> None:
    line = Line(Strict())
    line.add("A", 400)
    line.serve(100)
    kept = Line(Strict())
    kept.waiting = list(line.waiting)
    kept.add("B", 200)
    # If a rebuild kept turns and not what was reached.
    assert kept.serve(100) == "B" * 100
    anew = Line(Strict())
    for _ in line.waiting:
        anew.add("A")
    anew.add("B", 200)
    assert anew.serve(100).count("B") == 50


def test_tasks_without_a_key_wait_no_longer_than_one_key_would() -> None:
    line = Line(Strict())
    line.add(None, 30)
    keys = ""
    for _ in range(30):
        line.add("A")
        line.add("B")
        keys += line.serve()
    # If their turn were counted anew by each claim, two keys that come again and again would always be before them.
    assert keys.count("-") == pytest.approx(10, abs=1)


def test_the_turn_of_the_others_is_kept_from_the_first_time_that_they_are_met() -> None:
    line = LineTurns()
    assert line.turn_of_others == STEP
    met = after_fair(line, STEP, others_wait=True)
    assert met == LineTurns(STEP, STEP)
    assert after_others(met, fair_wait=True) == LineTurns(STEP, 2 * STEP)
    assert after_others(met, fair_wait=False) == met
    assert after_fair(line, STEP, others_wait=False) == LineTurns(STEP, 0)


def test_who_is_handed_back_is_not_behind_what_was_reached_and_who_comes_anew_is_not_before_it() -> None:
    assert queue_turn(7 * STEP, 9 * STEP, 0, STEP) == 7 * STEP
    assert queue_turn(90 * STEP, 0, 0, STEP) == STEP
    assert queue_turn(0, 9 * STEP, 12 * STEP, STEP) == 13 * STEP
    assert entry_turn(9 * STEP, 0, STEP) == 10 * STEP


def test_a_stream_of_promoted_tasks_does_not_keep_older_ones_from_their_turn() -> None:
    policy = Promote(low=10, medium=10, high=10, share="all")
    turns = QueueTurns(policy.tables(1, lambda: 0.0), share_of(policy))
    old = a_task(priority=LOW, ready_at=NOW - 25)
    waiting = [old, *(a_task(priority=Priority.MEDIUM, ready_at=NOW - 15) for _ in range(9))]
    assert old in serve(waiting, {"default": turns}, NOW, 4)


@given(
    arrivals=st.lists(st.tuples(st.sampled_from("ABCDE"), st.integers(0, 2)), min_size=1, max_size=60),
    weights=st.fixed_dictionaries({key: st.sampled_from((1, 1, 2, 3, 0.5)) for key in "ABCDE"}),
)
def test_every_task_starts_within_its_bound(arrivals: list[tuple[str, int]], weights: dict[str, float]) -> None:
    """A task m steps of weight 1 beyond what was reached starts within m * W + n turns, if nobody is promoted."""
    line = Line(Strict())
    due: dict[str, float] = {}
    whole = sum(weights.values())
    served = 0
    for key, claims in arrivals:
        task = line.add(key, weight=weights[key])
        distance = (task.status.turn - line.reached) / STEP
        due[task.id] = served + distance * whole + len(weights) + 1
        for _ in range(claims):
            if line.waiting:
                before = {task.id for task in line.waiting}
                line.serve()
                served += 1
                (gone,) = before - {task.id for task in line.waiting}
                assert served <= due[gone]


@given(keys=st.lists(st.sampled_from("ABC"), min_size=1, max_size=40), claims=st.integers(1, 40))
def test_of_one_key_first_comes_first(keys: list[str], claims: int) -> None:
    line = Line(Strict())
    ids: dict[str, list[str]] = {}
    for key in keys:
        ids.setdefault(key, []).append(line.add(key).id)
    taken: dict[str, list[str]] = {}
    for _ in range(min(claims, len(keys))):
        before = list(line.waiting)
        line.serve()
        (gone,) = [task for task in before if task not in line.waiting]
        taken.setdefault(gone.spec.fair_key or "", []).append(gone.id)
    assert all(ids[key][: len(order)] == order for key, order in taken.items())


def test_steps_are_whole_numbers_of_any_weight() -> None:
    assert [step_of(weight) for weight in (1, 3, 0.01, 100, 7.5)] == [5_040, 1_680, 504_000, 50, 672]


@pytest.mark.parametrize("wrong", [0, -1, 0.001, 101, float("nan"), float("inf"), "3", None, True])
def test_what_is_no_weight_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidSettings, match=r"weight .* is not a weight; use a number from 0.01 to 100"):
        check_weight("weight", wrong)


@pytest.mark.parametrize("wrong", ["", "tenants", "tag", "tag:", "parameter:", "type:x", 3, "parameter:" + "x" * 600])
def test_what_is_nothing_to_share_by_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidSettings, match="fair"):
        check_fair("fair", wrong)


@pytest.mark.parametrize(
    ("by", "key"),
    [
        ("tenant", "acme"),
        ("type", "mail"),
        ("tag:customer", "7"),
        ("tag:other", None),
        ("parameter:account", "12"),
        ("parameter:flag", "true"),
        ("parameter:name", "Ada"),
        ("parameter:empty", None),
        ("parameter:list", None),
        ("parameter:missing", None),
    ],
)
def test_a_rule_finds_the_key_of_a_task(by: str, key: str | None) -> None:
    parameters = b'{"account":12,"flag":true,"name":"Ada","empty":"","list":[1]}'
    spec = a_spec(type="mail", tenant="acme", tags=["urgent", "customer:7"], parameters=parameters)
    fair = FairRule(check_fair("fair", by)).fair(spec, None)
    assert (None if fair is None else fair.key) == key


def test_a_fair_key_out_of_parameters_stays_small() -> None:
    for text in ("x" * 100_000, "y" * 501):
        spec = a_spec(parameters=b'{"name":"%s"}' % text.encode())
        fair = FairRule("parameter:name").fair(spec, None)
        assert fair is not None
        assert len(fair.key) == 32


def test_a_task_with_a_concurrency_key_takes_no_turns_of_its_own() -> None:
    assert FairRule("tenant").fair(a_spec(tenant="acme", concurrency_key="k"), "chosen") is None


@pytest.mark.parametrize("wrong", ["", 3, b"x", "x" * 600])
def test_a_fair_key_that_is_no_text_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidTask, match="fair_key"):
        accept(Submission(type="work", fair_key=wrong), an_id(), NOW, Settings())


def test_a_queue_says_by_what_it_is_shared_and_with_which_weights() -> None:
    own = changed(QueueSettings(), {"fair": "tenant", "weight": {"acme": 3}, "default_weight": 2})
    assert own.fair_rule == FairRule("tenant", {"acme": 3}, 2)
    own = changed(own, {"weight": {"other": 0.5, "acme": None}})
    assert own.fair_rule == FairRule("tenant", {"other": 0.5}, 2)
    assert changed(own, {"fair": None}).fair_rule is None
    with pytest.raises(InvalidSettings, match="weight of acme 0 is not a weight"):
        changed(own, {"weight": {"acme": 0}})


def test_where_fair_keys_share_a_queue_promoted_tasks_have_turns_at_every_rank() -> None:
    order = effective(Settings(), QueueSettings(fair="tenant")).order
    assert share_of(order) == Share(everywhere=True)
    assert effective(Settings(order=Strict()), QueueSettings(fair="tenant")).order == Strict()
    assert share_of(effective(Settings(), QueueSettings(bound=5)).order) == Share()


def test_a_turn_is_exact_as_a_score_of_redis_for_longer_than_anybody_lives() -> None:
    turns = 2**53 // fairness.STEP
    assert turns / 10_000 * SECOND > 5 * 365 * 24 * HOUR


@given(
    keys=st.lists(st.sampled_from(["A", "B", "C", None]), min_size=1, max_size=30),
    promoted=st.integers(0, 8),
    passed=st.integers(0, 3),
)
def test_a_task_is_served_at_one_of_its_places(keys: list[str | None], promoted: int, passed: int) -> None:
    line = Line(Promote(low=10, medium=10, high=10, share="all"), passed)
    for _ in range(promoted):
        line.add("old", ready_at=NOW - 12)
    for key in keys:
        line.add(key)
    fair = [task for task in line.waiting if task.spec.fair is not None and task.status.ready_at == NOW]
    for task in fair:
        mine, order = (task.status.turn, task.id), line.serve_all()
        before = [other for other in line.waiting if other.spec.fair and (other.status.turn, other.id) < mine]
        plain = sum(other.spec.fair is None for other in line.waiting)
        behind = sum(other.spec.fair_key == "old" and other not in before for other in line.waiting)
        ahead = len(before) + fairness.others_before(LineTurns(), task.status.turn, plain)
        least, most = fairness.places(ahead, behind, 3)
        # Of a task without a key at the same turn the id decides.
        assert least - promoted <= order.index(task.id) + 1 <= most + 1


def test_places_of_promoted_tasks_and_shares_of_keys() -> None:
    assert fairness.latest_place_by_age(0, 3, 1) == 4
    assert fairness.latest_place_by_age(2, 3, 4) == 21
    assert fairness.key_share(3, [1]) == 0.75
    assert fairness.key_share(1, [1] * 4) == 0.2
    assert fairness.others_before(LineTurns(), STEP, 9) == 0
    assert fairness.others_before(LineTurns(), 3 * STEP, 9) == 2
    assert fairness.others_before(LineTurns(), 30 * STEP, 9) == 9
    assert fairness.others_before(LineTurns(9 * STEP, 10 * STEP), STEP, 9) == 0
