"""A worker that names a task and no lease: when its id stands for the lease, and when it does not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.core.errors import LeaseLost
from fairlead.core.events import AlarmRang, CancelAsked, Completed, Failed, HandedBack
from fairlead.core.identity import LeaseToken, WorkerId, registered_token, registration_of
from fairlead.core.instant import HOUR, SECOND
from fairlead.core.lifecycle import decide, implied_token, settlement
from fairlead.core.settings import Rules
from fairlead.core.task import Failure, Lease, Reason, State, Status, Task
from fairlead.core.transitions import HISTORY_LIMIT
from tests.unit.building import NOW, a_spec, a_task

ME, OTHER = WorkerId("me"), WorkerId("other")
MINE = "AbCd-_12"
RULES = Rules()
BOOM = Failed(failure=Failure(type="Boom"))


def taken(task: Task, worker: WorkerId = ME, registration: str = MINE, *, token: str = "token") -> Task:
    """The task as the next claim leaves it."""
    status = task.status
    named = registered_token(LeaseToken(f"{token}{status.attempts}"), registration)
    lease = Lease(token=named, worker=worker, until=NOW + 30 * SECOND)
    changes: dict[str, Any] = {"state": State.EXECUTING, "started_at": NOW, "lease": lease, "alarm": lease.until}
    attempts = {"version": status.version + 1, "attempts": status.attempts + 1}
    return Task(task.spec, replace(status, **changes, **attempts))


def then(task: Task, event: Any) -> Task:
    status = decide(task, event, NOW, rules=RULES)
    assert isinstance(status, Status)
    return Task(task.spec, status)


def queued(task: Task) -> Task:
    return Task(task.spec, replace(task.status, state=State.QUEUED, alarm=None))


def token_of(task: Task) -> str:
    assert task.status.lease is not None
    return task.status.lease.token


def refused(task: Task, worker: WorkerId = ME, registration: str = MINE) -> str:
    with pytest.raises(LeaseLost) as raised:
        implied_token(task, worker, registration)
    assert raised.value.task_id == task.id
    return str(raised.value)


def test_a_token_names_the_registration_that_it_is_for_and_no_other_is_as_long() -> None:
    token = LeaseToken("vZ1k0nH2sT3uV4wX5yZ6")
    assert registration_of(registered_token(token, MINE)) == MINE
    assert registered_token(token, "") == token
    assert registration_of(token) == ""
    assert len(registered_token(token, MINE)) <= 31  # So that MessagePack needs one byte to say so.


def test_the_id_stands_for_the_lease_of_a_first_attempt() -> None:
    task = taken(a_task())
    assert implied_token(task, ME, MINE) == token_of(task)


def test_it_does_once_cancel_was_asked_too() -> None:
    task = then(taken(a_task()), CancelAsked())
    assert implied_token(task, ME, MINE) == token_of(task)


def test_it_does_of_a_task_that_others_had_before() -> None:
    task = taken(queued(then(taken(a_task(), OTHER, "theirs"), BOOM)))
    assert implied_token(task, ME, MINE) == token_of(task)


@pytest.mark.parametrize("event", [BOOM, HandedBack(), AlarmRang()])
@pytest.mark.parametrize("registration", [MINE, "earlier"])
def test_it_does_not_of_a_task_that_the_worker_had_before(event: Any, registration: str) -> None:
    task = taken(queued(then(taken(a_task(), ME, registration), event)))
    assert "given the task before" in refused(task)


def test_it_does_not_when_others_had_it_in_between() -> None:
    task = a_task()
    for worker in (ME, OTHER):
        task = queued(then(taken(task, worker), BOOM))
    assert "given the task before" in refused(taken(task))


def test_it_does_not_when_the_history_no_longer_tells() -> None:
    spec = a_spec(max_retries=100, max_crashes=100)
    task = a_task(spec=spec)
    for _ in range(HISTORY_LIMIT):
        task = queued(then(taken(task, OTHER, "theirs"), HandedBack()))
    assert implied_token(taken(task), ME, MINE)
    task = queued(then(taken(task, OTHER, "theirs"), HandedBack()))
    assert "given the task before" in refused(taken(task))


@pytest.mark.parametrize(("worker", "registration"), [(OTHER, MINE), (ME, "another"), (ME, ""), (OTHER, "")])
def test_it_does_not_of_another_worker_or_another_registration(worker: WorkerId, registration: str) -> None:
    refused(taken(a_task()), worker, registration)


def test_it_does_not_under_a_lease_that_names_no_registration() -> None:
    task = taken(a_task(), ME, "")
    refused(task)
    assert "register again" in refused(task, ME, "")


@pytest.mark.parametrize("state", [State.SCHEDULED, State.QUEUED, State.COMPLETED, State.DEAD_LETTER])
def test_it_does_not_when_nobody_holds_the_task(state: State) -> None:
    refused(a_task(state))


def test_what_was_said_before_is_known_again_and_is_no_lease() -> None:
    held = taken(a_task())
    ended = then(held, Completed(b"1"))
    token = implied_token(ended, ME, MINE)
    assert held.status.lease is not None
    assert settlement(replace(held.status.lease, token=token), Completed(b"1")) == ended.status.settled
    assert ended.status.lease is None


def test_what_another_registration_said_is_not_known() -> None:
    refused(then(taken(a_task()), Completed()), ME, "another")


def test_a_second_attempt_that_fails_as_the_first_did_is_not_taken_for_it() -> None:
    assert "given the task before" in refused(taken(queued(then(taken(a_task()), BOOM))))


def test_clocks_are_not_asked() -> None:
    task = taken(a_task())
    late = Task(task.spec, replace(task.status, started_at=NOW + HOUR, reason=Reason.SUBMITTED))
    assert implied_token(late, ME, MINE) == token_of(task)
