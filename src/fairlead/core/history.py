"""A task's history: a line for every decision about it, kept with the task."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from fairlead.core.instant import Instant
from fairlead.core.task import EXECUTING, Entry, Failure, Reason, State, Task

HISTORY_LIMIT: Final = 32
"""How many lines of history a task keeps; the oldest go first."""


def longer(task: Task, now: Instant, state: State, reason: Reason, cause: Failure | None = None) -> tuple[Entry, ...]:
    """The task's history with one line more: what it came to now, why, and the attempt that this ended."""
    status = task.status
    executing = status.state is EXECUTING
    entry = Entry(
        at=now,
        state=state,
        reason=reason,
        attempt=status.attempts if executing else 0,
        worker=status.lease.worker if status.lease else None,
        started_at=status.started_at if executing else None,
        # The traceback is kept once, in the status: a history of them would dwarf the task.
        failure=replace(cause, traceback=None) if cause else None,
    )
    return (*status.history, entry)[-HISTORY_LIMIT:]
