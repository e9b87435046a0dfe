"""The checker finds each fault where it is planted, and nothing in a history without fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import asdict, replace

from fairlead.core.instant import SECOND, Instant
from fairlead.core.task import Entry, Reason, State, Task
from fairlead.testing.builders import NOW, a_spec, a_status, an_id
from tests.chaos.campaign.checker import check, count, number_of
from tests.chaos.campaign.history import Acknowledged, Asked, Ended, History, Line, Refused, Scribe, Started, read_lines
from tests.chaos.campaign.plan import plan

WHOLE = range(1, 9)
"""One number of each type and none with a delay, and all of one priority."""
LATE = 11


def claimed_at(number: int) -> Instant:
    """Ten seconds apart, in the order of submitting."""
    return NOW + number * 10 * SECOND


def a_completed(number: int, *, attempt: int = 1, created_at: Instant | None = None) -> Task:
    """A task of the campaign that ran once for each attempt, of which the last completed."""
    asked = plan(number)
    entries = [
        Entry(
            at=claimed_at(number) + SECOND,
            state=State.COMPLETED if at == attempt else State.SCHEDULED,
            reason=Reason.COMPLETED if at == attempt else Reason.FAILED,
            attempt=at,
            started_at=claimed_at(number),
        )
        for at in range(1, attempt + 1)
    ]
    return Task(
        a_spec(
            id=an_id(number=number),
            type=asked.type,
            key=str(number),
            created_at=NOW + number if created_at is None else created_at,
        ),
        replace(
            a_status(state=State.COMPLETED, priority=asked.priority, result=b"%d" % attempt),
            attempts=attempt,
            retries=attempt - 1,
            history=tuple(entries),
        ),
    )


def a_dead_letter(number: int, attempts: int = 3) -> Task:
    """A task that was given up after as many failed attempts."""
    task = a_completed(number, attempt=attempts)
    *failed, last = task.status.history
    last = replace(last, state=State.DEAD_LETTER, reason=Reason.RETRIES_USED_UP)
    return Task(task.spec, replace(task.status, state=State.DEAD_LETTER, result=None, history=(*failed, last)))


def the_task(number: int) -> Task:
    match plan(number).type:
        case "never":
            return a_dead_letter(number)
        case "stumble":
            return a_completed(number, attempt=2)
        case _:
            return a_completed(number)


def lines_of(task: Task, number: int) -> list[Line]:
    """What was written down of a task to which nothing happened."""
    asked: list[Line] = [Asked(number), Acknowledged(number, task.id, NOW + number + 1)]
    for attempt in range(1, task.status.attempts + 1):
        at = claimed_at(number) + attempt
        asked += [Started(number, attempt, 100, at), Ended(number, attempt, 100, at + 1)]
    return asked


def a_history() -> History:
    tasks = [the_task(number) for number in WHOLE]
    lines = [line for task, number in zip(tasks, WHOLE, strict=True) for line in lines_of(task, number)]
    return History(lines=lines, tasks=tasks)


def faults_of(history: History) -> set[str]:
    """The kinds of fault that the checker finds."""
    return {name for name, seen in asdict(check(history)).items() if seen}


def with_task(history: History, task: Task, number: int) -> History:
    """The history with another task for a number."""
    return replace(history, tasks=[task if each.id == an_id(number=number) else each for each in history.tasks])


def test_a_history_without_fault_has_none() -> None:
    assert not check(a_history())
    assert count(a_history()).acknowledged == len(WHOLE)


def test_a_task_that_was_acknowledged_and_is_not_there_is_lost() -> None:
    history = a_history()
    assert "lost" in faults_of(replace(history, tasks=history.tasks[1:]))


def test_a_key_that_answers_with_another_task_has_lost_the_first() -> None:
    history = a_history()
    lines = [*history.lines, Acknowledged(1, an_id(number=99), NOW)]
    assert faults_of(replace(history, lines=lines)) == {"lost"}


def test_a_task_that_nobody_asked_for_is_unexpected() -> None:
    history = a_history()
    assert "unexpected" in faults_of(replace(history, tasks=[*history.tasks, a_completed(20)]))


def test_a_task_that_was_refused_and_is_there_is_unexpected() -> None:
    history = a_history()
    lines = [Refused(1) if line == Acknowledged(1, an_id(number=1), NOW + 2) else line for line in history.lines]
    assert faults_of(replace(history, lines=lines)) == {"unexpected"}


def test_a_run_of_what_is_not_stored_is_unexpected() -> None:
    history = a_history()
    assert faults_of(replace(history, lines=[*history.lines, Started(50, 1, 100, NOW)])) == {"unexpected"}


def test_two_tasks_of_one_key_are_duplicated() -> None:
    history = a_history()
    twin = a_completed(1)
    twin = Task(replace(twin.spec, id=an_id(number=77)), twin.status)
    assert "duplicated" in faults_of(replace(history, tasks=[*history.tasks, twin]))


def test_two_ends_are_accepted_twice() -> None:
    task = a_completed(1)
    twice = Task(task.spec, replace(task.status, history=task.status.history * 2))
    assert "accepted_twice" in faults_of(with_task(a_history(), twice, 1))


def test_a_result_of_another_attempt_is_accepted_twice() -> None:
    task = a_completed(1)
    assert faults_of(with_task(a_history(), Task(task.spec, replace(task.status, result=b"2")), 1)) == {
        "accepted_twice"
    }


@pytest.mark.parametrize("state", [State.QUEUED, State.SCHEDULED, State.EXECUTING])
def test_what_has_not_ended_is_stuck(state: State) -> None:
    task = a_completed(1)
    history = with_task(a_history(), Task(task.spec, replace(task.status, state=state, history=())), 1)
    assert "stuck" in faults_of(history)


def test_a_run_before_its_moment_is_early() -> None:
    task = a_completed(LATE, created_at=claimed_at(LATE))
    history = History(lines=lines_of(task, LATE), tasks=[task])
    assert plan(LATE).delay
    assert faults_of(history) == {"early"}


def test_a_task_taken_long_before_one_that_came_first_is_out_of_order() -> None:
    history = a_history()
    assert plan(1) == plan(5)
    assert faults_of(with_task(history, taken_late(1), 1)) == {"out_of_order"}


def test_a_task_for_other_slots_is_not_passed() -> None:
    """Coroutines that are taken do not keep a thread's task waiting: its slots were full."""
    history = a_history()
    others = [task for task in history.tasks if plan(number_of(task)).place != "thread"]
    lines = [line for line in history.lines if line.number == 1 or plan(line.number).place != "thread"]
    assert faults_of(History(lines=lines, tasks=[taken_late(1), *others])) == set()


