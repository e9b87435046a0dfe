"""The queue inside one process: plain synchronous calls, no store to open, no worker to start, no event loop.

`TaskQueueManager` is a thin face of the same engine and the same rules over the memory store, for programs that only
want a thread-safe priority queue with retries. All is lost when the process ends.

    queue = TaskQueueManager()
    queue.submit_task({"to": "ada"}, priority="high")
    while task := queue.get_next_task("worker-1"):
        try:
            send(task["payload"])
        except Exception as error:
            queue.complete_task(task["task_id"], success=False, error=error, lease=task["lease"])
        else:
            queue.complete_task(task["task_id"], success=True, lease=task["lease"])

A payload is any Python object. It never leaves the process, so it is neither copied nor encoded: what a worker gets is
the very object that was submitted, and it is let go when the task is removed.

There is no background thread: retries that have come due are brought back by `get_next_task`, and ended tasks whose
retention is over are removed by whichever call comes first after the cleanup interval.
"""

from fairlead.local.queue import TaskQueueManager
from fairlead.local.supervisor import TaskSupervisor
from fairlead.local.views import MaintenanceReport, Statistics, SubmitAnswer, TaskView

__all__ = [
    "MaintenanceReport",
    "Statistics",
    "SubmitAnswer",
    "TaskQueueManager",
    "TaskSupervisor",
    "TaskView",
]
