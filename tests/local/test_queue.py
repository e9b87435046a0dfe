"""The queue inside one process, as programs talk to it: words in, plain dicts out."""

from __future__ import annotations

import enum
import gc
import inspect
import threading
import weakref
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairlead
from fairlead.core.instant import HOUR, MINUTE, SECOND
from fairlead.core.retry import Backoff
from fairlead.core.task import Priority
from fairlead.engine.runtime.clock import ManualClock
from fairlead.local import NextTask, TaskPriority, TaskQueueManager, TaskReport, TaskSupervisor


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def manager(clock: ManualClock) -> TaskQueueManager:
    return TaskQueueManager(clock=clock)


def submitted(manager: TaskQueueManager, payload: object = None, **wish: Any) -> str:
    return manager.submit_task(payload, **wish)["task_id"]


def taken(manager: TaskQueueManager, worker: str = "worker-1") -> NextTask:
    task = manager.get_next_task(worker)
    assert task is not None
    return task


def lease_of(manager: TaskQueueManager, task_id: str) -> str:
    task = manager.queue.get_task(task_id)
    assert task is not None and task.lease is not None
    return task.lease


def shown(manager: TaskQueueManager, task_id: str) -> TaskReport:
    task = manager.get_task_status(task_id)
    assert task is not None
    return task


def status(manager: TaskQueueManager, task_id: str) -> str:
    return shown(manager, task_id)["status"]


class Size(enum.IntEnum):
    """Somebody's own enum, whose numbers mean something else."""

    SMALL = 1
    LARGE = 4


class Word(enum.StrEnum):
    """Somebody's own enum of words."""

    URGENT = "critical"
    FOUR = "4"


NO_IDS = ["no such task", "", None, 7, True, float("nan"), [], {}, {"a": [1]}, b"x", object(), "\udce9", "x" * 10_000]
"""What is no task's id; some cannot be hashed, some cannot be written down."""


class TestSignatures:
    """Names and defaults are what programs were written against."""

    @pytest.mark.parametrize(
        ("function", "written"),
        [
            (
                TaskQueueManager,
                {"max_queue_size": None, "task_retention_seconds": 3600, "cleanup_interval_seconds": 300},
            ),
            (
                TaskQueueManager.submit_task,
                {"payload": ..., "priority": "medium", "max_retries": 3, "retry_policy": None},
            ),
            (TaskQueueManager.get_next_task, {"worker_id": None}),
            (TaskQueueManager.complete_task, {"task_id": ..., "success": True, "error": None}),
            (TaskQueueManager.get_task_status, {"task_id": ...}),
            (TaskQueueManager.cancel_task, {"task_id": ...}),
            (TaskQueueManager.requeue_task, {"task_id": ..., "reset_retries": False}),
            (TaskQueueManager.get_statistics, {}),
            (TaskQueueManager.force_maintenance, {}),
            (TaskSupervisor, {"manager": ..., "stuck_threshold_seconds": 300}),
        ],
        ids=lambda value: getattr(value, "__name__", ""),
    )
    def test_arguments_have_their_names_order_and_defaults(self, function: Any, written: dict[str, Any]) -> None:
        parameters = [each for each in inspect.signature(function).parameters.values() if each.name != "self"]
        found = {
            each.name: ... if each.default is each.empty else each.default
            for each in parameters
            if each.kind is each.POSITIONAL_OR_KEYWORD
        }

        assert list(found.items()) == list(written.items())
        assert all(each.kind is each.KEYWORD_ONLY for each in parameters[len(written) :])

    def test_all_that_programs_import_is_exported(self) -> None:
        from fairlead import local

        names = "Task TaskStatus TaskPriority HeapHealth PriorityTaskQueue TaskQueueManager TaskSupervisor"
        errors = "QueueFullError TaskNotFoundError InvalidStateTransitionError"

        assert {*names.split(), *errors.split()} <= set(local.__all__)
        assert [name for name in local.__all__ if not hasattr(local, name)] == []


