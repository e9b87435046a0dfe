"""The failures that no handler reports: what fairlead itself notes, under names that queries and retry rules go by."""

from __future__ import annotations

from fairlead.core.instant import SECOND, Span
from fairlead.core.retry import TIMEOUT
from fairlead.core.task import Failure, Task


def timed_out(timeout: Span) -> Failure:
    """An attempt was stopped at its timeout."""
    return Failure(type=TIMEOUT, message=f"the attempt was stopped after its timeout of {timeout / SECOND:g} s")


def worker_lost(task: Task) -> Failure:
    """The worker that holds the task has not renewed its lease."""
    worker = task.status.lease.worker if task.status.lease else "unknown"
    message = f"worker {worker} stopped renewing its lease; it crashed, was killed, hung or lost the store"
    return Failure(type="WorkerLost", message=message)


def dependency_failed(task: Task) -> Failure:
    """What the task waited for did not complete."""
    named = () if task.spec.after is None else task.spec.after.tasks
    if len(named) == 1:
        message = f"task {named[0]}, which this one waited for, did not complete"
    else:
        message = f"{task.status.unmet} of the {len(named)} tasks that this one waited for did not complete"
    return Failure(type="DependencyFailed", message=message)
