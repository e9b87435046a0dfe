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
from fairlead.engine.explain.forecast import Sight, lane_places, line_causes, place_of
from fairlead.engine.explain.limits_left import LimitLeft, LimitsLeft
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
        assert (place.ahead, place.exact) == (10, False)

    def test_a_worker_that_just_came_is_measured_by_the_time_it_is_there(self) -> None:
        young = busy(since=NOW - 10 * SECOND, per_second=1.0)
        _, forecast = judged(a_sight(the_task(), workers=[young]), {})
        assert forecast.rate == 6.0

    def test_other_queues_of_its_workers_are_named(self) -> None:
        _, forecast = judged(a_sight(the_task(), workers=[busy(queues=("default", "b", "a"))]), {})
        assert "for the latest start: its workers are not busy with their other queues: a, b" in forecast.assumptions

    def test_it_says_when_the_worker_was_last_heard_of(self) -> None:
        silent = busy(seen_at=NOW - 14 * SECOND)
        _, forecast = judged(a_sight(the_task(), workers=[silent]), {})
        assert forecast.assumptions[-1] == "the workers are as they last reported, up to 14s ago"


class TestTheLatestStart:
    def test_a_low_task_passes_whatever_is_younger_within_an_hour(self) -> None:
        """However many urgent tasks are ahead now: 100,000 at 10 a second would take almost three hours."""
        lanes = tally(lane(), 100_000), tally(lane(LOW), 99)
        place, forecast = judged(a_sight(the_task(LOW), *lanes), {lane(): 100_000, lane(LOW): 99}, older=99)
        assert (place.unpassable_from, place.turns_from) == (None, NOW + HOUR)
        assert forecast.latest_start == NOW + HOUR + 4 * 10 * SECOND  # One of four starts is a promoted task's.
        assert forecast.estimated_start is not None and forecast.estimated_start <= forecast.latest_start

    def test_it_does_not_go_by_promotions_that_have_passed(self) -> None:
        low = lane(LOW)
        _, forecast = judged(a_sight(the_task(LOW, waited=2 * HOUR), tally(low, 9)), {low: 9}, older=9)
        assert forecast.latest_start == NOW + 4 * SECOND

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
