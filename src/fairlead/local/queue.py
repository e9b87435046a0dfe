"""The queue of one process as programs talk to it, words in and plain dicts out, and a supervisor of its takers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead.core.errors import InvalidSettings, LeaseLost
from fairlead.core.retry import Backoff
from fairlead.core.validation import Duration, bad_setting, check_flag, setting_of, shown
from fairlead.engine.runtime.clock import Clock
from fairlead.local.priority_queue import PriorityTaskQueue
from fairlead.local.task import (
    CancelAnswer,
    CompleteAnswer,
    InvalidStateTransitionError,
    MaintenanceReport,
    NextTask,
    QueueFullError,
    RequeueAnswer,
    Statistics,
    StuckAnswer,
    SubmitAnswer,
    Task,
    TaskNotFoundError,
    TaskPriority,
    TaskReport,
    TaskStatus,
    next_task,
    priority_of,
    report_of,
)

_REFUSALS = (TaskNotFoundError, InvalidStateTransitionError)


class TaskQueueManager:
    """A priority queue with retries whose answers are plain dicts."""

    def __init__(
        self,
        max_queue_size: int | None = None,
        task_retention_seconds: Duration = 3600,
        cleanup_interval_seconds: Duration = 300,
        *,
        clock: Clock | None = None,
    ) -> None:
        self.queue = PriorityTaskQueue(max_queue_size, task_retention_seconds, cleanup_interval_seconds, clock=clock)
        """The queue itself, whose answers are whole tasks and which can do more."""

    def submit_task(
        self,
        payload: object,
        priority: TaskPriority | str | int = "medium",
        max_retries: int = 3,
        retry_policy: dict[Any, Any] | None = None,
        *,
        backoff: Backoff | Mapping[str, float] | None = None,
    ) -> SubmitAnswer:
        """Queue a task; the answer is rejected, with the reason, when the queue is full.

        `max_retries` is how many failures end the task. `retry_policy` is passed on to the worker unread. `backoff`
        says how long a failed task waits before its retry: a `Backoff`, or a mapping with any of `initial_seconds`,
        `factor`, `max_seconds` and `jitter`, whose defaults are 1 s, 2.0, 300 s and 0.1. Without it no retry waits.

        Raises ValueError, saying what is valid, for what makes no sense.
        """
        task = Task(payload, priority_of(priority), max_retries, retry_policy)
        try:
            self.queue.enqueue(task, backoff=backoff)
        except QueueFullError as full:
            return {"error": str(full), "status": "rejected"}
        return {"task_id": task.task_id, "status": TaskStatus.PENDING.value, "priority": task.priority.name}

    def get_next_task(self, worker_id: str | None = None) -> NextTask | None:
        """Take the task to be served next, or None when nothing is ready."""
        task = self.queue.dequeue(worker_id)
        return None if task is None else next_task(task)

    def complete_task(
        self, task_id: str, success: bool = True, error: object = None, *, lease: str | None = None
    ) -> CompleteAnswer:
        """Say how an attempt ended; an error, and nothing changes, when the task is unknown or not in progress.

        A failure counts, and the task is pending again while fewer than `max_retries` are counted. With the `lease` of
        the task as `queue.dequeue` or `queue.get_task` shows it, only the attempt that still holds the task is
        accepted; without it, whoever names the task is believed to hold it.
        """
        wanted = TaskStatus.COMPLETED if check_flag("success", success) else TaskStatus.FAILED
        try:
            accepted, retried = self.queue.update_status(task_id, wanted, error, lease=lease)
        except _REFUSALS as refusal:
            return {"error": str(refusal)}
        if not accepted:
            return {"error": str(LeaseLost(task_id))}
        return {"task_id": task_id, "status": wanted.value, "retried": retried}

    def get_task_status(self, task_id: str) -> TaskReport | None:
        """The task as it stands, or None when there is none: it never existed, or its retention is over."""
        task = self.queue.get_task(task_id)
        return None if task is None else report_of(task)

    def cancel_task(self, task_id: str) -> CancelAnswer:
        """Cancel a pending task; any other is left alone, and the message says why."""
        try:
            self.queue.update_status(task_id, TaskStatus.CANCELLED)
        except _REFUSALS as refusal:
            return {"task_id": task_id, "cancelled": False, "message": str(refusal)}
        return {"task_id": task_id, "cancelled": True, "message": f"task {task_id} is cancelled"}

    def requeue_task(self, task_id: str, reset_retries: bool = False) -> RequeueAnswer:
        """Take a task in progress from its holder, so that it is pending again; any other is left alone.

        It keeps its place in the line. With `reset_retries` it is as if it had never failed.
        """
        try:
            self.queue.update_status(task_id, TaskStatus.PENDING, reset_retries=reset_retries)
        except _REFUSALS as refusal:
            requeued, message = False, str(refusal)
        else:
            requeued, message = True, f"task {task_id} was taken from its holder and is requeued"
        return {"task_id": task_id, "requeued": requeued, "reset_retries": reset_retries, "message": message}

    def get_statistics(self) -> Statistics:
        """How the queue stands; costs the same however many tasks there are."""
        return self.queue.get_queue_stats()

    def force_maintenance(self) -> MaintenanceReport:
        """Do the maintenance now instead of at the next cleanup interval, and rebuild the index in any case."""
        return self.queue.force_cleanup()


class TaskSupervisor:
    """Finds tasks that have been in progress for too long, and takes them from their holders."""

    def __init__(
        self,
        manager: TaskQueueManager,
        stuck_threshold_seconds: Duration = 300,
        *,
        spend_retries: bool = False,
    ) -> None:
        """With `spend_retries`, being stuck is a failure: a task that hangs whoever takes it ends as failed."""
        if not isinstance(manager, TaskQueueManager):
            raise InvalidSettings(f"manager {shown(manager)} is not a TaskQueueManager; give the one to watch over")
        setting_of("stuck_threshold_seconds", stuck_threshold_seconds)
        self._queue = manager.queue
        self._threshold_seconds = stuck_threshold_seconds
        self._spend_retries = check_flag("spend_retries", spend_retries, bad_setting)

    def check_stuck_tasks(self) -> list[TaskReport]:
        """The tasks in progress for as long as the threshold or longer, longest first; nothing is changed."""
        return [report_of(task) for task in self._queue.stuck_tasks(self._threshold_seconds)]

    def requeue_stuck_tasks(self) -> StuckAnswer:
        """Queue every stuck task again, at once and in its place in the line.

        The old holder's lease is void, so a call that shows it is refused. No retry is spent unless the supervisor was
        told to.
        """
        found, requeued = self._queue.requeue_stuck(self._threshold_seconds, spend_retries=self._spend_retries)
        return {"stuck_tasks_found": len(found), "tasks_requeued": len(requeued), "task_ids": requeued}
