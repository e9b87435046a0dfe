"""What becomes of a task: the table of transitions, and the one function that decides."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.core.errors import WrongState
from fairlead.core.events import (
    AlarmRang,
    CancelAsked,
    CancelConfirmed,
    Completed,
    Crashed,
    Discarded,
    Event,
    Expired,
    Failed,
    HandedBack,
    Outcome,
    Prioritized,
    Purged,
    Replayed,
    Returned,
    TimedOut,
)
from fairlead.core.instant import AT_ONCE, DAY, HOUR, LATEST, MINUTE, SECOND
from fairlead.core.lifecycle import decide, settlement
from fairlead.core.retry import Backoff, RetryRule
from fairlead.core.settings import CEILINGS_BY_PRIORITY, DelayCeilings, Retention, Rules, Settings
from fairlead.core.submission import Submission, accept
from fairlead.core.task import After, Entry, Failure, OnFailure, Priority, Progress, Reason, State, Status, Task
from fairlead.core.transitions import HISTORY_LIMIT, LEASE_IN_DOUBT, REMOVED, TRANSITIONS, state_before
from tests.unit.building import (
    BOOM,
    NOW,
    RULES,
    a_lease,
    a_spec,
    a_task,
    an_id,
    claimed,
    events,
    executing,
    rules,
    tasks,
)

LATER = NOW + 7 * SECOND
ONE_OF_EACH: list[Event] = [
    Completed(b"1"),
    Failed(failure=BOOM),
    TimedOut(),
    Crashed(BOOM),
    HandedBack(),
    Returned(),
    Expired(),
    CancelConfirmed(),
    AlarmRang(),
    CancelAsked(),
    Replayed(),
    Discarded(),
    Prioritized(Priority.HIGH),
    Purged(),
]
ENDINGS_THAT_ARE_NOT_SUCCESS: list[Event] = [
    Failed(failure=BOOM),
    Failed(failure=BOOM, retriable=False),
    Failed(failure=BOOM, after=SECOND),
    TimedOut(),
    Crashed(BOOM),
    HandedBack(),
    HandedBack(SECOND),
    CancelConfirmed(),
    AlarmRang(),
]


def after(task: Task, event: Event, *, rules: Rules = RULES, luck: float = 0.0) -> Status:
    status = decide(task, event, LATER, rules=rules, luck=luck)
    assert status is not None
    return status


class TestTheTable:
    @given(tasks(), events, rules, st.floats(-1.0, 1.0))
    def test_an_event_leads_only_where_the_table_says(
        self, task: Task, event: Event, rules: Rules, luck: float
    ) -> None:
        targets = TRANSITIONS.get((task.state, event.name))
        if targets is None:
            with pytest.raises(WrongState):
                decide(task, event, LATER, rules=rules, luck=luck)
        else:
            status = decide(task, event, LATER, rules=rules, luck=luck)
            assert (REMOVED if status is None else status.state) in targets

    @pytest.mark.parametrize("state", State)
    @pytest.mark.parametrize("event", ONE_OF_EACH, ids=lambda event: event.name)
    def test_what_the_table_does_not_list_is_refused_and_the_refusal_says_what_is(
        self, state: State, event: Event
    ) -> None:
        if (state, event.name) in TRANSITIONS:
            decide(a_task(state), event, LATER, rules=RULES)
            return
        with pytest.raises(WrongState) as refusal:
            decide(a_task(state), event, LATER, rules=RULES)
        message = str(refusal.value)
        assert f"is {state}" in message
        assert event.name in message
        assert all(allowed in message for allowed, name in TRANSITIONS if name == event.name)

    def test_every_event_is_in_the_table_and_nothing_else_but_the_claim(self) -> None:
        assert {name for _, name in TRANSITIONS} == {event.name for event in ONE_OF_EACH} | {"claim"}

    @given(st.data(), st.sampled_from([0, HOUR]), st.booleans())
    def test_a_task_tells_which_state_it_has_left_whatever_happened_to_it_before(
        self, data: st.DataObject, delay: int, depends: bool
    ) -> None:
        submission = Submission(type="a", delay=delay, after=(an_id(noise=1),) if depends else ())
        task = accept(submission, an_id(), NOW, settings=Settings())
        assert state_before(task) is None
        now = NOW
        for _ in range(40):
            now += data.draw(st.sampled_from([0, SECOND, DAY]))
            if task.state is State.QUEUED and data.draw(st.booleans()):
                task = claimed(task, now)
                assert state_before(task) is State.QUEUED
                continue
            event = data.draw(st.sampled_from([each for each in ONE_OF_EACH if (task.state, each.name) in TRANSITIONS]))
            status = decide(task, event, now, rules=RULES)
            if status is None:
                return
            before, task = task.state, Task(task.spec, status)
            if isinstance(event, Expired):
                before = State.QUEUED
            if not isinstance(event, Returned):
                # What was claimed and returned unseen, or was late, stands as if it had never been taken.
                assert state_before(task) is before

    def test_every_state_can_be_left(self) -> None:
        assert {state for state, _ in TRANSITIONS} == set(State)

    def test_every_listed_target_can_be_reached(self) -> None:
        reached: set[tuple[State, str, State | None]] = set()
        variants = [*ONE_OF_EACH, *ENDINGS_THAT_ARE_NOT_SUCCESS, Failed(failure=BOOM, after=0)]
        specs = (
            a_spec(),
            a_spec(backoff=Backoff(initial=0)),
            a_spec(backoff={"*": RetryRule(reject=True)}),
            a_spec(max_retries=0, max_crashes=0),
        )
        for state in State:
            for event in variants:
                for spec in specs:
                    for asked in (False, True):
                        task = a_task(state, spec=spec, cancel_asked=asked)
                        if (state, event.name) in TRANSITIONS:
                            status = decide(task, event, LATER, rules=RULES)
                            reached.add((state, event.name, REMOVED if status is None else status.state))
        for unmet in (0, 1):
            for task in (a_dependent(unmet=unmet), a_dependent(unmet=unmet, ready_at=LATER + HOUR)):
                status = decide(task, AlarmRang(), LATER, rules=RULES)
                reached.add((State.SCHEDULED, AlarmRang.name, REMOVED if status is None else status.state))
        listed = {
            (state, name, target)
            for (state, name), targets in TRANSITIONS.items()
            for target in targets
            if name != "claim"
        }
        assert listed == reached


class TestEveryDecision:
    @given(tasks(), events, rules, st.floats(-1.0, 1.0))
    def test_adds_one_to_the_version_and_leaves_attempts_alone(
        self, task: Task, event: Event, rules: Rules, luck: float
    ) -> None:
        if (task.state, event.name) not in TRANSITIONS:
            return
        status = decide(task, event, LATER, rules=rules, luck=luck)
        if status is not None:
            assert status.version == task.status.version + 1
            # A task that is too late when it is claimed was not tried: that claim's attempt does not count.
            late = isinstance(event, Expired) and task.state is State.EXECUTING
            assert status.attempts == task.status.attempts - late

    @given(tasks(), events, rules, st.floats(-1.0, 1.0))
    def test_leaves_a_task_that_makes_sense(self, task: Task, event: Event, rules: Rules, luck: float) -> None:
        if (task.state, event.name) not in TRANSITIONS:
            return
        status = decide(task, event, LATER, rules=rules, luck=luck)
        if status is None:
            return
        assert (status.lease is not None) == (status.state is State.EXECUTING)
        assert (status.ended_at is not None) == status.state.ended
        assert (status.alarm is None) == (status.state is State.QUEUED)
        if status.state is State.SCHEDULED:
            assert status.alarm == status.ready_at
        if status.state.waiting:
            assert not status.cancel_asked
        assert len(status.history) <= HISTORY_LIMIT

    @given(tasks(), events, st.floats(-1.0, 1.0))
    def test_never_spends_more_than_one_retry_or_one_crash(self, task: Task, event: Event, luck: float) -> None:
        if (task.state, event.name) not in TRANSITIONS or isinstance(event, Replayed):
            return
        status = decide(task, event, LATER, rules=RULES, luck=luck)
        if status is not None and not (isinstance(event, HandedBack) and event.reset_retries):
            spent = (status.retries - task.status.retries, status.crashes - task.status.crashes)
            assert spent in {(0, 0), (1, 0), (0, 1)}


class TestSuccess:
    def test_a_completed_attempt_ends_the_task_with_its_result(self) -> None:
        status = after(executing(failure=BOOM), Completed(b'{"sent":1}'))

        assert status.state is State.COMPLETED
        assert status.result == b'{"sent":1}'
        assert status.failure is None
        assert status.ended_at == LATER
        assert status.reason is Reason.COMPLETED

    def test_completed_wins_over_a_cancel_that_was_asked(self) -> None:
        assert after(executing(cancel_asked=True), Completed()).state is State.COMPLETED


class TestRetries:
    def test_a_failure_waits_for_its_backoff_and_spends_a_retry(self) -> None:
        status = after(executing(), Failed(failure=BOOM))

        assert status.state is State.SCHEDULED
        assert status.ready_at == status.alarm == LATER + SECOND
        assert status.retries == 1
        assert status.failure == BOOM
        assert status.reason is Reason.FAILED

    def test_the_backoff_grows_with_each_retry(self) -> None:
        delays = [after(executing(retries=spent), Failed(failure=BOOM)).ready_at - LATER for spent in range(3)]

        assert delays == [1 * SECOND, 2 * SECOND, 4 * SECOND]

    def test_luck_moves_the_backoff(self) -> None:
        task = executing(spec=a_spec(backoff=Backoff(initial=10 * SECOND, jitter=0.1)))

        assert after(task, Failed(failure=BOOM), luck=-1.0).ready_at == LATER + 9 * SECOND
        assert after(task, Failed(failure=BOOM), luck=1.0).ready_at == LATER + 11 * SECOND

    def test_a_failure_that_says_when_is_retried_then(self) -> None:
        status = after(executing(), Failed(failure=BOOM, after=MINUTE), luck=1.0)

        assert status.state is State.SCHEDULED
        assert status.ready_at == LATER + MINUTE
        assert status.retries == 1

    def test_a_retry_after_no_time_is_queued_at_once_and_its_wait_restarts(self) -> None:
        status = after(executing(ready_at=NOW - HOUR), Failed(failure=BOOM, after=0))

        assert status.state is State.QUEUED
        assert status.ready_at == LATER
        assert status.alarm is None

    @given(st.integers(0, 6))
    def test_a_task_that_always_fails_is_tried_once_and_then_once_per_retry(self, max_retries: int) -> None:
        task, now, attempts = a_task(spec=a_spec(max_retries=max_retries)), NOW, 0
        while task.state.waiting:
            now = max(now, task.status.ready_at)
            attempts += 1
            status = decide(claimed(task, now), Failed(failure=BOOM), now, rules=RULES)
            assert status is not None
            task = Task(task.spec, status)

        assert attempts == max_retries + 1
        assert task.state is State.DEAD_LETTER
        assert task.status.reason is Reason.RETRIES_USED_UP
        assert task.status.failure == BOOM
        assert task.status.retries == max_retries

    def test_a_failure_that_is_not_retriable_fails_at_once(self) -> None:
        status = after(executing(), Failed(failure=BOOM, retriable=False))

        assert status.state is State.FAILED
        assert status.reason is Reason.REJECTED
        assert status.failure == BOOM
        assert status.retries == 0

    def test_a_retry_never_waits_past_the_latest_instant(self) -> None:
        assert after(executing(), Failed(failure=BOOM, after=LATEST)).ready_at <= LATEST

    def test_a_failure_is_settled_whatever_its_message_holds(self) -> None:
        undecodable = Failure(type="FileNotFoundError", message="no such file: caf\udce9.txt")

        assert after(executing(), Failed(failure=undecodable)).state is State.SCHEDULED


class TestDelayCeilings:
    """The longest delay before a retry, by priority."""

    SLOW = a_spec(backoff=Backoff(initial=5 * MINUTE, jitter=0.0))
    PRESET = Rules(delay_ceilings=CEILINGS_BY_PRIORITY)

    @pytest.mark.parametrize(
        ("priority", "delay"),
        [
            (Priority.CRITICAL, 10 * SECOND),
            (Priority.HIGH, 30 * SECOND),
            (Priority.MEDIUM, 60 * SECOND),
            (Priority.LOW, 5 * MINUTE),
        ],
        ids=lambda value: value.word if isinstance(value, Priority) else "",
    )
    @pytest.mark.parametrize("event", [Failed(failure=BOOM), TimedOut(), Crashed(BOOM), AlarmRang()], ids=repr)
    def test_a_delay_is_as_long_at_most_as_the_preset_says_whatever_went_wrong(
        self, event: Event, priority: Priority, delay: int
    ) -> None:
        task = executing(spec=self.SLOW, priority=priority)

        assert after(task, event, rules=self.PRESET).ready_at == LATER + delay

    def test_unless_someone_sets_them_there_are_none(self) -> None:
        task = executing(spec=self.SLOW, priority=Priority.CRITICAL)

        assert after(task, Failed(failure=BOOM)).ready_at == LATER + 5 * MINUTE

    def test_a_ceiling_never_makes_a_delay_longer(self) -> None:
        task = executing(spec=a_spec(backoff=Backoff(initial=SECOND, ceiling=2 * SECOND, jitter=0.0)), retries=2)

        assert after(task, Failed(failure=BOOM), rules=self.PRESET).ready_at == LATER + 2 * SECOND

    def test_it_counts_for_the_backoff_of_a_retry_rule_too(self) -> None:
        rules = {"Boom": RetryRule(backoff=Backoff(initial=HOUR, ceiling=HOUR, jitter=0.0))}
        task = executing(spec=a_spec(backoff=rules))

        assert after(task, Failed(failure=BOOM), rules=self.PRESET).ready_at == LATER + MINUTE

    def test_the_delay_that_a_handler_asks_for_stays_as_it_is(self) -> None:
        task = executing(priority=Priority.CRITICAL)

        assert after(task, Failed(failure=BOOM, after=HOUR), rules=self.PRESET).ready_at == LATER + HOUR

    def test_what_counts_is_the_priority_that_the_task_has_now(self) -> None:
        waiting = a_task(spec=self.SLOW, priority=Priority.LOW)
        raised = Task(waiting.spec, after(waiting, Prioritized(Priority.CRITICAL)))

        assert after(claimed(raised, LATER), Failed(failure=BOOM), rules=self.PRESET).ready_at == LATER + 10 * SECOND

    def test_jitter_moves_a_delay_beyond_it_as_beyond_the_ceiling_of_a_backoff(self) -> None:
        task = executing(spec=a_spec(backoff=Backoff(initial=HOUR, jitter=0.1)), priority=Priority.CRITICAL)

        assert after(task, Failed(failure=BOOM), luck=1.0, rules=self.PRESET).ready_at == LATER + 11 * SECOND

    def test_a_ceiling_of_nothing_retries_at_once(self) -> None:
        at_once = Rules(delay_ceilings=DelayCeilings(medium=0))

        assert after(executing(), Failed(failure=BOOM), rules=at_once).state is State.QUEUED


class TestTimeouts:
    def test_a_timeout_spends_a_retry_and_gives_the_next_attempt_half_as_much_again(self) -> None:
        status = after(executing(), TimedOut())

        assert status.state is State.SCHEDULED
        assert status.retries == 1
        assert status.timeout == 900 * SECOND
        assert status.reason is Reason.TIMED_OUT
        assert status.failure is not None
        assert "600 s" in status.failure.message

    def test_the_timeout_grows_to_an_hour_and_no_further(self) -> None:
        timeouts = []
        timeout = 20 * MINUTE
        for _ in range(5):
            timeout = after(executing(timeout=timeout), TimedOut()).timeout
            timeouts.append(timeout)

        assert timeouts == [30 * MINUTE, 45 * MINUTE, HOUR, HOUR, HOUR]

    def test_a_timeout_that_was_longer_than_an_hour_is_not_cut(self) -> None:
        assert after(executing(timeout=3 * HOUR), TimedOut()).timeout == 3 * HOUR

    def test_a_failure_does_not_lengthen_the_timeout(self) -> None:
        assert after(executing(), Failed(failure=BOOM)).timeout == 600 * SECOND

    @pytest.mark.parametrize("event", [Failed(failure=BOOM), TimedOut(), Crashed(BOOM), AlarmRang()], ids=repr)
    def test_any_failure_lengthens_it_if_the_rules_say_so(self, event: Event) -> None:
        status = after(executing(), event, rules=Rules(timeout_growth_after_failure=True))

        assert status.timeout == 900 * SECOND

    def test_it_grows_to_the_same_ceiling_then(self) -> None:
        growing = Rules(timeout_growth_after_failure=True)

        assert after(executing(timeout=50 * MINUTE), Failed(failure=BOOM), rules=growing).timeout == HOUR
        assert after(executing(timeout=3 * HOUR), Crashed(BOOM), rules=growing).timeout == 3 * HOUR

    @pytest.mark.parametrize("event", [HandedBack(), HandedBack(SECOND), Returned()], ids=repr)
    def test_what_has_not_failed_never_lengthens_it(self, event: Event) -> None:
        assert after(executing(), event, rules=Rules(timeout_growth_after_failure=True)).timeout == 600 * SECOND

    def test_nor_does_a_failure_that_ends_the_task(self) -> None:
        growing = Rules(timeout_growth_after_failure=True)

        assert after(executing(retries=3), Failed(failure=BOOM), rules=growing).timeout == 600 * SECOND
        assert after(executing(crashes=3), Crashed(BOOM), rules=growing).timeout == 600 * SECOND

    def test_timeouts_and_failures_share_the_retries(self) -> None:
        status = after(executing(retries=3), TimedOut())

        assert status.state is State.DEAD_LETTER
        assert status.reason is Reason.RETRIES_USED_UP


class TestCrashes:
    def test_a_crash_spends_a_crash_and_no_retry_and_keeps_its_cause(self) -> None:
        status = after(executing(), Crashed(BOOM))

        assert status.state is State.SCHEDULED
        assert (status.crashes, status.retries) == (1, 0)
        assert status.reason is Reason.CRASHED
        assert status.failure == BOOM

    def test_crashes_and_lost_workers_share_one_budget(self) -> None:
        assert after(executing(crashes=2), Crashed(BOOM)).state is State.SCHEDULED
        assert after(executing(crashes=3), Crashed(BOOM)).reason is Reason.CRASH_LOOP
        assert after(executing(crashes=3), AlarmRang()).reason is Reason.CRASH_LOOP


class TestLostWorkers:
    def test_a_lost_worker_spends_a_crash_and_no_retry(self) -> None:
        status = after(executing(), AlarmRang())

        assert status.state is State.SCHEDULED
        assert (status.crashes, status.retries) == (1, 0)
        assert status.reason is Reason.WORKER_LOST
        assert status.failure is not None
        assert "worker-1" in status.failure.message

    def test_a_task_without_retries_survives_a_lost_worker(self) -> None:
        assert after(executing(spec=a_spec(max_retries=0)), AlarmRang()).state is State.SCHEDULED

    def test_a_task_that_crashed_often_still_has_its_retries(self) -> None:
        status = after(executing(crashes=3), Failed(failure=BOOM))

        assert status.state is State.SCHEDULED
        assert status.crashes == 3

    def test_an_attempt_out_of_time_by_a_clock_that_may_have_been_set_spends_no_crash(self) -> None:
        task = out_of_time(executing(spec=a_spec(max_crashes=0)))
        started_at = task.status.started_at or 0
        status = after(task, AlarmRang(watched_from=started_at + 1))

        assert (status.state, status.crashes, status.retries) == (State.QUEUED, 0, 0)
        assert status.reason is Reason.HANDED_BACK
        assert status.ready_at == task.status.ready_at
        assert status.failure is not None
        assert status.failure.type == LEASE_IN_DOUBT

    def test_it_does_if_the_clock_was_watched_all_along(self) -> None:
        task = out_of_time(executing())
        assert after(task, AlarmRang(watched_from=task.status.started_at or 0)).crashes == 1
        assert after(task, AlarmRang()).crashes == 1

    def test_it_does_if_it_was_never_renewed_or_its_time_is_not_over(self) -> None:
        """Who was heard of no more for a whole lease is gone, whatever the clock did."""
        ever = AlarmRang(watched_from=LATEST)
        unheard = out_of_time(executing())
        assert after(Task(unheard.spec, replace(unheard.status, beats=0)), ever).crashes == 1
        assert after(claimed(a_task(), NOW), ever).crashes == 1

    def test_it_does_the_second_time(self) -> None:
        """Or a task that hangs would never be given up where each sweeper is new."""
        once = after(out_of_time(executing()), AlarmRang(watched_from=LATEST))
        again = out_of_time(claimed(Task(a_spec(), once), NOW))
        assert after(again, AlarmRang(watched_from=LATEST)).crashes == 1

    def test_what_was_to_be_cancelled_is_cancelled(self) -> None:
        status = after(out_of_time(executing(cancel_asked=True)), AlarmRang(watched_from=LATEST))
        assert status.state is State.CANCELLED

    @given(st.integers(0, 5))
    def test_a_task_that_loses_every_worker_ends_as_a_crash_loop(self, max_crashes: int) -> None:
        task, now, attempts = a_task(spec=a_spec(max_crashes=max_crashes)), NOW, 0
        while task.state.waiting:
            now = max(now, task.status.ready_at) + 30 * SECOND
            attempts += 1
            status = decide(claimed(task, now), AlarmRang(), now, rules=RULES)
            assert status is not None
            task = Task(task.spec, status)

        assert attempts == max_crashes + 1
        assert task.state is State.DEAD_LETTER
        assert task.status.reason is Reason.CRASH_LOOP
        assert task.status.retries == 0


class TestCancel:
    @pytest.mark.parametrize("state", [State.SCHEDULED, State.QUEUED])
    def test_a_waiting_task_is_cancelled_at_once(self, state: State) -> None:
        status = after(a_task(state), CancelAsked())

        assert status.state is State.CANCELLED
        assert status.reason is Reason.CANCELLED
        assert status.ended_at == LATER

    def test_an_executing_task_goes_on_under_its_lease_and_knows_that_it_should_stop(self) -> None:
        task = executing()
        status = after(task, CancelAsked())

        assert status.state is State.EXECUTING
        assert status.cancel_asked
        assert (status.lease, status.alarm) == (task.status.lease, task.status.alarm)

    def test_asking_again_changes_only_the_version(self) -> None:
        task = executing(cancel_asked=True)

        assert after(task, CancelAsked()) == replace(task.status, version=task.status.version + 1)

    @pytest.mark.parametrize("event", ENDINGS_THAT_ARE_NOT_SUCCESS, ids=repr)
    def test_once_asked_every_end_but_success_is_cancelled_and_spends_nothing(self, event: Event) -> None:
        status = after(executing(cancel_asked=True), event)

        assert status.state is State.CANCELLED
        assert (status.retries, status.crashes) == (0, 0)

    def test_a_cancelled_task_still_shows_what_an_earlier_attempt_failed_with(self) -> None:
        assert after(executing(failure=BOOM, cancel_asked=True), CancelConfirmed()).failure == BOOM


class TestHandBack:
    def test_a_task_handed_back_keeps_its_wait_and_spends_nothing(self) -> None:
        task = executing(ready_at=NOW - HOUR, retries=1, crashes=2, failure=BOOM)
        status = after(task, HandedBack())

        assert status.state is State.QUEUED
        assert status.ready_at == NOW - HOUR
        assert (status.retries, status.crashes, status.attempts) == (1, 2, 1)
        assert status.failure == BOOM
        assert status.reason is Reason.HANDED_BACK

    def test_a_task_handed_back_for_later_waits_from_now(self) -> None:
        status = after(executing(ready_at=NOW - HOUR), HandedBack(MINUTE))

        assert status.state is State.SCHEDULED
        assert status.ready_at == status.alarm == LATER + MINUTE

    def test_a_task_handed_back_with_all_its_retries_is_as_if_it_had_never_failed(self) -> None:
        task = executing(ready_at=NOW - HOUR, retries=2, crashes=1, failure=BOOM, timeout=HOUR)
        status = after(task, HandedBack(reset_retries=True))

        assert (status.state, status.ready_at) == (State.QUEUED, NOW - HOUR)
        assert (status.retries, status.failure, status.timeout) == (0, None, task.spec.timeout)
        assert (status.crashes, status.attempts) == (1, 1)
        assert [entry.reason for entry in status.history] == [Reason.HANDED_BACK]

    def test_but_not_if_it_was_to_be_cancelled(self) -> None:
        status = after(executing(retries=2, failure=BOOM, cancel_asked=True), HandedBack(reset_retries=True))

        assert (status.state, status.retries, status.failure) == (State.CANCELLED, 2, BOOM)

    def test_a_claim_that_is_undone_leaves_the_task_as_it_was(self) -> None:
        task = executing(ready_at=NOW - HOUR, attempts=3, retries=1, crashes=2, failure=BOOM)
        status = after(task, Returned())

        assert (status.state, status.ready_at, status.alarm, status.lease) == (State.QUEUED, NOW - HOUR, None, None)
        assert (status.attempts, status.retries, status.crashes) == (2, 1, 2)
        assert (status.failure, status.reason, status.history) == (BOOM, task.status.reason, task.status.history)
        assert status.version == task.status.version + 1

    def test_the_next_attempt_starts_afresh(self) -> None:
        status = after(executing(progress=Progress(percent=50.0)), HandedBack())

        assert (status.lease, status.started_at, status.progress) == (None, None, None)


class TestBecomingDue:
    def test_the_wait_of_a_due_task_began_when_it_was_due_not_when_it_was_noticed(self) -> None:
        task = a_task(State.SCHEDULED, ready_at=NOW, alarm=NOW)
        status = after(task, AlarmRang())

        assert status.state is State.QUEUED
        assert status.ready_at == NOW
        assert status.alarm is None
        assert status.reason is Reason.DUE


class TestReplay:
    @pytest.mark.parametrize("state", [State.FAILED, State.DEAD_LETTER, State.CANCELLED])
    def test_a_replayed_task_is_queued_now_with_all_its_retries(self, state: State) -> None:
        ended = a_task(state, retries=3, crashes=4, timeout=HOUR, failure=BOOM, cancel_asked=True)
        status = after(ended, Replayed())

        assert status.state is State.QUEUED
        assert status.ready_at == LATER
        assert (status.retries, status.crashes) == (0, 0)
        assert status.timeout == ended.spec.timeout
        assert (status.ended_at, status.alarm) == (None, None)
        assert not status.cancel_asked
        assert status.reason is Reason.REPLAYED

    def test_a_replay_may_keep_the_retries_that_were_spent(self) -> None:
        status = after(a_task(State.DEAD_LETTER, retries=3, timeout=HOUR), Replayed(reset_retries=False))

        assert status.retries == 3
        assert status.timeout == HOUR

    def test_a_replay_may_change_the_priority_even_to_the_most_urgent(self) -> None:
        dead = a_task(State.DEAD_LETTER, priority=Priority.LOW)

        assert after(dead, Replayed()).priority is Priority.LOW
        assert after(dead, Replayed(priority=Priority.CRITICAL)).priority is Priority.CRITICAL

    def test_attempts_are_never_reset(self) -> None:
        assert after(a_task(State.DEAD_LETTER, attempts=9), Replayed()).attempts == 9


class TestRetention:
    RULES = Rules(retention=Retention(completed=1 * HOUR, cancelled=2 * HOUR, failed=3 * HOUR, dead_letter=4 * HOUR))

    @pytest.mark.parametrize(
        ("event", "kept"),
        [
            (Completed(), 1 * HOUR),
            (CancelConfirmed(), 2 * HOUR),
            (Failed(failure=BOOM, retriable=False), 3 * HOUR),
            (Failed(failure=BOOM), 4 * HOUR),
        ],
        ids=["completed", "cancelled", "failed", "dead_letter"],
    )
    def test_an_ended_task_is_forgotten_when_the_retention_of_its_state_ends(self, event: Event, kept: int) -> None:
        status = after(executing(spec=a_spec(max_retries=0)), event, rules=self.RULES)

        assert status.alarm == LATER + kept

    def test_it_is_kept_for_as_long_as_its_idempotency_key_answers(self) -> None:
        task = executing(spec=a_spec(idempotency_key="k", key_until=NOW + DAY))

        assert after(task, Completed(), rules=self.RULES).alarm == NOW + DAY

    def test_a_key_that_ends_earlier_does_not_shorten_its_retention(self) -> None:
        task = executing(spec=a_spec(idempotency_key="k", key_until=NOW))

        assert after(task, Completed(), rules=self.RULES).alarm == LATER + HOUR

    @pytest.mark.parametrize("state", [state for state in State if state.ended])
    @pytest.mark.parametrize("event", [AlarmRang(), Discarded()], ids=["alarm", "discard"])
    def test_an_ended_task_is_removed_by_its_alarm_and_by_a_discard(self, state: State, event: Event) -> None:
        assert decide(a_task(state), event, LATER, rules=RULES) is REMOVED

    @pytest.mark.parametrize("state", [state for state in State if state.waiting])
    def test_a_purge_removes_what_waits(self, state: State) -> None:
        assert decide(a_task(state), Purged(), LATER, rules=RULES) is REMOVED

    @pytest.mark.parametrize("state", [state for state in State if not state.waiting])
    def test_a_purge_leaves_what_runs_and_what_has_ended(self, state: State) -> None:
        with pytest.raises(WrongState, match="purge"):
            decide(a_task(state), Purged(), LATER, rules=RULES)


class TestPrioritize:
    @pytest.mark.parametrize("state", [state for state in State if state.waiting])
    def test_a_task_that_waits_goes_on_waiting_at_its_new_priority(self, state: State) -> None:
        task = a_task(state)
        status = after(task, Prioritized(Priority.CRITICAL))
        unchanged = replace(status, priority=task.status.priority, version=task.status.version, history=())
        assert status.priority is Priority.CRITICAL
        assert unchanged == replace(task.status, history=())
        assert status.history[-1].reason is Reason.PRIORITIZED

    def test_a_task_that_waits_for_others_goes_on_waiting_for_them(self) -> None:
        task = a_task(State.SCHEDULED, reason=Reason.DEPENDENT)
        assert after(task, Prioritized(Priority.CRITICAL)).reason is Reason.DEPENDENT

    @pytest.mark.parametrize("state", [state for state in State if not state.waiting])
    def test_what_runs_or_has_ended_keeps_its_priority(self, state: State) -> None:
        with pytest.raises(WrongState, match="prioritize"):
            decide(a_task(state), Prioritized(Priority.HIGH), LATER, rules=RULES)


class TestHistory:
    def test_a_line_says_when_what_why_and_which_attempt_ended(self) -> None:
        (line,) = after(executing(), Failed(failure=BOOM)).history

        assert line == Entry(
            at=LATER,
            state=State.SCHEDULED,
            reason=Reason.FAILED,
            attempt=1,
            worker=a_lease().worker,
            started_at=NOW,
            failure=Failure(type="Boom", message="it went boom"),
        )

    def test_a_line_for_a_task_that_waited_names_no_attempt(self) -> None:
        (line,) = after(a_task(attempts=2, failure=BOOM), CancelAsked()).history

        assert (line.attempt, line.worker, line.started_at, line.failure) == (0, None, None, None)

    def test_the_traceback_is_kept_once_and_not_in_the_history(self) -> None:
        status = after(executing(), Failed(failure=BOOM))

        assert status.failure == BOOM
        assert [line.failure.traceback for line in status.history if line.failure] == [None]

    def test_it_keeps_the_newest_lines(self) -> None:
        lines = tuple(Entry(at=at, state=State.QUEUED, reason=Reason.DUE) for at in range(HISTORY_LIMIT))
        status = after(executing(history=lines), Failed(failure=BOOM))

        assert len(status.history) == HISTORY_LIMIT
        assert status.history[:-1] == lines[1:]
        assert status.history[-1].at == LATER

    @pytest.mark.parametrize("event", [HandedBack(), CancelConfirmed()], ids=["hand back", "confirm cancel"])
    def test_an_attempt_that_did_not_fail_is_not_given_the_failure_of_an_earlier_one(self, event: Event) -> None:
        (line,) = after(executing(attempts=2, failure=BOOM), event).history

        assert line.attempt == 2
        assert line.failure is None

    def test_an_attempt_that_failed_after_cancel_was_asked_keeps_its_own_failure(self) -> None:
        older = Failure(type="Older")
        (line,) = after(executing(failure=older, cancel_asked=True), Failed(failure=BOOM)).history

        assert line.failure == replace(BOOM, traceback=None)


class TestSettlement:
    OUTCOMES: tuple[Outcome, ...] = (
        Completed(),
        Completed(b"1"),
        Completed(b"2"),
        Failed(failure=BOOM),
        Failed(failure=Failure(type="Boom", message="another")),
        Failed(failure=BOOM, retriable=False),
        Failed(failure=BOOM, after=0),
        TimedOut(),
        Crashed(BOOM),
        Crashed(Failure(type="Killed")),
        HandedBack(),
        HandedBack(SECOND),
        HandedBack(reset_retries=True),
        CancelConfirmed(),
    )

    def test_the_same_said_again_is_equal_and_anything_else_is_not(self) -> None:
        said = [settlement(a_lease(), outcome) for outcome in self.OUTCOMES]

        assert said == [settlement(a_lease(), outcome) for outcome in self.OUTCOMES]
        assert len(set(said)) == len(said)

    @pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
    def test_another_lease_saying_the_same_is_not_equal(self, outcome: Outcome) -> None:
        assert settlement(a_lease("token-1"), outcome) != settlement(a_lease("token-2"), outcome)

    def test_a_renewed_lease_saying_the_same_is_equal(self) -> None:
        assert settlement(a_lease(until=NOW), TimedOut()) == settlement(a_lease(until=LATER), TimedOut())

    @pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
    @pytest.mark.parametrize("cancel_asked", [False, True])
    def test_an_accepted_outcome_is_remembered(self, outcome: Outcome, cancel_asked: bool) -> None:
        assert after(executing(cancel_asked=cancel_asked), outcome).settled == settlement(a_lease(), outcome)

    def test_a_decision_of_someone_else_leaves_what_was_remembered(self) -> None:
        assert after(executing(settled="earlier"), AlarmRang()).settled == "earlier"
        assert after(a_task(State.DEAD_LETTER, settled="earlier"), Replayed()).settled == "earlier"


class TestATaskThatWaitedForOthers:
    def test_is_queued_when_all_have_completed_and_its_wait_begins_then(self) -> None:
        stands = after(a_dependent(), AlarmRang())
        assert (stands.state, stands.ready_at, stands.alarm) == (State.QUEUED, LATER, None)
        assert stands.reason is Reason.RELEASED

    def test_waits_on_for_its_moment_and_is_then_due(self) -> None:
        task = a_dependent(ready_at=LATER + HOUR)
        stands = after(task, AlarmRang())
        assert (stands.state, stands.alarm, stands.reason) == (State.SCHEDULED, LATER + HOUR, Reason.RELEASED)
        due = after(Task(task.spec, stands), AlarmRang())
        assert (due.state, due.reason) == (State.QUEUED, Reason.DUE)

    def test_is_cancelled_when_one_did_not_complete_also_before_its_moment(self) -> None:
        stands = after(a_dependent(unmet=2, ready_at=LATER + HOUR), AlarmRang())
        assert (stands.state, stands.reason) == (State.CANCELLED, Reason.DEPENDENCY_FAILED)
        assert stands.failure is not None
        assert stands.failure.message == "2 of the 3 tasks that this one waited for did not complete"

    def test_runs_anyway_if_that_was_asked_for(self) -> None:
        task = a_dependent(on_failure=OnFailure.RUN_ANYWAY, unmet=2)
        assert after(task, AlarmRang()).state is State.QUEUED

    def test_does_not_wait_for_them_again_when_it_is_replayed(self) -> None:
        task = a_dependent(unmet=2, pending=1, alarm=None)
        cancelled = Task(task.spec, after(task, CancelAsked()))
        stands = after(cancelled, Replayed())
        assert (stands.state, stands.pending, stands.unmet) == (State.QUEUED, 0, 0)


def out_of_time(task: Task) -> Task:
    """An executing task whose lease was renewed until the time of the attempt was over."""
    status = task.status
    assert status.lease is not None
    end = (status.started_at or 0) + status.timeout + 10 * SECOND
    return Task(task.spec, replace(status, beats=3, alarm=end, lease=replace(status.lease, until=end)))


def a_dependent(on_failure: OnFailure = OnFailure.CANCEL, **changes: Any) -> Task:
    """A task whose wait for three others is over."""
    waited_for = After(tasks=tuple(an_id(noise=number) for number in range(3)), on_failure=on_failure)
    standing: dict[str, Any] = {"reason": Reason.DEPENDENT, "alarm": AT_ONCE, "ready_at": NOW}
    return a_task(State.SCHEDULED, spec=a_spec(after=waited_for), **standing | changes)
