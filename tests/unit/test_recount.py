"""Why a task ran when it ran: its attempts, told from what it keeps."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.core.events import (
    AlarmRang,
    CancelAsked,
    Completed,
    Event,
    Failed,
    HandedBack,
    Prioritized,
    Replayed,
)
from fairlead.core.explain.attempt_story import recount
from fairlead.core.explain.explanation import Cause, CauseCode
from fairlead.core.instant import MINUTE, SECOND, Instant
from fairlead.core.lifecycle import decide
from fairlead.core.queues.order import Promote
from fairlead.core.queues.promotion import steady_table
from fairlead.core.task import Priority, State, Task
from tests.unit.building import BOOM, NOW, RULES, a_lease, a_spec, a_task

TABLE = steady_table(Promote())


class Life:
    """A task that things happen to."""

    def __init__(self, task: Task | None = None) -> None:
        self.task = task or a_task(spec=a_spec(created_at=NOW), ready_at=NOW)

    def claim(self, at: Instant, worker: str = "w") -> Life:
        status = self.task.status
        claimed = replace(
            status,
            state=State.EXECUTING,
            attempts=status.attempts + 1,
            started_at=at,
            lease=a_lease(worker=worker),
            version=status.version + 1,
        )
        self.task = Task(self.task.spec, claimed)
        return self

    def then(self, event: Event, at: Instant) -> Life:
        status = decide(self.task, event, at, rules=RULES)
        assert status is not None
        self.task = Task(self.task.spec, status)
        return self

    def told(self, now: Instant = NOW + 60 * MINUTE) -> tuple[Cause, ...]:
        return recount(self.task, TABLE, now)


def codes(causes: tuple[Cause, ...]) -> list[str]:
    return [cause.code for cause in causes]


def test_a_task_that_completed_at_once() -> None:
    began, ended = Life().claim(NOW + 3 * SECOND).then(Completed(None), NOW + 5 * SECOND).told()
    assert (began.code, ended.code) == (CauseCode.ATTEMPT_BEGAN, CauseCode.ENDED)
    assert began.data == {
        "attempt": 1,
        "waited_seconds": 3.0,
        "worker": "w",
        "served_as": "medium",
        "promoted": False,
    }
    assert began.text == "attempt 1 began, 3s after it was queued, at worker w, as medium, because it was submitted"
    assert (
        ended.text == "it completed after 1 attempt, which took 2s, 5s after it was submitted"
        and ended.data["took_seconds"] == 2.0
    )


def test_a_long_wait_is_told_with_the_promotion_that_ended_it() -> None:
    began, _ = Life().claim(NOW + 25 * MINUTE).told()
    assert began.data["served_as"] == "high" and began.data["promoted"] is True
    assert "promoted from medium to high by its wait" in began.text


def test_where_turns_are_drawn_nothing_is_promoted() -> None:
    life = Life().claim(NOW + 25 * MINUTE)
    began, _ = recount(life.task, None, NOW + 26 * MINUTE)
    assert began.data["promoted"] is False


def test_a_change_of_priority_does_not_begin_the_wait_anew() -> None:
    plain = Life().claim(NOW + 5 * SECOND).then(Completed(), NOW + 6 * SECOND).told()
    changed = (
        Life()
        .then(Prioritized(Priority.MEDIUM), NOW + SECOND)
        .claim(NOW + 5 * SECOND)
        .then(Completed(), NOW + 6 * SECOND)
        .told()
    )
    assert changed == plain


def test_a_retry_is_told_with_what_it_came_after() -> None:
    life = Life().claim(NOW + SECOND).then(Failed(failure=BOOM), NOW + 2 * SECOND)
    due = life.task.status.ready_at
    life.then(AlarmRang(), due).claim(due + 4 * SECOND, "v").then(Completed(None), due + 5 * SECOND)
    first, failed, second, ended = life.told()
    assert failed.code == CauseCode.ATTEMPT_ENDED
    assert failed.text == "attempt 1 failed (Boom: it went boom) after 1s, and the task was scheduled for a retry"
    assert failed.data["error"] == "Boom" and failed.data["status"] == "scheduled"
    assert second.data["waited_seconds"] == 4.0 and second.data["worker"] == "v"
    assert second.text.endswith("because attempt 1 failed (Boom: it went boom)")
    assert first.data["attempt"] == 1 and ended.data["attempts"] == 2


def test_what_is_handed_back_keeps_the_wait_it_had() -> None:
    life = Life().claim(NOW + SECOND).then(HandedBack(), NOW + 2 * SECOND).claim(NOW + 6 * SECOND)
    first, back, second, runs = life.told(NOW + 7 * SECOND)
    assert (first.data["waited_seconds"], second.data["waited_seconds"]) == (1.0, 6.0)
    assert back.data["reason"] == "handed_back" and "queued again at once" in back.text
    assert "because attempt 1 was handed back by its worker" in second.text
    assert runs.code == CauseCode.EXECUTING and runs.data["ran_seconds"] == 1.0


def test_a_replay_is_told() -> None:
    life = Life(a_task(spec=a_spec(max_retries=0, created_at=NOW), ready_at=NOW))
    life.claim(NOW).then(Failed(failure=BOOM), NOW + SECOND)
    assert life.told()[-1].text.startswith("its retries are used up after 1 attempt")
    life.then(Replayed(), NOW + MINUTE).claim(NOW + 2 * MINUTE)
    assert "because it was replayed" in life.told()[1].text
    assert life.told()[1].data["waited_seconds"] == 60.0


def test_a_task_that_was_to_run_later_waits_from_when_it_is_due() -> None:
    due = NOW + MINUTE
    task = a_task(State.SCHEDULED, spec=a_spec(created_at=NOW), ready_at=due)
    life = Life(task).then(AlarmRang(), due + SECOND).claim(due + 2 * SECOND)
    began = life.told()[0]
    assert began.data["waited_seconds"] == 2.0
    assert began.text.endswith("because it was submitted to run later")


def test_a_task_that_waits_has_only_its_past_to_tell() -> None:
    assert Life().told() == ()
    assert codes(Life().claim(NOW).then(Failed(failure=BOOM), NOW + SECOND).told()) == [
        CauseCode.ATTEMPT_BEGAN,
        CauseCode.ATTEMPT_ENDED,
    ]


def test_a_cancel_is_told_before_and_after_it_is_heeded() -> None:
    asked = Life().claim(NOW).then(CancelAsked(), NOW + SECOND)
    assert codes(asked.told()) == [CauseCode.ATTEMPT_BEGAN, CauseCode.CANCEL_ASKED, CauseCode.EXECUTING]
    never = Life().then(CancelAsked(), NOW + SECOND).told()
    assert [cause.text for cause in never] == ["it was cancelled before any worker took it, 1s after it was submitted"]


def test_of_a_very_long_past_the_end_is_told() -> None:
    life = Life(a_task(spec=a_spec(created_at=NOW), ready_at=NOW, priority=Priority.HIGH))
    for at in range(40):
        life.claim(NOW + at * SECOND).then(HandedBack(), NOW + at * SECOND)
    causes = life.told()
    assert causes[0].data["attempt"] == 9 and causes[0].data["waited_seconds"] is None
    assert "its earlier history is no longer kept" in causes[0].text
