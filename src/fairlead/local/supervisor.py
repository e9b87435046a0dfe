"""Watching over those who take tasks and are not heard of again."""

from __future__ import annotations

from fairlead.core.errors import InvalidSettings
from fairlead.local.queue import TaskQueueManager
from fairlead.local.views import TaskView


class TaskSupervisor:
    """Finds tasks that have been in progress for too long, and takes them from their holders."""

    def __init__(self, manager: TaskQueueManager, stuck_threshold_seconds: float = 300) -> None:
        if not stuck_threshold_seconds > 0:
            raise InvalidSettings(
                f"stuck_threshold_seconds {stuck_threshold_seconds} makes every task stuck at once; use more than 0"
            )
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