def taken_late(number: int) -> Task:
    """A task that came first, and was taken long after the others."""
    task = a_completed(number)
    late = replace(task.status.history[0], started_at=claimed_at(number) + 45 * SECOND)
    return Task(replace(task.spec, created_at=NOW), replace(task.status, history=(late,)))


def test_a_task_of_lower_priority_taken_first_is_out_of_order() -> None:
    low, critical = 25, 1
    assert plan(low).priority > plan(critical).priority
    tasks = [a_completed(low), a_completed(critical)]
    late = replace(tasks[1].status.history[0], started_at=claimed_at(low) + 15 * SECOND)
    tasks[1] = Task(tasks[1].spec, replace(tasks[1].status, history=(late,)))
    lines = [line for task, number in zip(tasks, (low, critical), strict=True) for line in lines_of(task, number)]
    assert faults_of(History(lines=lines, tasks=tasks)) == {"out_of_order"}


def test_more_attempts_than_allowed_are_over_budget() -> None:
    never = next(number for number in WHOLE if plan(number).type == "never")
    history = a_history()
    more = a_dead_letter(never, attempts=4)
    assert faults_of(replace(with_task(history, more, never))) == {"over_budget"}


def test_a_task_given_up_too_soon_is_over_budget() -> None:
    never = next(number for number in WHOLE if plan(number).type == "never")
    history = with_task(a_history(), a_dead_letter(never, attempts=2), never)
    assert "over_budget" in faults_of(history)


def test_a_dead_letter_that_should_have_completed_is_over_budget() -> None:
    assert "over_budget" in faults_of(with_task(a_history(), a_dead_letter(1), 1))


def test_one_attempt_that_runs_twice_is_over_budget() -> None:
    history = a_history()
    assert faults_of(replace(history, lines=[*history.lines, Started(1, 1, 200, claimed_at(1))])) == {"over_budget"}


def test_what_is_left_is_leaked() -> None:
    assert faults_of(replace(a_history(), leaks=["process 4711"])) == {"leaked"}


def test_what_was_asked_and_never_answered_and_is_there_is_recovered() -> None:
    history = a_history()
    lines = [line for line in history.lines if not (isinstance(line, Acknowledged) and line.number == 1)]
    assert not check(replace(history, lines=lines))
    assert count(replace(history, lines=lines)).recovered == 1


def test_lines_survive_the_file(tmp_path: Path) -> None:
    lines = a_history().lines
    Scribe(tmp_path / "lines").write(*lines)
    with (tmp_path / "lines").open("a") as file:
        file.write("Started 5 1")
    assert list(read_lines(tmp_path / "lines")) == lines
