"""The queue inside one process."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.instant import HOUR, MINUTE, SECOND, span
from fairlead.core.retry import Backoff
from fairlead.core.task import Priority
from fairlead.engine.runtime.clock import ManualClock
from fairlead.local import TaskQueueManager, TaskSupervisor, TaskView


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> TaskQueueManager:
    return TaskQueueManager(clock=clock)


def submitted(queue: TaskQueueManager, payload: object = None, **wish: Any) -> str:
    return queue.submit_task(payload, **wish)["task_id"]


def taken(queue: TaskQueueManager, worker: str = "worker-1") -> TaskView:
    task = queue.get_next_task(worker)
    assert task is not None
    return task


def shown(queue: TaskQueueManager, task_id: str) -> TaskView:
    task = queue.get_task_status(task_id)
    assert task is not None
    return task


def status(queue: TaskQueueManager, task_id: str) -> str:
    return shown(queue, task_id)["status"]


class TestSubmitting:
    def test_a_submitted_task_is_pending(self, queue: TaskQueueManager) -> None:
        answer = queue.submit_task({"to": "ada"})

        assert answer["status"] == "pending"
        assert status(queue, answer["task_id"]) == "pending"

    def test_a_full_queue_rejects_and_says_why(self, clock: ManualClock) -> None:
        queue = TaskQueueManager(max_queue_size=2, clock=clock)
        submitted(queue)
        submitted(queue)
        answer = queue.submit_task("one too many")

        assert answer["status"] == "rejected"
        assert "2 tasks wait and its bound is 2" in answer["error"]
        assert "task_id" not in answer

    def test_a_full_queue_has_room_again_when_a_task_is_taken(self, clock: ManualClock) -> None:
        queue = TaskQueueManager(max_queue_size=1, clock=clock)
        submitted(queue)
        taken(queue)

        assert queue.submit_task("fits")["status"] == "pending"

    @pytest.mark.parametrize("priority", ["urgent", "", 7, None])
    def test_an_unknown_priority_is_refused_with_those_there_are(self, queue: TaskQueueManager, priority: Any) -> None:
        with pytest.raises(ValueError, match="critical, high, medium, low"):
            queue.submit_task("x", priority=priority)

    def test_a_number_of_retries_that_makes_no_sense_is_refused(self, queue: TaskQueueManager) -> None:
        with pytest.raises(ValueError, match="max_retries -1"):
            queue.submit_task("x", max_retries=-1)

    @pytest.mark.parametrize(
        ("policy", "says"),
        [
            (
                {"intial_seconds": 1},
                "'intial_seconds' is unknown; write a Backoff, or a dict with any of",
            ),
            ({"factor": 0.5}, "factor 0.5"),
            (5, "retry_policy 5 is not a dict; write"),
            ("fast", "retry_policy 'fast' is not a dict; write"),
            (["factor"], "is not a dict; write"),
            (True, "is not a dict; write"),
        ],
    )
    def test_a_retry_policy_that_makes_no_sense_is_refused(
        self, queue: TaskQueueManager, policy: Any, says: str
    ) -> None:
        with pytest.raises(ValueError, match=says):
            queue.submit_task("x", retry_policy=policy)

    def test_an_error_that_cannot_be_shown_ends_the_attempt_too(self, queue: TaskQueueManager) -> None:
        class Unshown(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no")

        queue.submit_task("x", max_retries=0)
        task = queue.get_next_task("worker-1")
        assert task is not None
        assert queue.complete_task(task["task_id"], False, error=Unshown())
        ended = queue.get_task_status(task["task_id"])
        assert ended is not None and (ended["status"], ended["error"]) == ("failed", "its str() raised RuntimeError")

    @pytest.mark.parametrize(
        "wrong", [{"max_queue_size": 0}, {"task_retention_seconds": -1}, {"cleanup_interval_seconds": float("nan")}]
    )
    def test_settings_that_make_no_sense_are_refused(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=next(iter(wrong)).replace("max_queue_size", "queue_bound")):
            TaskQueueManager(**wrong)


class TestPayloads:
    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=10,
        )
    )
    def test_whatever_json_can_say_comes_back_equal(self, payload: object) -> None:
        queue = TaskQueueManager(clock=ManualClock())
        queue.submit_task(payload)

        assert taken(queue)["payload"] == payload

    def test_any_object_comes_back_as_itself(self, queue: TaskQueueManager) -> None:
        payload = threading.Lock()
        task_id = submitted(queue, payload)

        assert taken(queue)["payload"] is payload
        assert shown(queue, task_id)["payload"] is payload

    def test_an_object_is_let_go_with_its_task(self, clock: ManualClock) -> None:
        queue = TaskQueueManager(task_retention_seconds=60, clock=clock)
        payload = {1, 2, 3}
        gone = weakref.ref(payload)
        queue.submit_task(payload)
        del payload
        queue.complete_task(taken(queue)["task_id"], True)
        clock.advance(MINUTE)
        assert gone() is not None
        queue.force_maintenance()
        gc.collect()

        assert gone() is None

    def test_an_object_whose_finaliser_uses_the_queue_does_not_block_it(self, clock: ManualClock) -> None:
        queue = TaskQueueManager(task_retention_seconds=0, clock=clock)

        class LastWords:
            def __del__(self) -> None:
                queue.submit_task("last words")

        queue.submit_task(LastWords())
        queue.complete_task(taken(queue)["task_id"], True)
        queue.force_maintenance()

        assert taken(queue)["payload"] == "last words"

    def test_a_rejected_object_is_not_kept(self, clock: ManualClock) -> None:
        queue = TaskQueueManager(max_queue_size=1, clock=clock)
        queue.submit_task("fits")
        payload = {1, 2, 3}
        gone = weakref.ref(payload)
        queue.submit_task(payload)
        del payload
        gc.collect()

        assert gone() is None


class TestTaking:
    def test_an_empty_queue_gives_nothing(self, queue: TaskQueueManager) -> None:
        assert queue.get_next_task("worker-1") is None

    def test_the_most_urgent_comes_first_and_then_the_oldest(self, queue: TaskQueueManager) -> None:
        for payload, priority in [(1, "low"), (2, "high"), (3, "normal"), (4, "critical"), (5, "high")]:
            queue.submit_task(payload, priority=priority)

        assert [taken(queue)["payload"] for _ in range(5)] == [4, 2, 5, 3, 1]

    def test_a_priority_may_be_given_as_one(self, queue: TaskQueueManager) -> None:
        queue.submit_task("x", priority=Priority.CRITICAL)

        assert taken(queue)["priority"] == "critical"

    def test_a_low_task_is_not_passed_for_ever(self, queue: TaskQueueManager, clock: ManualClock) -> None:
        queue.submit_task("patient", priority="low")
        clock.advance(HOUR)
        clock.advance(1)
        queue.submit_task("fresh", priority="critical")

        assert taken(queue)["payload"] == "patient"

    def test_a_taken_task_is_in_progress_with_its_worker(self, queue: TaskQueueManager, clock: ManualClock) -> None:
        task_id = submitted(queue)
        clock.advance(SECOND)
        task = taken(queue, "worker-7")

        assert (task["task_id"], task["status"], task["worker_id"]) == (task_id, "in_progress", "worker-7")
        assert task["started_at"] == task["created_at"] + 1
        assert task == queue.get_task_status(task_id)

    def test_a_task_in_progress_is_nobody_elses_however_long_it_takes(
        self, queue: TaskQueueManager, clock: ManualClock
    ) -> None:
        task_id = submitted(queue)
        taken(queue)
        clock.advance(365 * 24 * HOUR)

        assert queue.get_next_task("worker-2") is None
        assert queue.complete_task(task_id, True)


class TestCompleting:
    def test_success_completes_the_task(self, queue: TaskQueueManager) -> None:
        task_id = submitted(queue)
        taken(queue)

        assert queue.complete_task(task_id, True)
        assert status(queue, task_id) == "completed"

    def test_a_failure_is_pending_until_its_backoff_has_passed_and_is_then_taken_again(
        self, queue: TaskQueueManager, clock: ManualClock
    ) -> None:
        task_id = submitted(queue, retry_policy={"initial_seconds": 10, "jitter": 0})
        taken(queue)
        queue.complete_task(task_id, False, "no answer")

        assert status(queue, task_id) == "pending"
        clock.advance(10 * SECOND - 1)
        assert queue.get_next_task("worker-1") is None
        clock.advance(1)
        again = taken(queue)
        assert (again["task_id"], again["attempts"], again["retries"]) == (task_id, 2, 1)
        assert again["error"] == "no answer"

    def test_a_retry_that_has_come_due_is_served_in_its_turn(self, queue: TaskQueueManager, clock: ManualClock) -> None:
        urgent = submitted(queue, priority="critical")
        queue.complete_task(taken(queue)["task_id"], False)
        submitted(queue, priority="low")
        clock.advance(2 * SECOND)

        assert taken(queue)["task_id"] == urgent

    def test_a_task_fails_when_its_retries_are_used_up(self, queue: TaskQueueManager) -> None:
        task_id = submitted(queue, max_retries=2, retry_policy=Backoff(initial=0))
        for attempt in range(3):
            assert status(queue, task_id) == "pending"
            assert taken(queue)["attempts"] == attempt + 1
            queue.complete_task(task_id, False, ValueError("bad input"))

        assert status(queue, task_id) == "failed"
        assert shown(queue, task_id)["error"] == "bad input"
        assert queue.get_next_task("worker-1") is None

    def test_a_mapping_may_leave_out_what_it_does_not_care_about(
        self, queue: TaskQueueManager, clock: ManualClock
    ) -> None:
        task_id = submitted(queue, max_retries=9, retry_policy={"max_seconds": 3, "jitter": 0})
        waits = []
        for _ in range(4):
            taken(queue)
            queue.complete_task(task_id, False)
            wait = span(shown(queue, task_id)["ready_at"]) - clock.now()
            waits.append(wait)
            clock.advance(wait)

        assert waits == [1 * SECOND, 2 * SECOND, 3 * SECOND, 3 * SECOND]

    def test_what_is_not_in_progress_cannot_be_completed(self, queue: TaskQueueManager) -> None:
        pending = submitted(queue)

        assert not queue.complete_task(pending, True)
        assert status(queue, pending) == "pending"
        assert not queue.complete_task("no such task", True)

    def test_a_second_word_is_refused(self, queue: TaskQueueManager) -> None:
        task_id = submitted(queue)
        taken(queue)
        queue.complete_task(task_id, True)

        assert not queue.complete_task(task_id, False)
        assert status(queue, task_id) == "completed"

    def test_an_error_about_an_undecodable_file_name_is_kept_readable(self, queue: TaskQueueManager) -> None:
        task_id = submitted(queue)
        taken(queue)
        queue.complete_task(task_id, False, FileNotFoundError("no such file: caf\udce9"))

        assert shown(queue, task_id)["error"] == "no such file: caf\\udce9"


class TestCancelling:
    def test_a_pending_task_is_cancelled_and_not_taken(self, queue: TaskQueueManager) -> None:
        task_id = submitted(queue)

        assert queue.cancel_task(task_id)
        assert status(queue, task_id) == "cancelled"
        assert queue.get_next_task("worker-1") is None

    def test_a_task_in_progress_learns_of_it_and_is_not_retried(self, queue: TaskQueueManager) -> None:
        task_id = submitted(queue)
        taken(queue)

        assert queue.cancel_task(task_id)
        assert shown(queue, task_id)["cancel_requested"]
        assert status(queue, task_id) == "in_progress"
        assert queue.complete_task(task_id, False)
        assert status(queue, task_id) == "cancelled"

    def test_a_task_that_succeeds_all_the_same_has_succeeded(self, queue: TaskQueueManager) -> None:
        task_id = submitted(queue)
        lease = taken(queue)["lease"]
        queue.cancel_task(task_id)

        assert queue.complete_task(task_id, True, lease=lease)
        assert status(queue, task_id) == "completed"

    def test_what_has_ended_or_never_was_cannot_be_cancelled(self, queue: TaskQueueManager) -> None:
        task_id = submitted(queue)
        queue.cancel_task(task_id)

        assert not queue.cancel_task(task_id)
        assert not queue.cancel_task("no such task")


class TestRequeuing:
    def failed(self, queue: TaskQueueManager) -> str:
        task_id = submitted(queue, "again", max_retries=1, retry_policy=Backoff(initial=0))
        for _ in range(2):
            taken(queue)
            queue.complete_task(task_id, False)
        assert status(queue, task_id) == "failed"
        return task_id

    def test_a_failed_task_is_pending_again_with_all_its_retries(self, queue: TaskQueueManager) -> None:
        task_id = self.failed(queue)

        assert queue.requeue_task(task_id)
        assert status(queue, task_id) == "pending"
        assert (taken(queue)["payload"], shown(queue, task_id)["retries"]) == ("again", 0)
        queue.complete_task(task_id, False)
        assert status(queue, task_id) == "pending"

    def test_or_with_those_that_are_left(self, queue: TaskQueueManager) -> None:
        task_id = self.failed(queue)
        queue.requeue_task(task_id, reset_retries=False)
        taken(queue)
        queue.complete_task(task_id, False)

        assert status(queue, task_id) == "failed"

    def test_a_cancelled_task_is_pending_again(self, queue: TaskQueueManager) -> None:
        task_id = submitted(queue)
        queue.cancel_task(task_id)

        assert queue.requeue_task(task_id)
        assert taken(queue)["task_id"] == task_id

    def test_a_task_in_progress_is_taken_from_its_holder_without_spending_a_retry(
        self, queue: TaskQueueManager
    ) -> None:
        task_id = submitted(queue)
        old = taken(queue, "worker-1")

        assert queue.requeue_task(task_id)
        assert not queue.complete_task(task_id, True, lease=old["lease"])
        new = taken(queue, "worker-2")
        assert (new["task_id"], new["retries"]) == (task_id, 0)
        assert not queue.complete_task(task_id, True, lease=old["lease"])
        assert queue.complete_task(task_id, True, lease=new["lease"])

    @pytest.mark.parametrize("ended", [False, True], ids=["pending", "completed"])
    def test_a_task_that_waits_or_has_succeeded_is_left_alone(self, queue: TaskQueueManager, ended: bool) -> None:
        task_id = submitted(queue)
        if ended:
            taken(queue)
            queue.complete_task(task_id, True)

        assert not queue.requeue_task(task_id)
        assert not queue.requeue_task("no such task")


class TestUpkeep:
    def ended(self, queue: TaskQueueManager) -> str:
        task_id = submitted(queue)
        taken(queue)
        queue.complete_task(task_id, True)
        return task_id

    def test_an_ended_task_is_forgotten_after_its_retention_by_any_call_after_the_interval(
        self, clock: ManualClock
    ) -> None:
        queue = TaskQueueManager(task_retention_seconds=100, cleanup_interval_seconds=60, clock=clock)
        task_id = self.ended(queue)
        clock.advance(60 * SECOND)
        assert status(queue, task_id) == "completed"
        clock.advance(60 * SECOND)

        assert queue.get_task_status(task_id) is None
        assert queue.get_statistics()["total"] == 0

    @pytest.mark.parametrize("way", ["completed", "failed", "cancelled"])
    def test_every_end_is_forgotten(self, clock: ManualClock, way: str) -> None:
        queue = TaskQueueManager(task_retention_seconds=100, clock=clock)
        task_id = submitted(queue, max_retries=0)
        if way == "cancelled":
            queue.cancel_task(task_id)
        else:
            taken(queue)
            queue.complete_task(task_id, way == "completed")
        assert status(queue, task_id) == way
        clock.advance(100 * SECOND)

        assert queue.force_maintenance() == {"removed": 1, "made_ready": 0, "remaining": 0}

    def test_what_waits_or_runs_is_never_forgotten(self, clock: ManualClock) -> None:
        queue = TaskQueueManager(task_retention_seconds=1, clock=clock)
        submitted(queue)
        running = submitted(queue, priority="high")
        taken(queue)
        clock.advance(24 * HOUR)

        assert queue.force_maintenance()["removed"] == 0
        assert status(queue, running) == "in_progress"

    def test_it_can_be_asked_for_and_says_what_it_did(self, clock: ManualClock) -> None:
        queue = TaskQueueManager(task_retention_seconds=10, clock=clock)
        self.ended(queue)
        submitted(queue)
        queue.complete_task(taken(queue)["task_id"], False)
        clock.advance(10 * SECOND)

        assert queue.force_maintenance() == {"removed": 1, "made_ready": 1, "remaining": 1}
        assert queue.force_maintenance() == {"removed": 0, "made_ready": 0, "remaining": 1}

    def test_setting_the_clock_back_does_not_stop_it(self, clock: ManualClock) -> None:
        queue = TaskQueueManager(cleanup_interval_seconds=60, clock=clock)
        clock.jump(-HOUR)
        clock.advance(MINUTE)
        statistics = queue.get_statistics()

        assert statistics["last_cleanup"] == clock.now() / SECOND


class TestStatistics:
    def test_an_empty_queue_has_nothing_of_anything(self, queue: TaskQueueManager) -> None:
        assert queue.get_statistics() == {
            "total": 0,
            "by_status": {"pending": 0, "in_progress": 0, "completed": 0, "failed": 0, "cancelled": 0},
            "pending_by_priority": {"critical": 0, "high": 0, "medium": 0, "low": 0},
            "max_queue_size": 10_000,
            "heap_size": 0,
            "heap_efficiency": 1.0,
            "last_cleanup": None,
        }

    def test_they_count_by_status_and_by_priority_retries_included(self, queue: TaskQueueManager) -> None:
        queue.submit_task("completes", priority="critical")
        queue.complete_task(taken(queue)["task_id"], True)
        queue.submit_task("fails", priority="critical", max_retries=0)
        queue.complete_task(taken(queue)["task_id"], False)
        queue.submit_task("retries", priority="critical")
        queue.complete_task(taken(queue)["task_id"], False)
        queue.submit_task("runs", priority="critical")
        taken(queue)
        queue.cancel_task(submitted(queue))
        queue.submit_task("waits", priority="low")
        queue.submit_task("waits", priority="low")

        statistics = queue.get_statistics()

        assert statistics["by_status"] == {
            "pending": 3,
            "in_progress": 1,
            "completed": 1,
            "failed": 1,
            "cancelled": 1,
        }
        assert statistics["pending_by_priority"] == {"critical": 1, "high": 0, "medium": 0, "low": 2}
        assert statistics["total"] == 7

    def test_stale_entries_show_in_the_efficiency_and_are_compacted_below_one_half(
        self, queue: TaskQueueManager
    ) -> None:
        ids = [submitted(queue) for _ in range(1_000)]
        efficiencies = []
        for task_id in reversed(ids[100:]):
            queue.cancel_task(task_id)
            statistics = queue.get_statistics()
            efficiencies.append(statistics["heap_efficiency"])
            live = round(statistics["heap_size"] * statistics["heap_efficiency"])
            assert live == statistics["by_status"]["pending"]

        assert 0.5 <= min(efficiencies) < 0.55
        assert queue.get_statistics()["heap_size"] <= 200

    def test_a_queue_that_is_only_submitted_to_and_taken_from_stays_efficient(self, queue: TaskQueueManager) -> None:
        for _ in range(500):
            submitted(queue)
        for _ in range(250):
            taken(queue)

        statistics = queue.get_statistics()
        assert (statistics["heap_size"], statistics["heap_efficiency"]) == (250, 1.0)


class TestTheSupervisor:
    def test_a_task_in_progress_for_longer_than_the_threshold_is_stuck(
        self, queue: TaskQueueManager, clock: ManualClock
    ) -> None:
        supervisor = TaskSupervisor(queue, stuck_threshold_seconds=timedelta(minutes=1))
        for payload in ("first", "second", "waits"):
            queue.submit_task(payload)
        taken(queue)
        clock.advance(10 * SECOND)
        taken(queue)
        clock.advance(50 * SECOND)
        assert supervisor.check_stuck_tasks() == []
        clock.advance(1)
        assert [task["payload"] for task in supervisor.check_stuck_tasks()] == ["first"]
        clock.advance(10 * SECOND)

        assert [task["payload"] for task in supervisor.check_stuck_tasks()] == ["first", "second"]
        assert {task["status"] for task in supervisor.check_stuck_tasks()} == {"in_progress"}

    def test_a_stuck_task_is_queued_again_and_its_old_holder_is_refused(
        self, queue: TaskQueueManager, clock: ManualClock
    ) -> None:
        supervisor = TaskSupervisor(queue, stuck_threshold_seconds=60)
        task_id = submitted(queue)
        old = taken(queue, "hangs")
        clock.advance(MINUTE + 1)

        assert supervisor.requeue_stuck_tasks() == [task_id]
        assert status(queue, task_id) == "pending"
        assert not queue.complete_task(task_id, True)
        assert not queue.complete_task(task_id, True, lease=old["lease"])
        new = taken(queue, "works")
        assert new["task_id"] == task_id
        assert not queue.complete_task(task_id, True, lease=old["lease"])
        assert status(queue, task_id) == "in_progress"
        assert queue.complete_task(task_id, True, lease=new["lease"])
        assert supervisor.requeue_stuck_tasks() == []

    def test_a_task_that_hangs_everyone_fails_in_the_end(self, queue: TaskQueueManager, clock: ManualClock) -> None:
        supervisor = TaskSupervisor(queue, stuck_threshold_seconds=60)
        task_id = submitted(queue, max_retries=2)
        requeued = []
        while queue.get_next_task("hangs"):
            clock.advance(MINUTE + 1)
            requeued.append(supervisor.requeue_stuck_tasks())

        assert requeued == [[task_id], [task_id], []]
        assert status(queue, task_id) == "failed"
        assert "over 60 s" in (shown(queue, task_id)["error"] or "")

    def test_a_stuck_task_whose_cancel_was_asked_is_cancelled(
        self, queue: TaskQueueManager, clock: ManualClock
    ) -> None:
        task_id = submitted(queue)
        taken(queue)
        clock.advance(MINUTE)
        queue.cancel_task(task_id)
        clock.advance(1)

        assert TaskSupervisor(queue, 60).requeue_stuck_tasks() == []
        assert status(queue, task_id) == "cancelled"

    def test_setting_the_clock_forward_makes_nobody_stuck(self, queue: TaskQueueManager, clock: ManualClock) -> None:
        submitted(queue)
        taken(queue)
        clock.jump(24 * HOUR)

        assert TaskSupervisor(queue, 60).check_stuck_tasks() == []

    @pytest.mark.parametrize("wrong", [0, -1, None, "5", True, float("nan"), [5], timedelta(0), 2**70])
    def test_a_threshold_that_makes_no_sense_is_refused(self, queue: TaskQueueManager, wrong: Any) -> None:
        with pytest.raises(ValueError, match=r"stuck_threshold_seconds .*; use "):
            TaskSupervisor(queue, wrong)


class TestThreads:
    def test_eight_threads_lose_nothing_and_do_nothing_twice(self) -> None:
        queue = TaskQueueManager(max_queue_size=500)
        per_thread, done, rejected = 500, Counter[tuple[int, int]](), Counter[str]()
        noting = threading.Lock()
        start = threading.Barrier(8)

        def produce(name: int) -> None:
            start.wait()
            for number in range(per_thread):
                while (
                    queue.submit_task((name, number), priority="low" if number % 2 else "high")["status"] != "pending"
                ):
                    rejected["full"] += 1

        def consume(name: int) -> None:
            start.wait()
            while sum(done.values()) < 4 * per_thread:
                task = queue.get_next_task(f"worker-{name}")
                if task is None:
                    continue
                first = task["attempts"] == 1
                fails = first and task["payload"][1] % 10 == 0
                if fails:
                    assert queue.requeue_task(task["task_id"])
                    continue
                assert queue.complete_task(task["task_id"], True, lease=task["lease"])
                with noting:
                    done[task["payload"]] += 1

        threads = [threading.Thread(target=produce, args=(n,)) for n in range(4)]
        threads += [threading.Thread(target=consume, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert done == Counter({(name, number): 1 for name in range(4) for number in range(per_thread)})
        statistics = queue.get_statistics()
        assert statistics["by_status"]["completed"] == statistics["total"] == 4 * per_thread

    def test_a_task_is_taken_by_one_of_eight(self) -> None:
        queue = TaskQueueManager()
        start = threading.Barrier(8)
        winners: list[TaskView | None] = []

        def take() -> None:
            start.wait()
            winners.append(queue.get_next_task("worker"))

        queue.submit_task("one")
        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sum(winner is not None for winner in winners) == 1
