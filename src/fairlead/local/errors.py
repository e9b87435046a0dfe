"""What the in-process queue raises: errors of fairlead's tree, with messages in its own words."""

from __future__ import annotations

from fairlead.core.errors import FairleadError, QueueFull, TaskNotFound, WrongState
from fairlead.core.submission import DEFAULT_QUEUE
from fairlead.core.validation import shown


class QueueFullError(QueueFull):
    """As many tasks are pending as the queue may hold; nothing was stored."""

    def __init__(self, depth: int, bound: int) -> None:
        FairleadError.__init__(
            self,
            f"the queue is full: {depth:,} tasks are pending and max_queue_size is {bound:,}; "
            f"submit later, take tasks from it, or raise max_queue_size",
        )
        self.queue = DEFAULT_QUEUE
        self.depth = depth
        self.bound = bound


class TaskNotFoundError(TaskNotFound):
    """No task has this id: it was never in the queue, or it has ended and was removed."""

    def __init__(self, task_id: object) -> None:
        super().__init__(task_id if isinstance(task_id, str) else shown(task_id))


class InvalidStateTransitionError(WrongState):
    """The task's status does not allow what was asked."""

    def __init__(self, task_id: str, status: str, wanted: str, remedy: str) -> None:
        FairleadError.__init__(self, f"task {task_id} is {status}, so it cannot become {wanted}; {remedy}")
        self.task_id = task_id
        self.state = status
        self.event = wanted