class TestSubmitting:
    def test_a_submitted_task_is_pending(self, manager: TaskQueueManager) -> None:
        answer = manager.submit_task({"to": "ada"}, "high")

        assert answer == {"task_id": answer["task_id"], "status": "pending", "priority": "HIGH"}
        assert status(manager, answer["task_id"]) == "pending"

    def test_a_full_queue_rejects_and_says_why(self, clock: ManualClock) -> None:
        manager = TaskQueueManager(max_queue_size=2, clock=clock)
        submitted(manager)
        submitted(manager)
        answer = manager.submit_task("one too many")

        assert set(answer) == {"error", "status"}
        assert answer["status"] == "rejected"
        assert "2 tasks are pending and max_queue_size is 2" in answer["error"]

    def test_a_full_queue_has_room_again_when_a_task_is_taken(self, clock: ManualClock) -> None:
        manager = TaskQueueManager(max_queue_size=1, clock=clock)
        submitted(manager)
        taken(manager)

        assert manager.submit_task("fits")["status"] == "pending"

    def test_a_queue_has_no_bound_unless_it_is_given_one(self, manager: TaskQueueManager) -> None:
        for number in range(2_000):
            submitted(manager, number)

        assert manager.get_statistics()["pending"] == 2_000

    @pytest.mark.parametrize(
        ("said", "means"),
        [
            *[("low", "LOW"), ("medium", "MEDIUM"), ("high", "HIGH"), ("critical", "CRITICAL"), ("normal", "MEDIUM")],
            *[("HIGH", "HIGH"), ("Critical", "CRITICAL"), (1, "LOW"), (2, "MEDIUM"), (3, "HIGH"), (4, "CRITICAL")],
            *[(priority, priority.name) for priority in TaskPriority],
            *[(priority, priority.name) for priority in Priority],
            (Word.URGENT, "CRITICAL"),
        ],
    )
    def test_a_priority_is_a_word_a_number_or_a_member(self, manager: TaskQueueManager, said: Any, means: str) -> None:
        assert manager.submit_task("x", priority=said)["priority"] == means
        assert taken(manager)["priority"] == means

    @pytest.mark.parametrize(
        "priority",
        [
            *["urgent", "", "4", " high", "x" * 5_000, "\udce9", b"high", 0, 5, 7, -1, 2.0, 10**5_000, float("nan")],
            *[None, True, False, Size.SMALL, Size.LARGE, Word.FOUR, [], {}, ["high"]],
        ],
        ids=lambda value: repr(value)[:20] if type(value) is not int else "number",
    )
    def test_an_unknown_priority_is_refused_with_those_there_are(
        self, manager: TaskQueueManager, priority: Any
    ) -> None:
        with pytest.raises(ValueError, match=r"critical, high, medium, low, or a number from 1 \(low\) to 4"):
            manager.submit_task("x", priority=priority)
        assert manager.get_statistics()["total_tasks"] == 0

    @pytest.mark.parametrize("wrong", [-1, True, 2.5, "3", None, [], 10**9, float("nan")])
    def test_a_number_of_retries_that_makes_no_sense_is_refused(self, manager: TaskQueueManager, wrong: Any) -> None:
        with pytest.raises(ValueError, match=r"max_retries .*; use "):
            manager.submit_task("x", max_retries=wrong)

    @pytest.mark.parametrize("wrong", [5, "fast", ["factor"], True, object()])
    def test_a_retry_policy_that_is_no_dict_is_refused(self, manager: TaskQueueManager, wrong: Any) -> None:
        with pytest.raises(ValueError, match="is not a dict; write a dict or None"):
            manager.submit_task("x", retry_policy=wrong)

    def test_a_backoff_is_no_retry_policy(self, manager: TaskQueueManager) -> None:
        with pytest.raises(ValueError, match="write backoff="):
            manager.submit_task("x", retry_policy=Backoff())  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("backoff", "says"),
        [
            ({"intial_seconds": 1}, "'intial_seconds' is unknown; write a Backoff, or a dict with any of"),
            ({"factor": 0.5}, "factor 0.5"),
            (5, "backoff 5 is not a dict; write"),
            ("fast", "backoff 'fast' is not a dict; write"),
            (["factor"], "is not a dict; write"),
            (True, "is not a dict; write"),
        ],
    )
    def test_a_backoff_that_makes_no_sense_is_refused(self, manager: TaskQueueManager, backoff: Any, says: str) -> None:
        with pytest.raises(ValueError, match=says):
            manager.submit_task("x", backoff=backoff)

    @pytest.mark.parametrize("name", ["max_queue_size", "task_retention_seconds", "cleanup_interval_seconds"])
    @pytest.mark.parametrize("wrong", [-1, float("nan"), "5", True, [], 10**30])
    def test_settings_that_make_no_sense_are_refused(self, name: str, wrong: Any) -> None:
        with pytest.raises(ValueError, match=rf"{name} .*; use "):
            TaskQueueManager(**{name: wrong})

    def test_a_queue_that_holds_nothing_is_refused(self) -> None:
        with pytest.raises(ValueError, match="max_queue_size 0"):
            TaskQueueManager(max_queue_size=0)


class TestPayloads:
    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=10,
        )
    )
    def test_whatever_json_can_say_comes_back_equal(self, payload: object) -> None:
        manager = TaskQueueManager(clock=ManualClock())
        manager.submit_task(payload)

        assert taken(manager)["payload"] == payload

    @pytest.mark.parametrize(
        "payload", [None, float("nan"), {"n": float("inf")}, b"\xff" * 2_000_000, threading.Lock()]
    )
    def test_any_object_comes_back_as_itself(self, manager: TaskQueueManager, payload: object) -> None:
        task_id = submitted(manager, payload)
        waiting = manager.queue.get_task(task_id)

        assert waiting is not None and waiting.payload is payload
        assert taken(manager)["payload"] is payload

    def test_an_object_is_let_go_with_its_task(self, clock: ManualClock) -> None:
        manager = TaskQueueManager(task_retention_seconds=60, clock=clock)
        payload = {1, 2, 3}
        gone = weakref.ref(payload)
        manager.submit_task(payload)
        del payload
        manager.complete_task(taken(manager)["task_id"])
        clock.advance(MINUTE)
        assert gone() is not None
        manager.force_maintenance()
        gc.collect()

        assert gone() is None

    def test_an_object_whose_finaliser_uses_the_queue_does_not_block_it(self, clock: ManualClock) -> None:
        manager = TaskQueueManager(task_retention_seconds=0, clock=clock)

        class LastWords:
            def __del__(self) -> None:
                manager.submit_task("last words")

        manager.submit_task(LastWords())
        manager.complete_task(taken(manager)["task_id"])
        manager.force_maintenance()

        assert taken(manager)["payload"] == "last words"

    def test_a_rejected_object_is_not_kept(self, clock: ManualClock) -> None:
        manager = TaskQueueManager(max_queue_size=1, clock=clock)
        manager.submit_task("fits")
        payload = {1, 2, 3}
        gone = weakref.ref(payload)
        manager.submit_task(payload)
        del payload
        gc.collect()

        assert gone() is None


