"""When a task will start, reckoned from how its queue and the workers stand."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from msgspec.structs import astuple

from fairlead.core.explain.explanation import Forecast, LinePlace
from fairlead.core.instant import HOUR, MINUTE, SECOND, Instant
from fairlead.core.queues.order import HeadStart, Policy, Promote, Strict, Weighted
from fairlead.core.queues.promotion import BEFORE_ALL
from fairlead.core.task import Lane, Priority, State, Task
from fairlead.engine.explain.forecast import lane_places, line_causes, place_of
from fairlead.engine.explain.limits_left import LimitLeft, LimitsLeft
from fairlead.engine.explain.sight import Arrivals, Sight
from fairlead.engine.metrics.throughput import Spent
from fairlead.engine.worker_records import WorkerRecord
from fairlead.storage.values import LaneTally
from tests.engine.test_eligibility import a_worker
from tests.unit.building import NOW, a_spec, a_task

CRITICAL, HIGH, MEDIUM, LOW = Priority


def the_task(priority: Priority = LOW, waited: int = 0) -> Task:
    return a_task(spec=a_spec(created_at=NOW - waited), priority=priority, ready_at=NOW - waited)


def lane(priority: Priority = CRITICAL, task_type: str = "send_mail", requires: tuple[str, ...] = ()) -> Lane:
    return Lane("default", task_type, requires, priority)


def tally(lane: Lane, depth: int, oldest: Instant = NOW - MINUTE) -> LaneTally:
    return LaneTally(lane, {State.QUEUED: depth}, oldest)


def a_sight(task: Task, *lanes: LaneTally, policy: Policy | None = None, **changes: Any) -> Sight:
    workers: list[WorkerRecord] = changes.pop("workers", [busy()])
    return Sight(task=task, now=NOW, policy=policy or Promote(), lanes=lanes, workers=workers, **changes)


def busy(per_second: float = 10.0, **changes: Any) -> WorkerRecord:
    """A worker without a free slot that ended so many tasks per second within the last minute."""
    times = {"since": NOW - HOUR, "seen_at": NOW}
    return a_worker(capacity=4, running=4, completed=round(60 * per_second), **(times | changes))


def judged(sight: Sight, counts: dict[Lane, int], older: int = 0) -> tuple[LinePlace, Forecast]:
    """What is said when so many are ahead in each lane, and so many of them are older."""

    places = lane_places(sight)
    numbers: list[int] = []
    for each in places:
        ahead = counts.get(each.lane, 0)
        last = max((part.end for part in each.parts), key=astuple, default=BEFORE_ALL)
        so_far = 0
        for stretch in each.stretches():
            until = ahead if astuple(stretch.end) >= astuple(last) else min(older, ahead)
            numbers.append(until - so_far)
            so_far = until
    return place_of(sight, places, numbers)


class TestTheEstimate:
    def test_those_ahead_take_their_time(self) -> None:
        place, forecast = judged(a_sight(the_task(), tally(lane(), 99)), {lane(): 99})
        assert (place.ahead, place.position, place.exact) == (99, 100, True)
        assert forecast.rate == 10.0 and forecast.estimated_start == NOW + 10 * SECOND
        assert forecast.assumptions[:2] == (
            "its workers keep the rate of the last minute: 10/s",
            "for the estimate: nothing more urgent is submitted",
        )

    def test_a_free_slot_is_for_now(self) -> None:
        idle = a_worker(running=1, since=NOW, seen_at=NOW)
        place, forecast = judged(a_sight(the_task(), tally(lane(), 2), workers=[idle]), {lane(): 2})
        assert forecast.free_slots == 3 and forecast.estimated_start == NOW
        assert forecast.rate is None and not any("rate" in each for each in forecast.assumptions)
        assert place.ahead == 2

    def test_without_a_pace_nothing_is_estimated_and_the_reason_told(self) -> None:
        _, forecast = judged(a_sight(the_task(), tally(lane(), 9), workers=[busy(0)]), {lane(): 9})
        assert (forecast.estimated_start, forecast.latest_start) == (None, None)
        assert forecast.no_estimate is not None and "how long tasks take is not known" in forecast.no_estimate
        assert forecast.no_latest == forecast.no_estimate and forecast.assumptions == ()

    def test_how_long_tasks_take_and_how_many_slots_there_are_is_better_than_the_pace_of_the_last_minute(self) -> None:
        """A quiet fleet ended next to nothing in the last minute, and is quick all the same."""
        quiet = busy(per_second=0.1)
        sight = a_sight(the_task(), tally(lane(), 399), workers=[quiet], spent=Spent(10, 20 * SECOND))
        _, forecast = judged(sight, {lane(): 399})
        assert forecast.estimated_start == NOW + 400 * 2 * SECOND // 4
        assert "a task takes 2s, the mean of those that ended lately, on 4 slots" in forecast.assumptions

    def test_a_limit_of_its_queue_decides_if_it_is_tighter_than_the_slots(self) -> None:
        """Two may run, and both do: 10 ahead are 5 rounds of 2 seconds, and its own."""
        room = LimitsLeft(queue=LimitLeft(left=0, most=2))
        idle = a_worker(capacity=100, running=2)
        sight = a_sight(the_task(), tally(lane(), 9), workers=[idle], spent=Spent(1, 2 * SECOND), limits=room)
        place, forecast = judged(sight, {lane(): 9})
        assert forecast.estimated_start == NOW + 10 * 2 * SECOND // 2
        assert forecast.latest_start is None and forecast.no_latest is not None and "a limit" in forecast.no_latest
        assert place.position is None and place.unreached is not None and "no more may start now" in place.unreached

    def test_a_rate_spaces_the_starts(self) -> None:
        room = LimitsLeft(types={"send_mail": LimitLeft(left=1, interval=SECOND)})
        sight = a_sight(the_task(), tally(lane(), 3), workers=[a_worker(capacity=100)], limits=room)
        place, forecast = judged(sight, {lane(): 3})
        assert forecast.estimated_start == NOW + 3 * SECOND
        assert place.unreached == "1 more may start now of the task type send_mail, by its limit"

    def test_those_that_a_limit_holds_back_are_not_ahead(self) -> None:
        other = lane(task_type="other")
        room = LimitsLeft(types={"other": LimitLeft(left=2, most=5)})
        place, _ = judged(a_sight(the_task(), tally(other, 50), tally(lane(), 3), limits=room), {other: 50, lane(): 3})
        assert (place.ahead, place.position) == (5, 6)
        assert sum(place.ahead_by_priority.values()) == 5

    def test_other_queues_of_the_same_workers_are_ahead_too(self) -> None:
        elsewhere = Lane("other", "send_mail", (), CRITICAL)
        sight = a_sight(
            the_task(), tally(elsewhere, 7), tally(lane(), 3), policies={"other": Strict(), "default": Promote()}
        )
        place, _ = judged(sight, {elsewhere: 7, lane(): 3})
        assert (place.ahead, place.exact) == (10, True)
        for policy in (Weighted(), Promote(share="all")):
            sight = a_sight(the_task(), tally(elsewhere, 7), tally(lane(), 3), policies={"other": policy})
            assert not judged(sight, {elsewhere: 7, lane(): 3})[0].exact

    def test_a_worker_that_just_came_is_measured_by_the_time_it_is_there(self) -> None:
        young = busy(since=NOW - 10 * SECOND, per_second=1.0)
        _, forecast = judged(a_sight(the_task(), workers=[young]), {})
        assert forecast.rate == 6.0

    def test_other_queues_of_its_workers_are_named(self) -> None:
        _, forecast = judged(a_sight(the_task(), workers=[busy(queues=("default", "b", "a"))]), {})
        assert forecast.no_latest == "its workers may be busy with their other queues: a, b"

    def test_it_says_when_the_worker_was_last_heard_of(self) -> None:
        silent = busy(seen_at=NOW - 14 * SECOND)
        _, forecast = judged(a_sight(the_task(), workers=[silent]), {})
        assert forecast.assumptions[-1] == "the workers are as they last reported, up to 14s ago"
        silent = busy(seen_at=NOW - 14 * SECOND, heartbeat=10 * SECOND)
        _, forecast = judged(a_sight(the_task(), workers=[silent, busy(heartbeat=10 * SECOND)]), {})
        assert forecast.assumptions[-1].endswith("still runs: last heard of 14s ago, and due every 10s")

    def test_what_still_comes_before_it_is_part_of_the_wait(self) -> None:
        """Ten end per second and six urgent ones come: four are left for the 40 before it and for it."""
        arrivals = Arrivals({lane(): 6.0, lane(LOW): 1.0})
        sight = a_sight(the_task(LOW), tally(lane(LOW), 39), arrivals=arrivals)
        _, forecast = judged(sight, {lane(LOW): 39})
        assert forecast.estimated_start is not None
        assert abs((forecast.estimated_start - NOW) / SECOND - 10) < 0.5
        assert "for the estimate: tasks keep coming as they did lately" in forecast.assumptions
        _, critical = judged(a_sight(the_task(CRITICAL), tally(lane(), 39), arrivals=arrivals), {lane(): 39})
        assert critical.estimated_start == NOW + 4 * SECOND

    def test_a_strict_order_may_never_let_it_start(self) -> None:
        arrivals = Arrivals({lane(): 10.0})
        _, forecast = judged(a_sight(the_task(LOW), policy=Strict(), arrivals=arrivals), {})
        assert forecast.estimated_start is None and forecast.no_estimate is not None
        assert "come as fast" in forecast.no_estimate

    def test_after_a_burst_nothing_is_expected(self) -> None:
        """Since the oldest came, a minute ago, no other of its lane has."""
        before, waiting = Arrivals({lane(LOW): 5.0}), [tally(lane(LOW), 40)]
        assert before.seen(lane(LOW), waiting, [0], NOW).rates[lane(LOW)] < 0.5
        assert before.seen(lane(LOW), waiting, [300], NOW).rates == {lane(LOW): 5.0}

    def test_what_executes_by_the_store_goes_before_what_workers_last_said(self) -> None:
        idle = a_worker(running=0, capacity=4, since=NOW, seen_at=NOW)
        sight = a_sight(the_task(), tally(lane(), 3), workers=[idle], spent=Spent(1, SECOND), running=4)
        _, forecast = judged(sight, {lane(): 3})
        assert forecast.free_slots == 0 and forecast.estimated_start == NOW + SECOND

    def test_workers_of_several_kinds_and_turns_that_others_take_make_it_about_right(self) -> None:
        other = busy(types=("other", "send_mail"))
        place, _ = judged(a_sight(the_task(), tally(lane(), 3), workers=[busy(), other]), {lane(): 3})
        assert not place.exact
        waited = the_task(LOW, waited=2 * HOUR)
        for passed, exact in ((None, False), (3, True)):
            place, _ = judged(a_sight(waited, tally(lane(), 3), passed=passed), {lane(): 3})
            assert place.exact is exact


class TestTheLatestStart:
    def test_a_low_task_passes_whatever_is_younger_within_an_hour(self) -> None:
        """However many urgent tasks are ahead now: 100,000 at 10 a second would take almost three hours."""
        lanes = tally(lane(), 100_000), tally(lane(LOW), 99)
        place, forecast = judged(a_sight(the_task(LOW), *lanes), {lane(): 100_000, lane(LOW): 99}, older=99)
        assert (place.unpassable_from, place.turns_from) == (None, NOW + HOUR)
        # One of four starts is a promoted task's. A promise allows for half as long again, and for ten times 0.4 s.
        assert forecast.latest_start == NOW + HOUR + 4 * 10 * SECOND * 3 // 2 + 4 * SECOND
        assert forecast.estimated_start is not None and forecast.estimated_start <= forecast.latest_start

    def test_it_does_not_go_by_promotions_that_have_passed(self) -> None:
        low = lane(LOW)
        _, forecast = judged(a_sight(the_task(LOW, waited=2 * HOUR), tally(low, 9)), {low: 9}, older=9)
        assert forecast.latest_start == NOW + 4 * SECOND * 3 // 2 + 4 * SECOND

    def test_a_strict_order_bounds_only_what_is_critical(self) -> None:
        _, high = judged(a_sight(the_task(HIGH), policy=Strict()), {})
        assert high.latest_start is None and high.no_latest is not None and "strict" in high.no_latest
        _, critical = judged(a_sight(the_task(CRITICAL), policy=Strict()), {})
        assert critical.latest_start is not None

    def test_a_head_start_bounds_nothing_while_it_can_still_help_others(self) -> None:
        _, young = judged(a_sight(the_task(LOW, waited=MINUTE), policy=HeadStart()), {})
        assert young.latest_start is None and young.no_latest is not None and "head start" in young.no_latest
        _, old = judged(a_sight(the_task(LOW, waited=HOUR), policy=HeadStart()), {})
        assert old.latest_start is not None

    def test_drawn_turns_bound_nothing_and_are_told_by_even_luck(self) -> None:
        lanes = tally(lane(LOW), 10), tally(lane(CRITICAL), 1_000)
        place, forecast = judged(a_sight(the_task(LOW), *lanes, policy=Weighted()), {lane(LOW): 9})
        assert place.ahead_by_priority == {CRITICAL: 80, HIGH: 0, MEDIUM: 0, LOW: 9}
        assert not place.exact and place.unpassable_from is None and place.next_promotion is None
        assert forecast.latest_start is None and forecast.estimated_start == NOW + 9 * SECOND


def test_a_lane_is_counted_in_a_handful_of_stretches_whatever_waits() -> None:
    task = the_task(LOW, waited=2 * HOUR)
    places = lane_places(a_sight(task, *(tally(lane(priority), 1_000_000) for priority in Priority)))
    stretches = [stretch for each in places for stretch in each.stretches()]
    assert len(stretches) <= 5 * len(Priority)
    for start, end in pairwise(each for each in stretches if each.lane == lane(LOW)):
        assert start.end == end.start


class TestTheWords:
    def words(self, sight: Sight, counts: dict[Lane, int]) -> list[str]:
        return [cause.text for cause in line_causes(*judged(sight, counts))]

    def test_busy_workers_and_tasks_ahead(self) -> None:
        assert self.words(a_sight(the_task(), tally(lane(), 1)), {lane(): 1}) == [
            "1 task is ahead of it, as they are treated: 1 critical",
            "the worker that could take it is busy",
        ]

    def test_next_in_line(self) -> None:
        (said,) = self.words(a_sight(the_task(), workers=[a_worker()]), {})
        assert said.startswith("nothing is ahead of it")
