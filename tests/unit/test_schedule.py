"""Which fire times a schedule submits: the decision, without a store or a clock."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.core.errors import InvalidSchedule, InvalidTask
from fairlead.core.identity import TaskId
from fairlead.core.instant import DAY, HOUR, MINUTE, SECOND, Instant
from fairlead.core.schedule import (
    ON_TIME,
    TAKEN_OVER_AFTER,
    Decision,
    Fire,
    Missed,
    Overlap,
    Schedule,
    ScheduleEntry,
    ScheduleStatus,
    check,
    decided,
    fires,
    moment_of,
    next_time,
    upcoming,
)
from fairlead.core.submission import Submission

T0: Instant = 1_800_000_000_000_000
"""A whole multiple of five minutes."""


def a_schedule(**fields: Any) -> Schedule:
    wish: dict[str, Any] = {"name": "report", "cron": "*/5 * * * *", "submission": Submission(type="make_report")}
    return Schedule(**(wish | fields))


def decide(now: Instant, next_at: Instant | None = T0, *, busy: bool = False, **fields: Any) -> Decision:
    return fires(a_schedule(**fields), ScheduleStatus(next_at=next_at), now, busy=busy)


def test_nothing_fires_before_its_time() -> None:
    assert decide(T0 - 1) == Decision((), T0)


def test_a_fire_time_fires_once_it_is_there() -> None:
    assert decide(T0) == Decision((T0,), T0 + 5 * MINUTE)


@pytest.mark.parametrize(
    ("missed", "cap", "late", "count"),
    [
        (Missed.SKIP, 100, ON_TIME, 1),
        (Missed.SKIP, 100, ON_TIME + 1, 0),
        (Missed.SKIP, 100, HOUR + SECOND, 1),
        (Missed.SKIP, 100, HOUR + 2 * MINUTE, 0),
        (Missed.RUN_ONCE, 100, ON_TIME + 1, 1),
        (Missed.RUN_ONCE, 100, HOUR + SECOND, 1),
        (Missed.RUN_ONCE, 100, 30 * DAY + 2 * MINUTE, 1),
        (Missed.RUN_ALL, 100, HOUR + 2 * MINUTE, 13),
        (Missed.RUN_ALL, 10, HOUR + 2 * MINUTE, 10),
        (Missed.RUN_ALL, 1, HOUR, 1),
        (Missed.RUN_ALL, 1000, 365 * DAY, 1000),
    ],
)
def test_missed_fire_times_are_treated_as_the_schedule_says(missed: Missed, cap: int, late: int, count: int) -> None:
    decision = decide(T0 + late, missed=missed, missed_cap=cap)
    last = T0 + late - late % (5 * MINUTE)
    assert decision.next_at == last + 5 * MINUTE
    assert decision.times == tuple(last - step * 5 * MINUTE for step in reversed(range(count)))


def test_late_is_not_missed_when_it_recurs_more_often_than_anyone_looks() -> None:
    for missed in Missed:
        decision = decide(T0 + 3 * SECOND, cron="every second", missed=missed)
        assert decision.times == tuple(T0 + step * SECOND for step in range(4))


@pytest.mark.parametrize(("missed", "count"), [(Missed.SKIP, 1), (Missed.RUN_ONCE, 1), (Missed.RUN_ALL, 5)])
@pytest.mark.parametrize("away", [ON_TIME + SECOND, 10 * MINUTE, 30 * DAY])
def test_after_an_outage_the_last_half_minute_is_treated_as_the_schedule_says_too(
    missed: Missed, count: int, away: int
) -> None:
    now = T0 + away
    decision = decide(now, cron="every second", missed=missed, missed_cap=5)
    assert decision == Decision(tuple(now - step * SECOND for step in reversed(range(count))), now + SECOND)


@pytest.mark.parametrize("missed", list(Missed))
def test_as_long_as_none_is_late_nobody_was_away(missed: Missed) -> None:
    decision = decide(T0 + ON_TIME, cron="every second", missed=missed, missed_cap=5)
    assert decision.times == tuple(T0 + step * SECOND for step in range(31))


@pytest.mark.parametrize("missed", list(Missed))
def test_what_waits_for_the_jitter_of_the_one_before_is_not_late(missed: Missed) -> None:
    schedule = a_schedule(cron="every 10 seconds", jitter=2 * MINUTE, missed=missed, missed_cap=1)
    next_at: Instant | None = T0
    seen: list[Instant] = []
    for now in range(T0, T0 + HOUR, SECOND):
        decision = fires(schedule, ScheduleStatus(next_at=next_at), now)
        seen, next_at = [*seen, *decision.times], decision.next_at
    assert seen == [T0 + step * 10 * SECOND for step in range(len(seen))]
    assert len(seen) > 340

    decision = fires(schedule, ScheduleStatus(next_at=T0), T0 + HOUR)
    assert len(decision.times) == 1, "after an outage it is as the schedule says"


def test_a_month_of_missed_seconds_is_decided_at_once() -> None:
    decision = decide(T0 + 30 * DAY, cron="* * * * * *", missed=Missed.RUN_ALL, missed_cap=50)
    assert len(decision.times) == 50
    decision = decide(T0 + 30 * DAY, cron="*/20 * * * * *", missed=Missed.RUN_ALL, missed_cap=50)
    assert len(decision.times) == 50
    assert decision.times[-1] == T0 + 30 * DAY


def test_while_the_task_before_runs_skip_fires_nothing_and_replace_fires_the_last() -> None:
    now = T0 + HOUR
    assert decide(now, busy=True, overlap=Overlap.SKIP) == Decision((), now + 5 * MINUTE)
    assert decide(now, overlap=Overlap.SKIP, missed=Missed.RUN_ALL).times == (now,)
    assert decide(now, busy=True, overlap=Overlap.REPLACE, missed=Missed.RUN_ALL).times == (now,)
    assert len(decide(now, busy=True, missed=Missed.RUN_ALL).times) == 13


def test_a_paused_schedule_and_one_that_has_ended_fire_nothing() -> None:
    paused = ScheduleStatus(next_at=T0, paused=True)
    assert fires(a_schedule(), paused, T0 + DAY) == Decision((), T0)
    assert decide(T0 + DAY, None) == Decision((), None)
    assert decide(T0 + DAY, end=T0 + 7 * MINUTE, missed=Missed.RUN_ALL) == Decision((T0, T0 + 5 * MINUTE), None)


def test_nothing_fires_before_the_start_or_after_the_end() -> None:
    schedule = a_schedule(start=T0 + 1, end=T0 + 15 * MINUTE)
    assert list(upcoming(schedule, T0 - DAY)) == [T0 + step * 5 * MINUTE for step in (1, 2, 3)]
    assert next_time(a_schedule(start=T0), T0 - DAY) == T0


def test_an_interval_begins_at_the_start() -> None:
    schedule = a_schedule(cron="every 7 seconds", start=T0 + 3 * SECOND)
    assert next_time(schedule, 0) == T0 + 3 * SECOND
    assert next_time(schedule, T0 + 3 * SECOND) == T0 + 10 * SECOND


def test_jitter_is_the_same_for_everyone_and_differs_between_fire_times_and_names() -> None:
    schedule = a_schedule(jitter=MINUTE)
    moments = [moment_of(schedule, T0 + step * 5 * MINUTE) - step * 5 * MINUTE - T0 for step in range(50)]
    assert all(0 <= late <= MINUTE for late in moments)
    assert len(set(moments)) == 50
    assert moments[0] == 48_608_852, "a value that every version and process must agree on"
    assert moment_of(a_schedule(name="other", jitter=MINUTE), T0) != moment_of(schedule, T0)


def test_a_fire_time_waits_for_its_jitter_and_is_on_time_then() -> None:
    schedule, status = a_schedule(jitter=MINUTE, missed=Missed.SKIP), ScheduleStatus(next_at=T0)
    moment = moment_of(schedule, T0)
    assert fires(schedule, status, moment - 1) == Decision((), T0)
    assert fires(schedule, status, moment + ON_TIME) == Decision((T0,), T0 + 5 * MINUTE)


def test_a_decision_is_written_down_with_the_tasks_that_are_to_come() -> None:
    status = ScheduleStatus(next_at=T0, last_task=TaskId("before"), failure="the queue is full")
    schedule = a_schedule(overlap=Overlap.REPLACE)
    after = decided(schedule, status, Decision((T0,), T0 + MINUTE), [TaskId("now")], T0 + SECOND, busy=True)
    fire = Fire(at=T0, task=TaskId("now"), since=T0 + SECOND, replaces=TaskId("before"))
    assert after == ScheduleStatus(next_at=T0 + MINUTE, last_at=T0, last_task=TaskId("now"), fired=1, pending=(fire,))
    assert ScheduleEntry(schedule, after).attention == T0 + SECOND + TAKEN_OVER_AFTER
    assert decided(schedule, status, Decision((), None), [], T0).last_task == "before"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"cron": "nonsense"}, "cron"),
        ({"timezone": "Nowhere"}, "timezone"),
        ({"missed_cap": 0}, "missed_cap"),
        ({"jitter": -1}, "jitter"),
        ({"jitter": 2 * HOUR}, "jitter"),
        ({"start": -1}, "start"),
        ({"start": T0, "end": T0 - 1}, "end"),
        ({"submission": Submission(type="x", delay=SECOND)}, "delay"),
        ({"submission": Submission(type="x", run_at=T0)}, "run_at"),
        ({"submission": Submission(type="x", idempotency_key="k")}, "idempotency_key"),
    ],
)
def test_what_can_never_fire_is_refused_by_the_field_at_fault(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidTask) as raised:
        check(a_schedule(**fields))
    assert raised.value.field == field
    assert "; " in str(raised.value), "it names a remedy"
    assert isinstance(raised.value, InvalidSchedule) or field == "name"


@settings(deadline=None)
@given(
    st.sampled_from(["*/5 * * * *", "every 7 seconds", "@hourly", "30 2 * * *", "*/30 * * * * *"]),
    st.sampled_from(list(Overlap)),
    st.lists(st.integers(0, HOUR), max_size=10),
    st.sampled_from([0, MINUTE]),
)
def test_no_fire_time_is_ever_decided_for_twice_and_with_run_all_none_is_left_out(
    cron: str, overlap: Overlap, looks: list[int], jitter: int
) -> None:
    schedule = a_schedule(
        cron=cron, timezone="Europe/Berlin", overlap=overlap, missed=Missed.RUN_ALL, missed_cap=1000, jitter=jitter
    )
    status, now = ScheduleStatus(next_at=next_time(schedule, T0)), T0
    seen: list[Instant] = []
    for step in looks:
        now += step
        decision = fires(schedule, status, now)
        seen += decision.times
        status = ScheduleStatus(next_at=decision.next_at)
    assert seen == sorted(set(seen))
    if overlap is Overlap.ALLOW and cron != "every 7 seconds":
        # One at a time, in their order, also where jitter would turn it around.
        assert seen == list(takewhile(lambda at: moment_of(schedule, at) <= now, upcoming(schedule, T0)))
