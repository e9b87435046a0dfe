"""Tasks that are not started late, are kept as long as they say, and run only if others did not complete."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack
from msgspec.structs import replace

from fairlead.core.errors import InvalidTask, WrongState
from fairlead.core.events import AlarmRang, CancelAsked, Completed, Expired, Failed, HandedBack, Replayed
from fairlead.core.instant import DAY, HOUR, LATEST, LONGEST, MINUTE, SECOND
from fairlead.core.lifecycle import decide
from fairlead.core.settings import Retention, Rules, Settings
from fairlead.core.submission import Submission, accept, check
from fairlead.core.task import After, OnFailure, OwnRetention, Reason, Spec, State, Task, after_of
from fairlead.core.transitions import is_late, state_before
from tests.unit.building import BOOM, NOW, RULES, an_id, claimed

OTHER = an_id(noise=7)


def submitted(**options: Any) -> Task:
    return accept(Submission(type="a", **options), an_id(), NOW, Settings())


def then(task: Task, event: Any, now: int, rules: Rules = RULES) -> Task:
    status = decide(task, event, now, rules=rules)
    assert status is not None
    return Task(task.spec, status)


class TestExpiry:
    def test_it_counts_from_when_the_task_is_due(self) -> None:
        assert submitted(expires=HOUR).status.expires_at == NOW + HOUR
        assert submitted(expires=HOUR, delay=DAY).status.expires_at == NOW + DAY + HOUR
        assert submitted(expires=HOUR, run_at=NOW - DAY).status.expires_at == NOW + HOUR, "the past is now"
        assert submitted(expires=LONGEST, run_at=LATEST).status.expires_at == LATEST
        assert submitted().status.expires_at is None

    def test_the_last_moment_still_counts(self) -> None:
        task = submitted(expires=HOUR)
        assert not is_late(task, NOW + HOUR)
        assert is_late(task, NOW + HOUR + 1)
        assert not is_late(submitted(), LATEST)

    def test_a_late_claim_ends_the_task_as_if_nobody_had_taken_it(self) -> None:
        task = submitted(expires=HOUR)
        late = NOW + HOUR + SECOND
        ended = then(claimed(task, late), Expired(), late).status
        assert (ended.state, ended.reason, ended.attempts, ended.lease) == (
            State.CANCELLED, Reason.CANCELLED, 0, None,
        )  # fmt: skip
        assert ended.failure is not None
        assert (ended.failure.type, ended.failure.message) == (
            "Expired", "the task was not started before its expiry of 3600 s had passed",
        )  # fmt: skip
        assert (ended.started_at, ended.ended_at, ended.version) == (None, late, claimed(task, late).status.version + 1)
        assert [(line.state, line.attempt) for line in ended.history] == [(State.CANCELLED, 0)]
        assert state_before(Task(task.spec, ended)) is State.QUEUED
        assert ended.alarm == late + RULES.retention.cancelled

    @pytest.mark.parametrize("state", [State.QUEUED, State.COMPLETED])
    def test_only_who_holds_it_can_say_so(self, state: State) -> None:
        task = submitted(expires=HOUR)
        with pytest.raises(WrongState):
            decide(Task(task.spec, replace(task.status, state=state)), Expired(), NOW, rules=RULES)

    def test_a_retry_or_a_hand_back_gives_no_more_time(self) -> None:
        task = submitted(expires=HOUR)
        for event in (Failed(failure=BOOM, after=MINUTE), HandedBack(MINUTE), HandedBack()):
            assert then(claimed(task, NOW), event, NOW + SECOND).status.expires_at == NOW + HOUR

    def test_a_retry_that_is_due_too_late_ends_with_what_it_was_late_for(self) -> None:
        task = then(claimed(submitted(expires=HOUR), NOW), Failed(failure=BOOM, after=2 * HOUR), NOW)
        ended = then(task, AlarmRang(), NOW + 2 * HOUR).status
        assert (ended.state, ended.failure and ended.failure.type) == (State.CANCELLED, "Expired")
        in_time = then(claimed(submitted(expires=HOUR), NOW), Failed(failure=BOOM, after=MINUTE), NOW)
        assert then(in_time, AlarmRang(), NOW + MINUTE).state is State.QUEUED

    def test_a_replay_begins_anew(self) -> None:
        late = NOW + 3 * HOUR
        ended = then(claimed(submitted(expires=HOUR), late), Expired(), late)
        assert then(ended, Replayed(), late + DAY).status.expires_at == late + DAY + HOUR

    def test_a_task_that_waits_for_others_is_due_when_they_have_ended(self) -> None:
        task = submitted(expires=HOUR, after=(OTHER,))
        assert task.status.expires_at is None
        rung = Task(task.spec, replace(task.status, alarm=NOW))
        assert then(rung, AlarmRang(), NOW + DAY).status.expires_at == NOW + DAY + HOUR
        delayed = submitted(expires=HOUR, after=(OTHER,), delay=2 * DAY)
        rung = Task(delayed.spec, replace(delayed.status, alarm=NOW))
        assert then(rung, AlarmRang(), NOW + DAY).status.expires_at == NOW + 2 * DAY + HOUR

    def test_a_cancel_is_a_cancel(self) -> None:
        assert then(submitted(expires=HOUR), CancelAsked(), NOW + DAY).status.failure is None

    @pytest.mark.parametrize("wrong", [0, -1, LONGEST + 1, 1.5, "1", True])
    def test_what_cannot_be_an_expiry_is_refused(self, wrong: Any) -> None:
        with pytest.raises(InvalidTask, match="expires"):
            check(Submission(type="a", expires=wrong))


class TestRetention:
    def test_a_task_is_kept_as_long_as_it_says_and_else_as_the_settings_say(self) -> None:
        task = claimed(submitted(retention=OwnRetention(completed=MINUTE)), NOW)
        rules = Rules(retention=Retention(completed=DAY, failed=2 * DAY))
        assert then(task, Completed(b"1"), NOW, rules).status.alarm == NOW + MINUTE
        assert then(task, Failed(failure=BOOM, retriable=False), NOW, rules).status.alarm == NOW + 2 * DAY

    def test_a_held_key_keeps_it_for_longer(self) -> None:
        task = claimed(submitted(retention=OwnRetention(completed=MINUTE), idempotency_key="k"), NOW)
        assert then(task, Completed(b"1"), NOW).status.alarm == NOW + DAY

    @given(st.sampled_from(OwnRetention.__struct_fields__), st.integers(0, LONGEST))
    def test_each_state_has_its_own(self, state: str, kept: int) -> None:
        own = OwnRetention(**{state: kept})
        assert [own.of(State(name)) for name in OwnRetention.__struct_fields__] == [
            kept if name == state else None for name in OwnRetention.__struct_fields__
        ]

    @pytest.mark.parametrize(
        "wrong", [HOUR, {"completed": 1}, OwnRetention(completed=-1), OwnRetention(failed=LONGEST + 1)]
    )
    def test_what_cannot_be_a_retention_is_refused(self, wrong: Any) -> None:
        with pytest.raises(InvalidTask, match="retention"):
            check(Submission(type="a", retention=wrong))


class TestOnlyIfAParentFailed:
    @pytest.mark.parametrize(
        ("rule", "unmet", "state"),
        [
            (OnFailure.CANCEL, 0, State.QUEUED),
            (OnFailure.CANCEL, 1, State.CANCELLED),
            (OnFailure.RUN_ANYWAY, 0, State.QUEUED),
            (OnFailure.RUN_ANYWAY, 1, State.QUEUED),
            (OnFailure.RUN_ONLY_THEN, 0, State.CANCELLED),
            (OnFailure.RUN_ONLY_THEN, 1, State.QUEUED),
        ],
    )
    def test_what_becomes_of_it_when_all_have_ended(self, rule: OnFailure, unmet: int, state: State) -> None:
        task = submitted(after=(OTHER,), on_failure=rule)
        assert task.spec.after is not None
        assert task.spec.after.rule is rule
        rung = Task(task.spec, replace(task.status, alarm=NOW, unmet=unmet))
        assert then(rung, AlarmRang(), NOW).state is state

    def test_who_was_not_needed_is_told_why(self) -> None:
        for tasks, message in (
            ((OTHER,), f"task {OTHER}, which this one waited for, completed: it was to run only if not"),
            ((OTHER, an_id(noise=8)), "all 2 tasks, which this one waited for, completed: it was to run only if not"),
        ):
            task = submitted(after=tasks, on_failure=OnFailure.RUN_ONLY_THEN)
            ended = then(Task(task.spec, replace(task.status, alarm=NOW)), AlarmRang(), NOW).status
            assert ended.failure is not None
            assert (ended.failure.type, ended.failure.message) == ("NotNeeded", message)


class TestAnEarlierVersion:
    """Processes that know none of this read such tasks, and such processes' tasks are read."""

    def test_a_spec_of_before_is_read(self) -> None:
        task = submitted()
        old = msgpack.encode(msgpack.decode(msgpack.encode(task.spec))[:-2])
        assert msgpack.decode(old, type=Spec) == task.spec

    def test_what_an_earlier_version_reads_of_a_rule_is_one_that_it_knows(self) -> None:
        kept = after_of((OTHER,), OnFailure.RUN_ONLY_THEN)
        known: Any = msgpack.decode(msgpack.encode(kept))[:2]
        assert known == [[OTHER], "run_anyway"]
        assert msgpack.decode(msgpack.encode(known), type=After).rule is OnFailure.RUN_ANYWAY