class TestTaking:
    def test_an_empty_queue_gives_nothing(self, manager: TaskQueueManager) -> None:
        assert manager.get_next_task() is None

    def test_the_worker_gets_what_it_needs(self, manager: TaskQueueManager) -> None:
        policy = {"delays": [1, 5], object(): float("nan")}
        task_id = submitted(manager, {"to": "ada"}, priority="high", max_retries=5, retry_policy=policy)
        task = manager.get_next_task("worker-1")

        assert task == {
            "task_id": task_id,
            "payload": {"to": "ada"},
            "priority": "HIGH",
            "retry_count": 0,
            "max_retries": 5,
            "retry_policy": policy,
        }
        assert task["retry_policy"] is policy

    def test_the_most_urgent_comes_first_and_then_the_oldest(self, manager: TaskQueueManager) -> None:
        for payload, priority in [(1, "low"), (2, "high"), (3, "normal"), (4, "critical"), (5, "high")]:
            manager.submit_task(payload, priority=priority)

        assert [taken(manager)["payload"] for _ in range(5)] == [4, 2, 5, 3, 1]

    def test_a_low_task_is_not_passed_for_ever(self, manager: TaskQueueManager, clock: ManualClock) -> None:
        manager.submit_task("patient", priority="low")
        clock.advance(HOUR)
        clock.advance(1)
        manager.submit_task("fresh", priority="critical")

        assert taken(manager)["payload"] == "patient"

    def test_a_taken_task_is_in_progress_with_its_worker(self, manager: TaskQueueManager, clock: ManualClock) -> None:
        task_id = submitted(manager, priority="low")
        at = clock.now()
        clock.advance(SECOND)
        taken(manager, "worker-7")
        clock.advance(2 * SECOND)

        assert shown(manager, task_id) == {
            "task_id": task_id,
            "status": "in_progress",
            "priority": "LOW",
            "created_at": iso(at),
            "started_at": iso(at + SECOND),
            "completed_at": None,
            "error_message": None,
            "retry_count": 0,
            "max_retries": 3,
            "worker_id": "worker-7",
            "age_seconds": 3.0,
            "time_in_progress": 2.0,
        }

    def test_a_worker_need_not_say_who_it_is(self, manager: TaskQueueManager) -> None:
        task_id = submitted(manager)

        assert manager.get_next_task() is not None
        assert (status(manager, task_id), shown(manager, task_id)["worker_id"]) == ("in_progress", None)

    @pytest.mark.parametrize("wrong", ["", 7, True, [], {}, b"w", "\udce9", "x" * 501])
    def test_a_worker_that_is_no_text_is_refused(self, manager: TaskQueueManager, wrong: Any) -> None:
        task_id = submitted(manager)
        with pytest.raises(ValueError, match="worker_id"):
            manager.get_next_task(wrong)

        assert status(manager, task_id) == "pending"

    def test_a_task_in_progress_is_nobody_elses_however_long_it_takes(
        self, manager: TaskQueueManager, clock: ManualClock
    ) -> None:
        task_id = submitted(manager)
        taken(manager)
        clock.advance(365 * 24 * HOUR)

        assert manager.get_next_task("worker-2") is None
        assert manager.complete_task(task_id)["status"] == "completed"

    def test_nor_is_it_when_the_clock_is_set_forward_by_years(
        self, manager: TaskQueueManager, clock: ManualClock
    ) -> None:
        running = [submitted(manager) for _ in range(3)]
        for _ in running:
            taken(manager)
        ended = submitted(manager)
        manager.cancel_task(ended)
        clock.jump(50 * 365 * 24 * HOUR)

        assert manager.force_maintenance()["tasks_removed"] == 1
        assert [status(manager, task_id) for task_id in running] == ["in_progress"] * 3
        assert manager.get_next_task() is None
        assert [manager.complete_task(task_id)["status"] for task_id in running] == ["completed"] * 3


