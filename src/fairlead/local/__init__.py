"""The queue inside one process: plain synchronous calls, no store to open, no worker to start, no event loop.

It is a thin face of the same engine and the same rules over the memory store, for programs that only want a thread-safe
priority queue with retries. All is lost when the process ends.

    manager = TaskQueueManager()
    manager.submit_task({"to": "ada"}, priority="high")
    while task := manager.get_next_task("worker-1"):
        try:
            send(task["payload"])
        except Exception as error:
            manager.complete_task(task["task_id"], success=False, error=error)
        else:
            manager.complete_task(task["task_id"])

`TaskQueueManager` answers with plain dicts. Its `queue`, the `PriorityTaskQueue` behind it, answers with `Task`s and
can do more.

A payload is any Python object. It never leaves the process, so it is neither copied nor encoded: what a worker gets is
the very object that was submitted, and it is let go when the task is removed.

There is no background thread: retries that have come due are brought back by whoever takes the next task, and ended
tasks whose retention is over are removed by whichever call comes first after the cleanup interval.
"""

from fairlead.local.priority_queue import PriorityTaskQueue
from fairlead.local.queue import TaskQueueManager, TaskSupervisor
from fairlead.local.task import (
    CancelAnswer,
    CompleteAnswer,
    HeapHealth,
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
)

__all__ = [
    "CancelAnswer",
    "CompleteAnswer",
    "HeapHealth",
    "InvalidStateTransitionError",
    "MaintenanceReport",
    "NextTask",
    "PriorityTaskQueue",
    "QueueFullError",
    "RequeueAnswer",
    "Statistics",
    "StuckAnswer",
    "SubmitAnswer",
    "Task",
    "TaskNotFoundError",
    "TaskPriority",
    "TaskQueueManager",
    "TaskReport",
    "TaskStatus",
    "TaskSupervisor",
]
