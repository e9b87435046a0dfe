"""The queue behind the manager, whose answers are whole tasks and which can do more."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fairlead.core.errors import QueueFull, TaskNotFound, WrongState
from fairlead.core.instant import SECOND
from fairlead.core.retry import Backoff
from fairlead.engine.runtime.clock import ManualClock
from fairlead.local import (
    HeapHealth,
    InvalidStateTransitionError,
    PriorityTaskQueue,
    QueueFullError,
    Task,
    TaskNotFoundError,
    TaskPriority,
    TaskQueueManager,
    TaskStatus,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> PriorityTaskQueue:
    return PriorityTaskQueue(clock=clock)


def shown(queue: PriorityTaskQueue, task_id: str) -> Task:
    task = queue.get_task(task_id)
    assert task is not None
    return task


def taken(queue: PriorityTaskQueue, worker: str | None = None) -> Task:
    task = queue.dequeue(worker)
    assert task is not None
    return task


def in_status(queue: PriorityTaskQueue, status: TaskStatus) -> str:
    """The id of a task that has come to this status."""
    task_id = queue.enqueue(Task(max_retries=1))
    if status is TaskStatus.CANCELLED:
        queue.cancel_task(task_id)
    elif status is not TaskStatus.PENDING:
        taken(queue)
        if status is not TaskStatus.IN_PROGRESS:
            queue.update_status(task_id, status)
    assert shown(queue, task_id).status is status
    return task_id


class TestValues:
    def test_the_greater_the_priority_the_more_urgent(self) -> None:
        assert [(each.name, each.value) for each in TaskPriority] == [
            ("LOW", 1),
            ("MEDIUM", 2),
            ("HIGH", 3),
            ("CRITICAL", 4),
        ]

    def test_a_status_is_its_word(self) -> None:
        assert [str(each) for each in TaskStatus] == ["pending", "in_progress", "completed", "failed", "cancelled"]

    @pytest.mark.parametrize(
        ("total", "valid", "efficiency", "rebuild"),
        [
            (0, 0, 1.0, False),
            (99, 0, 0.0, False),
            (100, 49, 0.49, True),
            (100, 50, 0.5, False),
            (1_000, 499, 0.499, True),
        ],
    )
    def test_an_index_is_rebuilt_below_one_half_from_a_hundred_entries_on(
        self, total: int, valid: int, efficiency: float, rebuild: bool
    ) -> None:
        health = HeapHealth(total_entries=total, valid_entries=valid, invalid_entries=total - valid, last_rebuild=None)

        assert (health.efficiency, health.should_rebuild) == (efficiency, rebuild)

    def test_errors_are_those_of_fairlead_too(self) -> None:
        assert issubclass(QueueFullError, QueueFull)
        assert issubclass(TaskNotFoundError, TaskNotFound)
        assert issubclass(InvalidStateTransitionError, WrongState)


class TestEnqueuing:
    def test_a_task_keeps_its_id_and_comes_out_as_it_went_in(
        self, queue: PriorityTaskQueue, clock: ManualClock
    ) -> None:
        task = Task({"to": "ada"}, TaskPriority.HIGH, max_retries=5, retry_policy={"delay": 1})

        assert queue.enqueue(task) == task.task_id
        clock.advance(SECOND)
        out = taken(queue, "worker-1")
        assert (out.task_id, out.payload, out.priority) == (task.task_id, {"to": "ada"}, TaskPriority.HIGH)
        assert (out.max_retries, out.retry_policy) == (5, {"delay": 1})
        assert (out.status, out.worker_id, out.attempts) == (TaskStatus.IN_PROGRESS, "worker-1", 1)
        assert out.started_at == datetime.fromtimestamp(clock.now() / SECOND, UTC)
        assert out == shown(queue, task.task_id)

    def test_a_task_may_have_an_id_of_ones_own(self, queue: PriorityTaskQueue) -> None:
        assert queue.enqueue(Task("x", task_id="order 7")) == "order 7"
        assert taken(queue).task_id == "order 7"
        assert queue.update_status("order 7", "completed") == (True, False)

    def test_which_is_free_again_when_the_task_is_removed(self, clock: ManualClock) -> None:
        queue = PriorityTaskQueue(task_retention_seconds=1, clock=clock)
        queue.enqueue(Task(task_id="order 7"))
        with pytest.raises(ValueError, match="order 7 is in the queue already"):
            queue.enqueue(Task(task_id="order 7"))
        queue.cancel_task("order 7")
        clock.advance(SECOND)
        queue.force_cleanup()

        assert queue.enqueue(Task(task_id="order 7")) == "order 7"

    def test_a_full_queue_raises(self, clock: ManualClock) -> None:
        queue = PriorityTaskQueue(max_queue_size=1, clock=clock)
        queue.enqueue(Task())
        with pytest.raises(QueueFullError, match="1 tasks are pending and max_queue_size is 1") as raised:
            queue.enqueue(refused := Task())

        assert (raised.value.depth, raised.value.bound) == (1, 1)
        assert queue.get_task(refused.task_id) is None

    @pytest.mark.parametrize("wrong", [None, "task", {"payload": 1}, Task])
    def test_what_is_no_task_is_refused(self, queue: PriorityTaskQueue, wrong: Any) -> None:
        with pytest.raises(ValueError, match=r"is not a Task; write Task\(payload\)"):
            queue.enqueue(wrong)

    @pytest.mark.parametrize(
        "wrong",
        [
            *[{"priority": 0}, {"priority": True}, {"max_retries": -1}, {"retry_policy": []}, {"task_id": ""}],
            *[{"task_id": 7}, {"task_id": []}, {"task_id": "\udce9"}, {"status": "done"}, {"status": None}],
        ],
        ids=str,
    )
    def test_a_task_that_makes_no_sense_is_refused(self, queue: PriorityTaskQueue, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=rf"{next(iter(wrong))} .*"):
            queue.enqueue(Task(**wrong))

        assert queue.get_queue_stats()["total_tasks"] == 0

    def test_a_task_that_has_left_the_queue_does_not_come_back_by_mistake(self, queue: PriorityTaskQueue) -> None:
        queue.enqueue(Task())
        with pytest.raises(InvalidStateTransitionError, match="enqueue a new Task"):
            queue.enqueue(taken(queue))


class TestUpdating:
    def test_the_answer_is_whether_it_was_accepted_and_whether_the_task_is_retried(
        self, queue: PriorityTaskQueue
    ) -> None:
        failing, fine = queue.enqueue(Task(max_retries=2)), queue.enqueue(Task())
        for _ in range(2):
            taken(queue)

        assert queue.update_status(fine, TaskStatus.COMPLETED) == (True, False)
        assert queue.update_status(failing, TaskStatus.FAILED, "no answer") == (True, True)
        assert shown(queue, failing).status is TaskStatus.PENDING
        taken(queue)
        assert queue.update_status(failing, "failed", "no answer") == (True, False)
        assert shown(queue, failing).status is TaskStatus.FAILED

    @pytest.mark.parametrize("now", TaskStatus)
    @pytest.mark.parametrize("wanted", TaskStatus)
    def test_a_status_changes_only_as_the_life_of_a_task_allows(
        self, queue: PriorityTaskQueue, now: TaskStatus, wanted: TaskStatus
    ) -> None:
        allowed = {
            (TaskStatus.PENDING, TaskStatus.CANCELLED),
            (TaskStatus.IN_PROGRESS, TaskStatus.PENDING),
            (TaskStatus.IN_PROGRESS, TaskStatus.COMPLETED),
            (TaskStatus.IN_PROGRESS, TaskStatus.FAILED),
        }
        task_id = in_status(queue, now)
        if (now, wanted) in allowed:
            assert queue.update_status(task_id, wanted) == (True, False)
            assert shown(queue, task_id).status is wanted
        else:
            with pytest.raises(
                InvalidStateTransitionError, match=f"is {now}, so it cannot become {wanted}; "
            ) as raised:
                queue.update_status(task_id, wanted)
            assert (raised.value.task_id, raised.value.state, raised.value.event) == (task_id, now, wanted)
            assert shown(queue, task_id).status is now

    @pytest.mark.parametrize("task_id", ["no such task", None, [], {}, 7])
    def test_an_unknown_task_raises(self, queue: PriorityTaskQueue, task_id: Any) -> None:
        with pytest.raises(TaskNotFoundError, match="not found"):
            queue.update_status(task_id, TaskStatus.COMPLETED)
        assert not queue.cancel_task(task_id)
        assert not queue.requeue_task(task_id)
        assert not queue.request_cancel(task_id)
        assert not queue.replay_task(task_id)
        assert queue.get_task(task_id) is None

    @pytest.mark.parametrize("status", ["done", "", None, 1, True, []])
    def test_an_unknown_status_is_refused(self, queue: PriorityTaskQueue, status: Any) -> None:
        with pytest.raises(ValueError, match="use one of pending, in_progress, completed, failed, cancelled"):
            queue.update_status(in_status(queue, TaskStatus.IN_PROGRESS), status)

    def test_with_a_lease_only_its_holder_is_heard(self, queue: PriorityTaskQueue) -> None:
        task_id = queue.enqueue(Task())
        old = taken(queue)
        queue.requeue_task(task_id)
        new = taken(queue)

        assert old.lease != new.lease
        for status in (TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.PENDING):
            assert queue.update_status(task_id, status, lease=old.lease) == (False, False)
        assert shown(queue, task_id) == new
        assert queue.update_status(task_id, TaskStatus.COMPLETED, lease=new.lease) == (True, False)


class TestRequeuing:
    def test_a_task_in_progress_is_pending_again(self, queue: PriorityTaskQueue) -> None:
        task_id = queue.enqueue(Task(max_retries=9))
        taken(queue)
        queue.update_status(task_id, TaskStatus.FAILED, "no answer")
        taken(queue)

        assert queue.requeue_task(task_id)
        assert (shown(queue, task_id).retry_count, shown(queue, task_id).error_message) == (1, "no answer")
        taken(queue)
        assert queue.requeue_task(task_id, reset_retries=True)
        assert (shown(queue, task_id).retry_count, shown(queue, task_id).error_message) == (0, None)
        assert shown(queue, task_id).attempts == 3

    @pytest.mark.parametrize("status", [each for each in TaskStatus if each is not TaskStatus.IN_PROGRESS])
    def test_any_other_is_left_alone(self, queue: PriorityTaskQueue, status: TaskStatus) -> None:
        task_id = in_status(queue, status)

        assert not queue.requeue_task(task_id)
        assert shown(queue, task_id).status is status


class TestCancelling:
    @pytest.mark.parametrize("status", TaskStatus)
    def test_only_a_pending_task_is_cancelled(self, queue: PriorityTaskQueue, status: TaskStatus) -> None:
        task_id = in_status(queue, status)

        assert queue.cancel_task(task_id) is (status is TaskStatus.PENDING)

    def test_the_holder_of_one_in_progress_can_be_asked_to_stop_and_it_is_not_retried(
        self, queue: PriorityTaskQueue
    ) -> None:
        task_id = in_status(queue, TaskStatus.IN_PROGRESS)

        assert queue.request_cancel(task_id)
        assert shown(queue, task_id).cancel_requested
        assert shown(queue, task_id).status is TaskStatus.IN_PROGRESS
        assert queue.update_status(task_id, TaskStatus.FAILED) == (True, False)
        assert shown(queue, task_id).status is TaskStatus.CANCELLED

    def test_one_that_succeeds_all_the_same_has_succeeded(self, queue: PriorityTaskQueue) -> None:
        queue.enqueue(Task())
        task = taken(queue)
        queue.request_cancel(task.task_id)

        assert queue.update_status(task.task_id, TaskStatus.COMPLETED, lease=task.lease) == (True, False)
        assert shown(queue, task.task_id).status is TaskStatus.COMPLETED

    def test_a_pending_one_is_cancelled_at_once_and_an_ended_one_is_not(self, queue: PriorityTaskQueue) -> None:
        task_id = queue.enqueue(Task())

        assert queue.request_cancel(task_id)
        assert shown(queue, task_id).status is TaskStatus.CANCELLED
        assert not queue.request_cancel(task_id)


class TestReplaying:
    def test_a_failed_task_is_pending_again_with_all_its_retries(self, queue: PriorityTaskQueue) -> None:
        task_id = queue.enqueue(Task("again", max_retries=2))
        for _ in range(2):
            taken(queue)
            queue.update_status(task_id, TaskStatus.FAILED)

        assert queue.replay_task(task_id)
        assert (taken(queue).payload, shown(queue, task_id).retry_count) == ("again", 0)
        assert queue.update_status(task_id, TaskStatus.FAILED) == (True, True)

    def test_or_with_one_attempt_more(self, queue: PriorityTaskQueue) -> None:
        task_id = in_status(queue, TaskStatus.FAILED)

        assert queue.replay_task(task_id, reset_retries=False)
        taken(queue)
        assert queue.update_status(task_id, TaskStatus.FAILED) == (True, False)

    @pytest.mark.parametrize("status", TaskStatus)
    def test_only_failed_and_cancelled_ones_are(self, queue: PriorityTaskQueue, status: TaskStatus) -> None:
        task_id = in_status(queue, status)

        assert queue.replay_task(task_id) is (status in {TaskStatus.FAILED, TaskStatus.CANCELLED})


class TestBackoff:
    def test_a_retry_waits_if_it_was_asked_to(self, queue: PriorityTaskQueue, clock: ManualClock) -> None:
        task_id = queue.enqueue(Task(), backoff=Backoff(initial=SECOND, jitter=0.0))
        taken(queue)
        assert queue.update_status(task_id, TaskStatus.FAILED) == (True, True)

        assert queue.dequeue() is None
        clock.advance(SECOND)
        assert taken(queue).ready_at == datetime.fromtimestamp(clock.now() / SECOND, UTC)


class TestTheIndex:
    def test_its_health_counts_what_is_stale(self, queue: PriorityTaskQueue) -> None:
        for task_id in [queue.enqueue(Task()) for _ in range(10)][7:]:
            queue.cancel_task(task_id)

        assert queue.heap_health == HeapHealth(total_entries=10, valid_entries=7, invalid_entries=3, last_rebuild=None)
        assert queue.get_queue_stats()["heap_efficiency"] == 0.7

    def test_it_is_rebuilt_by_a_cleanup_whatever_it_is_like(self, queue: PriorityTaskQueue, clock: ManualClock) -> None:
        for task_id in [queue.enqueue(Task()) for _ in range(10)][:3]:
            queue.cancel_task(task_id)

        assert queue.force_cleanup()["heap_entries_removed"] == 3
        assert queue.heap_health.last_rebuild == datetime.fromtimestamp(clock.now() / SECOND, UTC)
        assert queue.heap_health.efficiency == 1.0

    def test_stale_entries_of_many_priorities_are_removed_at_the_cleanup_interval(self, clock: ManualClock) -> None:
        queue = PriorityTaskQueue(cleanup_interval_seconds=60, clock=clock)
        # Fewer of each than a single index is rebuilt for, and more than half of all of them.
        for task_id in [queue.enqueue(Task(priority=each)) for each in TaskPriority for _ in range(90)][::-1]:
            if queue.heap_health.valid_entries > 100:
                queue.cancel_task(task_id)
        assert queue.heap_health.should_rebuild
        clock.advance(60 * SECOND)
        queue.dequeue()

        assert queue.heap_health.last_rebuild is not None
        assert queue.heap_health.efficiency == 1.0


def test_a_manager_and_its_queue_are_one(clock: ManualClock) -> None:
    manager = TaskQueueManager(clock=clock)
    task_id = manager.queue.enqueue(Task("x"))

    assert manager.get_task_status(task_id) is not None
    assert manager.get_statistics() == manager.queue.get_queue_stats()
