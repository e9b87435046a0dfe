"""Watching over those who take tasks and are not heard of again."""

from __future__ import annotations

from fairlead.core.validation import Duration, setting_of
from fairlead.local.queue import TaskQueueManager
from fairlead.local.views import TaskView


class TaskSupervisor:
    """Finds tasks that have been in progress for too long, and takes them from their holders."""

    def __init__(self, manager: TaskQueueManager, stuck_threshold_seconds: Duration = 300) -> None:
        setting_of("stuck_threshold_seconds", stuck_threshold_seconds, least=1)
        self._manager = manager
        self._threshold_seconds = stuck_threshold_seconds

    def check_stuck_tasks(self) -> list[TaskView]:
        """The tasks that have been in progress for longer than the threshold, longest first; nothing is changed."""
        return self._manager.held_longer_than(self._threshold_seconds)

    def requeue_stuck_tasks(self) -> list[str]:
        """Queue every stuck task again, at once; the ids of those that are.

        The old holder's lease is void, so its word is refused. Each time spends a retry: a task that hangs whoever
        takes it ends as failed instead of hanging one worker after the other.
        """
        return self._manager.requeue_held_longer_than(self._threshold_seconds)
