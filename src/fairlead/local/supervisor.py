"""Watching over those who take tasks and are not heard of again."""

from __future__ import annotations

from fairlead.core.errors import InvalidSettings
from fairlead.core.validation import Duration, bad_setting, check_flag, setting_of, shown
from fairlead.local.queue import TaskQueueManager
from fairlead.local.views import StuckAnswer, TaskReport, report_of


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

        The old holder's lease is void, so its word is refused if it shows that. No retry is spent unless the supervisor
        was told to.
        """
        found, requeued = self._queue.requeue_stuck(self._threshold_seconds, spend_retries=self._spend_retries)
        return {"stuck_tasks_found": len(found), "tasks_requeued": len(requeued), "task_ids": requeued}
