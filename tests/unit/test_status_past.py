"""What a status tells of the attempt before: how long it took, and what of its error."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fairlead.core.events import (
    AlarmRang,
    CancelAsked,
    CancelConfirmed,
    Completed,
    Crashed,
    Event,
    Failed,
    HandedBack,
    Replayed,
    TimedOut,
)
from fairlead.core.instant import SECOND
from fairlead.core.lifecycle import decide
from fairlead.core.retry import Backoff, RetryRule, with_rules
from fairlead.core.task import State, Task
from fairlead.core.transitions import cancelled_at, has_heard_of_cancel, last_attempt, retriable
from tests.unit.building import BOOM, NOW, RULES, a_spec, a_task, claimed, executing

LATER = NOW + 7 * SECOND


def after(task: Task, event: Event, at: int = LATER) -> Task:
    status = decide(task, event, at, rules=RULES)
    assert status is not None
    return Task(task.spec, status)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (Failed(failure=BOOM), True),
        (Failed(failure=BOOM, retriable=False), False),
        (TimedOut(), True),
        (Crashed(BOOM), True),
        (AlarmRang(), True),
        (Completed(), None),
        (HandedBack(), None),
        (CancelConfirmed(), None),
    ],
)
def test_the_way_an_attempt_ended_says_whether_its_error_is_retried(event: Event, said: bool | None) -> None:
    assert retriable(after(executing(), event)) is said


def test_an_error_is_retriable_whether_or_not_retries_are_left() -> None:
    assert after(executing(retries=3), Failed(failure=BOOM)).state is State.DEAD_LETTER
    assert retriable(after(executing(retries=3), Failed(failure=BOOM))) is True
    assert retriable(after(executing(crashes=3), Crashed(BOOM))) is True


def test_a_rule_that_rejects_an_error_makes_it_not_retriable() -> None:
    spec = a_spec(backoff=with_rules(Backoff(), {"Boom": RetryRule(reject=True)}))
    assert retriable(after(executing(spec=spec), Failed(failure=BOOM))) is False


def test_nobody_says_of_an_attempt_that_was_to_be_cancelled_whether_its_error_is_retried() -> None:
    asked = after(executing(), CancelAsked())
    assert retriable(after(asked, Failed(failure=BOOM))) is None


def test_what_comes_after_an_error_does_not_change_what_it_was() -> None:
    rejected = after(executing(), Failed(failure=BOOM, retriable=False))
    again = after(rejected, Replayed())
    assert again.status.failure is not None
    assert retriable(again) is retriable(claimed(again, LATER)) is False
    backing_off = after(executing(), Failed(failure=BOOM))
    assert retriable(after(backing_off, AlarmRang())) is retriable(after(backing_off, CancelAsked())) is True


def test_an_attempt_took_from_its_claim_to_its_end() -> None:
    for event in (Completed(), Failed(failure=BOOM), TimedOut(), HandedBack(), CancelConfirmed(), AlarmRang()):
        assert last_attempt(after(executing(), event), LATER) == 7 * SECOND


def test_what_ends_no_attempt_took_no_time() -> None:
    assert last_attempt(a_task(), LATER) is None
    assert last_attempt(after(a_task(), CancelAsked()), LATER) is None
    assert last_attempt(after(executing(), CancelAsked()), LATER) is None
    backing_off = after(executing(), Failed(failure=BOOM))
    assert last_attempt(after(backing_off, CancelAsked()), LATER) is None


def test_a_clock_that_went_back_makes_no_attempt_shorter_than_nothing() -> None:
    assert last_attempt(after(executing(), Completed(), NOW - SECOND), NOW - SECOND) == 0


def test_a_cancel_counts_from_when_it_was_first_asked() -> None:
    assert cancelled_at(a_task()) is None
    assert cancelled_at(after(a_task(), CancelAsked())) == LATER
    asked = after(executing(), CancelAsked())
    assert cancelled_at(after(asked, CancelAsked(), LATER + SECOND)) == LATER


def test_a_cancel_after_a_replay_is_another_one() -> None:
    again = after(after(a_task(), CancelAsked(), NOW), Replayed(), NOW)
    assert cancelled_at(after(again, CancelAsked())) == LATER


def test_a_worker_has_heard_of_a_cancel_when_it_beats_or_says_so() -> None:
    asked = after(executing(beats=2), CancelAsked())
    assert not has_heard_of_cancel(asked, asked)
    assert has_heard_of_cancel(asked, Task(asked.spec, replace(asked.status, beats=3)))
    assert has_heard_of_cancel(asked, after(asked, CancelConfirmed()))
    assert not has_heard_of_cancel(asked, after(asked, Completed()))
    assert not has_heard_of_cancel(asked, after(asked, AlarmRang()))


def test_the_heartbeat_of_a_later_attempt_tells_nothing_of_the_worker_that_was_asked() -> None:
    asked = after(executing(), CancelAsked())
    again = claimed(after(after(asked, AlarmRang()), Replayed()), LATER, "token-2")
    assert not has_heard_of_cancel(asked, Task(again.spec, replace(again.status, beats=1)))


def test_no_worker_hears_of_the_cancel_of_a_task_that_waited() -> None:
    cancelled = after(a_task(), CancelAsked())
    assert not has_heard_of_cancel(cancelled, cancelled)
