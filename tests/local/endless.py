"""A program that runs many tasks through a bounded queue and prints how much memory it holds on the way.

    python -m tests.local.endless 1000000

Each line is: tasks done, resident memory in KiB, tasks kept, index entries.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fairlead.core.instant import MILLISECOND
from fairlead.engine.runtime.clock import ManualClock
from fairlead.local import TaskQueueManager

_PRIORITIES = ("critical", "high", "medium", "low")
_REPORTS = 20


def resident_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError("/proc/self/status has no VmRSS; run this on Linux")


def run(tasks: int) -> None:
    """Keep the queue full; of every ten tasks one is cancelled while waiting, one while running, and one is retried."""
    clock = ManualClock()
    queue = TaskQueueManager(max_queue_size=1_000, task_retention_seconds=1, cleanup_interval_seconds=0.25, clock=clock)
    done, number = 0, 0
    next_report = report_every = tasks // _REPORTS
    while done < tasks:
        while (answer := queue.submit_task({"n": number}, priority=_PRIORITIES[number % 4]))["status"] == "pending":
            if number % 10 == 0:
                queue.cancel_task(answer["task_id"])
                done += 1
            number += 1
        for _ in range(500):
            clock.advance(MILLISECOND)
            task = queue.queue.dequeue("worker")
            if task is None:
                break
            kind = task.payload["n"] % 10
            fails = kind == 1 or (kind == 2 and task.attempts == 1)
            if kind == 1:
                queue.queue.request_cancel(task.task_id)
            queue.complete_task(task.task_id, not fails, error="as planned", lease=task.lease)
            done += not (kind == 2 and fails)
        if done >= next_report:
            next_report += report_every
            statistics = queue.get_statistics()
            print(done, resident_kib(), statistics["total_tasks"], statistics["heap_size"], flush=True)


if __name__ == "__main__":
    run(int(sys.argv[1]))
