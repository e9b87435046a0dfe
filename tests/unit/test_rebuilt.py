"""What is put back into a store that has lost it."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.core.identity import LeaseToken, WorkerId
from fairlead.core.instant import DAY, SECOND
from fairlead.core.lifecycle import rebuilt
from fairlead.core.settings import Rules
from fairlead.core.task import Lease, Reason, State, Task
from fairlead.testing.builders import NOW, a_task

LATER = NOW + 5 * SECOND
RULES = Rules()


def executing(*, cancel_asked: bool = False) -> Task:
    task = a_task()
    status = replace(
        task.status,
        state=State.EXECUTING,
        version=4,
        attempts=2,
        retries=1,
        crashes=1,
        lease=Lease(token=LeaseToken("token"), worker=WorkerId("worker-1"), until=NOW + DAY),
        alarm=NOW + DAY,
        started_at=NOW,
        cancel_asked=cancel_asked,
        settled="token:fail:00000000",
    )
    return Task(task.spec, status)


def test_what_waits_or_has_ended_stands_as_it_did() -> None:
    for state in State:
        if state is not State.EXECUTING:
            task = a_task(state=state)
            assert rebuilt(task, LATER, rules=RULES) == task.status


def test_an_attempt_under_way_waits_again_without_its_lease() -> None:
    task = executing()
    status = rebuilt(task, LATER, rules=RULES)
    assert (status.state, status.lease, status.alarm, status.started_at) == (State.QUEUED, None, None, None)
    assert status.version == task.status.version + 1


def test_it_keeps_its_wait_and_its_budgets() -> None:
    task = executing()
    status = rebuilt(task, LATER, rules=RULES)
    assert status.ready_at == task.status.ready_at
    assert (status.attempts, status.retries, status.crashes) == (2, 1, 1)


def test_turns_are_given_anew() -> None:
    for task in (a_task(fair="A"), executing()):
        assert rebuilt(Task(task.spec, replace(task.status, turn=5)), LATER, rules=RULES).turn == 0


def test_its_history_says_who_had_it() -> None:
    entry = rebuilt(executing(), LATER, rules=RULES).history[-1]
    assert (entry.at, entry.reason, entry.worker, entry.attempt) == (LATER, Reason.HANDED_BACK, "worker-1", 2)


def test_no_settle_of_the_former_holder_is_taken_for_it() -> None:
    assert rebuilt(executing(), LATER, rules=RULES).settled is None


def test_one_that_was_to_be_cancelled_is_cancelled() -> None:
    status = rebuilt(executing(cancel_asked=True), LATER, rules=RULES)
    assert (status.state, status.ended_at) == (State.CANCELLED, LATER)