class TestCompleting:
    def test_success_completes_the_task(self, manager: TaskQueueManager, clock: ManualClock) -> None:
        task_id = submitted(manager)
        taken(manager)
        clock.advance(SECOND)

        assert manager.complete_task(task_id) == {"task_id": task_id, "status": "completed", "retried": False}
        ended = shown(manager, task_id)
        assert (ended["status"], ended["completed_at"]) == ("completed", iso(clock.now()))
        assert (ended["worker_id"], ended["time_in_progress"]) == ("worker-1", None)

    def test_three_retries_are_three_attempts_and_each_failure_is_counted(self, manager: TaskQueueManager) -> None:
        task_id = submitted(manager, max_retries=3)
        answers, counts = [], []
        while task := manager.get_next_task("worker-1"):
            counts.append(task["retry_count"])
            answers.append(manager.complete_task(task_id, False, ValueError("bad input")))

        assert counts == [0, 1, 2]
        assert answers == [
            {"task_id": task_id, "status": "failed", "retried": True},
            {"task_id": task_id, "status": "failed", "retried": True},
            {"task_id": task_id, "status": "failed", "retried": False},
        ]
        ended = shown(manager, task_id)
        assert (ended["status"], ended["retry_count"], ended["error_message"]) == ("failed", 3, "bad input")

    @pytest.mark.parametrize(("max_retries", "attempts"), [(0, 1), (1, 1), (2, 2), (5, 5), (10_000, 50)])
    def test_a_task_has_as_many_attempts_as_retries_and_one_at_least(
        self, manager: TaskQueueManager, max_retries: int, attempts: int
    ) -> None:
        task_id = submitted(manager, max_retries=max_retries)
        failures = 0
        while failures < 50 and manager.get_next_task():
            manager.complete_task(task_id, False)
            failures += 1

        assert failures == attempts
        assert shown(manager, task_id)["retry_count"] == attempts
        assert shown(manager, task_id)["max_retries"] == max_retries

    def test_a_failure_is_pending_again_at_once_with_what_went_wrong(self, manager: TaskQueueManager) -> None:
        task_id = submitted(manager, retry_policy={"initial_seconds": 10})
        taken(manager)
        manager.complete_task(task_id, success=False, error="no answer")
        again = shown(manager, task_id)

        assert (again["status"], again["retry_count"], again["error_message"]) == ("pending", 1, "no answer")
        assert (again["started_at"], again["worker_id"]) == (None, None)
        assert taken(manager)["task_id"] == task_id

    def test_a_retry_does_not_pass_those_of_its_priority_that_waited_before(
        self, manager: TaskQueueManager, clock: ManualClock
    ) -> None:
        failing = submitted(manager)
        taken(manager)
        clock.advance(SECOND)
        waiting = submitted(manager)
        clock.advance(SECOND)
        manager.complete_task(failing, False)

        assert [taken(manager)["task_id"] for _ in range(2)] == [waiting, failing]

    def test_with_a_backoff_it_is_pending_until_that_has_passed(
        self, manager: TaskQueueManager, clock: ManualClock
    ) -> None:
        task_id = submitted(manager, backoff={"initial_seconds": 10, "jitter": 0})
        taken(manager)

        assert manager.complete_task(task_id, False)["retried"]
        assert status(manager, task_id) == "pending"
        clock.advance(10 * SECOND - 1)
        assert manager.get_next_task() is None
        clock.advance(1)
        assert taken(manager)["retry_count"] == 1

    def test_a_backoff_may_leave_out_what_it_does_not_care_about(
        self, manager: TaskQueueManager, clock: ManualClock
    ) -> None:
        task_id = submitted(manager, max_retries=9, backoff={"max_seconds": 3, "jitter": 0})
        waits = []
        for _ in range(4):
            taken(manager)
            manager.complete_task(task_id, False)
            task = manager.queue.get_task(task_id)
            assert task is not None and task.ready_at is not None
            wait = task.ready_at - datetime.fromtimestamp(clock.now() / SECOND, UTC)
            waits.append(wait.total_seconds())
            clock.advance(round(waits[-1] * SECOND))

        assert waits == [1, 2, 3, 3]

    def test_a_backoff_may_be_given_as_everywhere(self, manager: TaskQueueManager, clock: ManualClock) -> None:
        submitted(manager, backoff=fairlead.Backoff(initial=5, jitter=0))
        manager.complete_task(taken(manager)["task_id"], False)
        clock.advance(4 * SECOND)
        assert manager.get_next_task() is None
        clock.advance(SECOND)

        assert manager.get_next_task() is not None

    def test_what_is_not_in_progress_cannot_be_completed(self, manager: TaskQueueManager) -> None:
        pending = submitted(manager)
        answer = manager.complete_task(pending)

        assert set(answer) == {"error"}
        assert f"task {pending} is pending, so it cannot become completed" in answer["error"]
        assert status(manager, pending) == "pending"

    @pytest.mark.parametrize("task_id", NO_IDS, ids=lambda value: repr(value)[:20])
    def test_an_id_that_is_no_tasks_is_an_answer_and_no_crash(self, manager: TaskQueueManager, task_id: Any) -> None:
        submitted(manager)

        assert set(manager.complete_task(task_id)) == {"error"}
        assert "not found" in manager.complete_task(task_id, False)["error"]
        assert manager.get_task_status(task_id) is None
        assert "not found" in manager.cancel_task(task_id)["message"]
        assert "not found" in manager.requeue_task(task_id)["message"]
        assert manager.get_statistics()["pending"] == 1

    def test_a_second_word_is_refused(self, manager: TaskQueueManager) -> None:
        task_id = submitted(manager)
        taken(manager)
        manager.complete_task(task_id)

        assert set(manager.complete_task(task_id, False)) == {"error"}
        assert status(manager, task_id) == "completed"

    def test_with_its_lease_only_the_present_attempt_is_heard(self, manager: TaskQueueManager) -> None:
        task_id = submitted(manager)
        taken(manager, "hangs")
        old = lease_of(manager, task_id)
        manager.requeue_task(task_id)
        taken(manager, "works")

        assert "the lease on task" in manager.complete_task(task_id, lease=old)["error"]
        assert status(manager, task_id) == "in_progress"
        assert manager.complete_task(task_id, lease=lease_of(manager, task_id))["status"] == "completed"

    @pytest.mark.parametrize("wrong", ["no", 1, None, []])
    def test_success_is_true_or_false(self, manager: TaskQueueManager, wrong: Any) -> None:
        task_id = submitted(manager)
        taken(manager)
        with pytest.raises(ValueError, match="success"):
            manager.complete_task(task_id, wrong)

        assert status(manager, task_id) == "in_progress"

    @pytest.mark.parametrize(
        ("error", "says"),
        [
            (None, None),
            ("", None),
            ("no answer", "no answer"),
            (ValueError("bad input"), "bad input"),
            (KeyError(), "KeyError"),
            ({"code": 7}, "{'code': 7}"),
            (FileNotFoundError("no such file: caf\udce9"), "no such file: caf\\udce9"),
        ],
        ids=repr,
    )
    def test_the_error_is_kept_readable(self, manager: TaskQueueManager, error: object, says: str | None) -> None:
        task_id = submitted(manager)
        taken(manager)
        manager.complete_task(task_id, False, error)

        assert shown(manager, task_id)["error_message"] == says

    def test_a_huge_error_is_cut(self, manager: TaskQueueManager) -> None:
        task_id = submitted(manager)
        taken(manager)
        manager.complete_task(task_id, False, "x" * 1_000_000)

        assert len(shown(manager, task_id)["error_message"] or "") < 3_000

    def test_an_error_that_cannot_be_shown_ends_the_attempt_too(self, manager: TaskQueueManager) -> None:
        class Unshown(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no")

        task_id = submitted(manager, max_retries=0)
        taken(manager)
        manager.complete_task(task_id, False, error=Unshown())

        ended = shown(manager, task_id)
        assert (ended["status"], ended["error_message"]) == ("failed", "its str() raised RuntimeError")


class TestCancelling:
    def test_a_pending_task_is_cancelled_and_not_taken(self, manager: TaskQueueManager, clock: ManualClock) -> None:
        task_id = submitted(manager)
        answer = manager.cancel_task(task_id)

        assert (answer["task_id"], answer["cancelled"], set(answer)) == (
            task_id,
            True,
            {"task_id", "cancelled", "message"},
        )
        assert status(manager, task_id) == "cancelled"
        assert shown(manager, task_id)["completed_at"] == iso(clock.now())
        assert manager.get_next_task() is None

    def test_a_retry_that_waits_is_pending_too(self, manager: TaskQueueManager) -> None:
        task_id = submitted(manager, backoff=Backoff())
        taken(manager)
        manager.complete_task(task_id, False)

        assert manager.cancel_task(task_id)["cancelled"]

    def test_a_task_in_progress_is_left_alone(self, manager: TaskQueueManager) -> None:
        task_id = submitted(manager)
        taken(manager)
        answer = manager.cancel_task(task_id)

        assert not answer["cancelled"]
        assert "is in_progress, so it cannot become cancelled" in answer["message"]
        assert manager.complete_task(task_id, False)["retried"]

    def test_what_has_ended_cannot_be_cancelled(self, manager: TaskQueueManager) -> None:
        task_id = submitted(manager)
        manager.cancel_task(task_id)

        assert not manager.cancel_task(task_id)["cancelled"]


class TestRequeuing:
    def in_progress(self, manager: TaskQueueManager) -> str:
        """A task that has failed once and was taken again."""
        task_id = submitted(manager)
        taken(manager)
        manager.complete_task(task_id, False, "no answer")
        taken(manager)
        return task_id

    def test_a_task_in_progress_is_pending_again_and_keeps_its_retries(self, manager: TaskQueueManager) -> None:
        task_id = self.in_progress(manager)
        answer = manager.requeue_task(task_id)

        assert answer == {
            "task_id": task_id,
            "requeued": True,
            "reset_retries": False,
            "message": answer["message"],
        }
        task = shown(manager, task_id)
        assert (task["status"], task["retry_count"], task["error_message"]) == ("pending", 1, "no answer")

    def test_or_has_all_of_them_again_and_no_error(self, manager: TaskQueueManager) -> None:
        task_id = self.in_progress(manager)

        assert manager.requeue_task(task_id, reset_retries=True)["reset_retries"] is True
        task = shown(manager, task_id)
        assert (task["status"], task["retry_count"], task["error_message"]) == ("pending", 0, None)
        failures = 0
        while manager.get_next_task():
            manager.complete_task(task_id, False)
            failures += 1
        assert failures == 3

    def test_it_keeps_its_place_in_the_line(self, manager: TaskQueueManager, clock: ManualClock) -> None:
        first = submitted(manager)
        clock.advance(SECOND)
        submitted(manager)
        taken(manager)
        clock.advance(SECOND)
        manager.requeue_task(first)

        assert taken(manager)["task_id"] == first

    @pytest.mark.parametrize("way", ["pending", "completed", "failed", "cancelled"])
    @pytest.mark.parametrize("reset", [False, True])
    def test_a_task_that_is_not_in_progress_is_left_alone(
        self, manager: TaskQueueManager, way: str, reset: bool
    ) -> None:
        task_id = submitted(manager, max_retries=1)
        if way == "cancelled":
            manager.cancel_task(task_id)
        elif way != "pending":
            taken(manager)
            manager.complete_task(task_id, way == "completed", "no answer")
        answer = manager.requeue_task(task_id, reset_retries=reset)

        assert (answer["requeued"], answer["reset_retries"]) == (False, reset)
        assert f"is {way}, so it cannot become pending" in answer["message"]
        assert status(manager, task_id) == way

    @pytest.mark.parametrize("wrong", ["yes", 1, None, []])
    def test_reset_is_true_or_false(self, manager: TaskQueueManager, wrong: Any) -> None:
        task_id = self.in_progress(manager)
        with pytest.raises(ValueError, match="reset_retries"):
            manager.requeue_task(task_id, wrong)

        assert status(manager, task_id) == "in_progress"


class TestMaintenance:
    def ended(self, manager: TaskQueueManager) -> str:
        task_id = submitted(manager)
        taken(manager)
        manager.complete_task(task_id)
        return task_id

    def test_an_ended_task_is_forgotten_after_its_retention_by_any_call_after_the_interval(
        self, clock: ManualClock
    ) -> None:
        manager = TaskQueueManager(task_retention_seconds=100, cleanup_interval_seconds=60, clock=clock)
        task_id = self.ended(manager)
        clock.advance(60 * SECOND)
        assert status(manager, task_id) == "completed"
        clock.advance(60 * SECOND)

        assert manager.get_task_status(task_id) is None
        assert manager.get_statistics()["total_tasks"] == 0

    @pytest.mark.parametrize("way", ["completed", "failed", "cancelled"])
    def test_every_end_is_forgotten(self, clock: ManualClock, way: str) -> None:
        manager = TaskQueueManager(task_retention_seconds=100, clock=clock)
        task_id = submitted(manager, max_retries=0)
        if way == "cancelled":
            manager.cancel_task(task_id)
        else:
            taken(manager)
            manager.complete_task(task_id, way == "completed")
        assert status(manager, task_id) == way
        clock.advance(100 * SECOND)

        assert manager.force_maintenance()["tasks_removed"] == 1
        assert manager.get_task_status(task_id) is None

    def test_an_ended_task_is_not_forgotten_before_by_who_takes_another(self, clock: ManualClock) -> None:
        manager = TaskQueueManager(task_retention_seconds=0, clock=clock)
        first, second = self.ended(manager), self.ended(manager)

        assert (status(manager, first), status(manager, second)) == ("completed", "completed")
        assert manager.force_maintenance()["tasks_removed"] == 2

    def test_what_waits_or_runs_is_never_forgotten(self, clock: ManualClock) -> None:
        manager = TaskQueueManager(task_retention_seconds=1, clock=clock)
        submitted(manager)
        running = submitted(manager, priority="high")
        taken(manager)
        clock.advance(24 * HOUR)

        assert manager.force_maintenance()["tasks_removed"] == 0
        assert status(manager, running) == "in_progress"

    def test_it_can_be_asked_for_and_says_what_it_did(self, clock: ManualClock) -> None:
        manager = TaskQueueManager(task_retention_seconds=10, clock=clock)
        waiting = [submitted(manager) for _ in range(10)]
        for task_id in waiting[5:]:
            manager.cancel_task(task_id)
        clock.advance(10 * SECOND)

        assert manager.force_maintenance() == {
            "tasks_removed": 5,
            "heap_entries_removed": 5,
            "tasks_remaining": 5,
            "heap_size": 5,
        }
        assert manager.force_maintenance() == {
            "tasks_removed": 0,
            "heap_entries_removed": 0,
            "tasks_remaining": 5,
            "heap_size": 5,
        }
        statistics = manager.get_statistics()
        assert statistics["last_cleanup"] == statistics["last_heap_rebuild"] == iso(clock.now())
        assert [taken(manager)["task_id"] for _ in range(5)] == waiting[:5]

    def test_setting_the_clock_back_does_not_stop_it(self, clock: ManualClock) -> None:
        manager = TaskQueueManager(cleanup_interval_seconds=60, clock=clock)
        clock.jump(-HOUR)
        clock.advance(MINUTE)

        assert manager.get_statistics()["last_cleanup"] == iso(clock.now())

    def test_setting_the_clock_back_makes_no_task_younger(self, manager: TaskQueueManager, clock: ManualClock) -> None:
        task_id = submitted(manager)
        taken(manager)
        clock.advance(MINUTE)
        clock.jump(-HOUR)

        assert (shown(manager, task_id)["age_seconds"], shown(manager, task_id)["time_in_progress"]) == (60.0, 60.0)


class TestStatistics:
    def test_an_empty_queue_has_nothing_of_anything(self, manager: TaskQueueManager) -> None:
        assert manager.get_statistics() == {
            "total_tasks": 0,
            "pending": 0,
            "in_progress": 0,
            "completed": 0,
            "failed": 0,
            "cancelled": 0,
            "pending_by_priority": {"CRITICAL": 0, "HIGH": 0, "MEDIUM": 0, "LOW": 0},
            "heap_size": 0,
            "heap_efficiency": 1.0,
            "last_cleanup": None,
            "last_heap_rebuild": None,
        }

    def test_they_count_by_status_and_by_priority_retries_included(self, manager: TaskQueueManager) -> None:
        manager.submit_task("completes", priority="critical")
        manager.complete_task(taken(manager)["task_id"])
        manager.submit_task("fails", priority="critical", max_retries=0)
        manager.complete_task(taken(manager)["task_id"], False)
        manager.submit_task("runs", priority="critical")
        taken(manager)
        manager.submit_task("retries", priority="critical")
        manager.complete_task(taken(manager)["task_id"], False)
        manager.cancel_task(submitted(manager))
        manager.submit_task("waits", priority="low")
        manager.submit_task("waits", priority="low")

        statistics = manager.get_statistics()

        assert statistics["total_tasks"] == 7
        assert (statistics["pending"], statistics["in_progress"]) == (3, 1)
        assert (statistics["completed"], statistics["failed"], statistics["cancelled"]) == (1, 1, 1)
        assert statistics["pending_by_priority"] == {"CRITICAL": 1, "HIGH": 0, "MEDIUM": 0, "LOW": 2}

    def test_stale_entries_show_in_the_efficiency_and_the_index_is_rebuilt_below_one_half(
        self, manager: TaskQueueManager, clock: ManualClock
    ) -> None:
        ids = [submitted(manager) for _ in range(1_000)]
        efficiencies = []
        for task_id in reversed(ids[100:]):
            manager.cancel_task(task_id)
            statistics = manager.get_statistics()
            efficiencies.append(statistics["heap_efficiency"])
            valid = round(statistics["heap_size"] * statistics["heap_efficiency"])
            assert valid == statistics["pending"]

        assert 0.5 <= min(efficiencies) < 0.55
        assert manager.get_statistics()["heap_size"] <= 200
        assert manager.get_statistics()["last_heap_rebuild"] == iso(clock.now())

    def test_a_queue_that_is_only_submitted_to_and_taken_from_stays_efficient(self, manager: TaskQueueManager) -> None:
        for _ in range(500):
            submitted(manager)
        for _ in range(250):
            taken(manager)

        statistics = manager.get_statistics()
        assert (statistics["heap_size"], statistics["heap_efficiency"]) == (250, 1.0)


class TestTheSupervisor:
    def test_a_task_in_progress_for_the_threshold_is_stuck(self, manager: TaskQueueManager, clock: ManualClock) -> None:
        supervisor = TaskSupervisor(manager, stuck_threshold_seconds=timedelta(minutes=1))
        first, second, _ = (submitted(manager) for _ in range(3))
        taken(manager)
        clock.advance(10 * SECOND)
        taken(manager)
        clock.advance(50 * SECOND - 1)
        assert supervisor.check_stuck_tasks() == []
        clock.advance(1)
        assert supervisor.check_stuck_tasks() == [manager.get_task_status(first)]
        clock.advance(10 * SECOND)

        assert [task["task_id"] for task in supervisor.check_stuck_tasks()] == [first, second]
        assert {task["status"] for task in supervisor.check_stuck_tasks()} == {"in_progress"}

    def test_a_stuck_task_is_queued_again_and_its_old_holder_is_refused(
        self, manager: TaskQueueManager, clock: ManualClock
    ) -> None:
        supervisor = TaskSupervisor(manager, stuck_threshold_seconds=60)
        task_id = submitted(manager)
        taken(manager, "hangs")
        old = lease_of(manager, task_id)
        clock.advance(MINUTE)

        assert supervisor.requeue_stuck_tasks() == {
            "stuck_tasks_found": 1,
            "tasks_requeued": 1,
            "task_ids": [task_id],
        }
        assert status(manager, task_id) == "pending"
        assert "error" in manager.complete_task(task_id)
        assert taken(manager, "works")["task_id"] == task_id
        assert "error" in manager.complete_task(task_id, lease=old)
        assert status(manager, task_id) == "in_progress"
        assert manager.complete_task(task_id, lease=lease_of(manager, task_id))["status"] == "completed"
        assert supervisor.requeue_stuck_tasks() == {"stuck_tasks_found": 0, "tasks_requeued": 0, "task_ids": []}

    def test_it_costs_no_retry_however_often(self, manager: TaskQueueManager) -> None:
        supervisor = TaskSupervisor(manager, stuck_threshold_seconds=0)
        task_id = submitted(manager, max_retries=1)
        for _ in range(10):
            taken(manager, "hangs")
            assert supervisor.requeue_stuck_tasks()["task_ids"] == [task_id]

        assert (status(manager, task_id), shown(manager, task_id)["retry_count"]) == ("pending", 0)

    def test_unless_it_is_told_to_and_then_what_hangs_everyone_fails_in_the_end(
        self, manager: TaskQueueManager, clock: ManualClock
    ) -> None:
        supervisor = TaskSupervisor(manager, 60, spend_retries=True)
        task_id = submitted(manager, max_retries=3)
        requeued = []
        while manager.get_next_task("hangs"):
            clock.advance(MINUTE)
            answer = supervisor.requeue_stuck_tasks()
            requeued.append((answer["stuck_tasks_found"], answer["task_ids"]))

        assert requeued == [(1, [task_id]), (1, [task_id]), (1, [])]
        assert (status(manager, task_id), shown(manager, task_id)["retry_count"]) == ("failed", 3)
        assert "for 60 s" in (shown(manager, task_id)["error_message"] or "")

    def test_a_threshold_of_nothing_finds_all_that_is_in_progress(self, manager: TaskQueueManager) -> None:
        supervisor = TaskSupervisor(manager, stuck_threshold_seconds=0)
        running = [submitted(manager) for _ in range(3)]
        for _ in running:
            taken(manager)
        submitted(manager)

        assert [task["task_id"] for task in supervisor.check_stuck_tasks()] == running
        assert supervisor.requeue_stuck_tasks()["tasks_requeued"] == 3

    def test_a_stuck_task_whose_cancel_was_asked_is_cancelled(
        self, manager: TaskQueueManager, clock: ManualClock
    ) -> None:
        task_id = submitted(manager)
        taken(manager)
        clock.advance(MINUTE)
        manager.queue.request_cancel(task_id)

        assert TaskSupervisor(manager, 60).requeue_stuck_tasks() == {
            "stuck_tasks_found": 1,
            "tasks_requeued": 0,
            "task_ids": [],
        }
        assert status(manager, task_id) == "cancelled"

    def test_setting_the_clock_forward_makes_nobody_stuck(self, manager: TaskQueueManager, clock: ManualClock) -> None:
        submitted(manager)
        taken(manager)
        clock.jump(24 * HOUR)

        assert TaskSupervisor(manager, 60).check_stuck_tasks() == []

    @pytest.mark.parametrize("wrong", [-1, None, "5", True, float("nan"), [5], timedelta(-1), 2**70])
    def test_a_threshold_that_makes_no_sense_is_refused(self, manager: TaskQueueManager, wrong: Any) -> None:
        with pytest.raises(ValueError, match=r"stuck_threshold_seconds .*; use "):
            TaskSupervisor(manager, wrong)

    @pytest.mark.parametrize("wrong", [None, "queue", {}])
    def test_it_watches_over_a_queue(self, wrong: Any) -> None:
        with pytest.raises(ValueError, match="is not a TaskQueueManager"):
            TaskSupervisor(wrong)


class TestThreads:
    def test_eight_threads_lose_nothing_and_do_nothing_twice(self) -> None:
        manager = TaskQueueManager(max_queue_size=500)
        per_thread, done = 500, Counter[tuple[int, int]]()
        noting = threading.Lock()
        start = threading.Barrier(8)

        def produce(name: int) -> None:
            start.wait()
            for number in range(per_thread):
                priority = "low" if number % 2 else "high"
                while manager.submit_task((name, number), priority)["status"] != "pending":
                    pass

        def consume(name: int) -> None:
            start.wait()
            while sum(done.values()) < 4 * per_thread:
                task = manager.get_next_task(f"worker-{name}")
                if task is None:
                    continue
                number = task["payload"][1]
                if number % 10 == 0 and task["retry_count"] == 0:
                    assert manager.complete_task(task["task_id"], False)["retried"]
                    continue
                assert manager.complete_task(task["task_id"]).get("status") == "completed"
                with noting:
                    done[task["payload"]] += 1

        threads = [threading.Thread(target=produce, args=(n,)) for n in range(4)]
        threads += [threading.Thread(target=consume, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert done == Counter({(name, number): 1 for name in range(4) for number in range(per_thread)})
        statistics = manager.get_statistics()
        assert statistics["completed"] == statistics["total_tasks"] == 4 * per_thread

    def test_a_task_is_taken_by_one_of_eight(self) -> None:
        manager = TaskQueueManager()
        start = threading.Barrier(8)
        winners: list[NextTask | None] = []

        def take() -> None:
            start.wait()
            winners.append(manager.get_next_task("worker"))

        manager.submit_task("one")
        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sum(winner is not None for winner in winners) == 1


def iso(at: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)).isoformat(timespec="microseconds")
