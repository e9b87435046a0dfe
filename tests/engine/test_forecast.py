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
        last = max((end for _, end in each.parts), key=astuple, default=BEFORE_ALL)
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
        assert forecast.no_estimate is not None and "their rate is not known" in forecast.no_estimate
        assert forecast.no_latest == forecast.no_estimate and forecast.assumptions == ()

    def test_only_those_count_that_the_same_workers_would_take(self) -> None:
        """Tasks for others, and of types that are paused, are ahead in the order but keep nobody busy."""
        gpu, paused = lane(requires=("gpu",)), lane(task_type="paused")
        lanes = tally(gpu, 1_000), tally(paused, 500), tally(lane(), 9)
        sight = a_sight(the_task(), *lanes, paused_types={"paused"})
        place, forecast = judged(sight, {gpu: 1_000, paused: 500, lane(): 9})
        assert place.ahead == 1_509
        assert forecast.estimated_start == NOW + SECOND

    def test_a_worker_that_just_came_is_measured_by_the_time_it_is_there(self) -> None:
        young = busy(since=NOW - 10 * SECOND, per_second=1.0)
        _, forecast = judged(a_sight(the_task(), workers=[young]), {})
        assert forecast.rate == 6.0

    def test_other_queues_of_its_workers_are_named(self) -> None:
        _, forecast = judged(a_sight(the_task(), workers=[busy(queues=("default", "b", "a"))]), {})
        assert "its workers are not busy with their other queues: a, b" in forecast.assumptions


class TestTheLatestStart:
    def test_a_low_task_passes_whatever_is_younger_within_an_hour(self) -> None:
        """However many urgent tasks are ahead now: 100,000 at 10 a second would take almost three hours."""
        place, forecast = judged(a_sight(the_task(LOW), tally(lane(), 100_000)), {lane(): 100_000}, older=99)
        assert place.unpassable_from == NOW + HOUR
        assert forecast.latest_start == NOW + HOUR + 10 * SECOND
        assert forecast.estimated_start is not None and forecast.estimated_start <= forecast.latest_start

    def test_it_does_not_go_by_promotions_that_have_passed(self) -> None:
        _, forecast = judged(a_sight(the_task(LOW, waited=2 * HOUR), tally(lane(), 9)), {lane(): 9}, older=9)
        assert forecast.latest_start == NOW + SECOND

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
