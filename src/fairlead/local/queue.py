"""The queue of one process."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Final

from fairlead.admin.engine import AdminEngine
from fairlead.core.errors import FairleadError, QueueFull
from fairlead.core.events import Completed, Failed, HandedBack, Outcome
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.instant import LONGEST, Instant, Span, seconds
from fairlead.core.retry import Backoff
from fairlead.core.settings import Retention, Rules, Settings
from fairlead.core.submission import DEFAULT_QUEUE, Submission
from fairlead.core.task import Failure, Priority, State, Task
from fairlead.core.validation import Duration, setting_of, shown_span, span_of
from fairlead.engine.engine import Settlement
from fairlead.engine.events.observers import Happening, Occurrence
from fairlead.engine.runtime.clock import Clock, SystemClock
from fairlead.engine.runtime.inline import run_inline
from fairlead.local.views import (
    STATUS,
    MaintenanceReport,
    Statistics,
    SubmitAnswer,
    TaskView,
    backoff_of,
    failure_of,
    view_of,
)
from fairlead.storage.memory import MemoryStore

_TYPE: Final = "local"
_FOREVER: Final[Span] = LONGEST
"""Leases here do not end by themselves: a holder in the same process has no heartbeat. See `TaskSupervisor`."""


class TaskQueueManager:
    """A bounded, thread-safe priority queue with retries, in this process's memory."""

    def __init__(
        self,
        max_queue_size: int = 10_000,
        task_retention_seconds: Duration = 3600,
        cleanup_interval_seconds: Duration = 60,
        *,
        clock: Clock | None = None,
    ) -> None:
        kept = setting_of("task_retention_seconds", task_retention_seconds)
        self._clock = clock or SystemClock()
        self._store = MemoryStore()
        self._engine = AdminEngine(
            self._store,
            Settings(
                rules=Rules(retention=Retention(completed=kept, cancelled=kept, failed=kept, dead_letter=kept)),
                lease=_FOREVER,
                queue_bound=max_queue_size,
            ),
            clock=self._clock,
            observers=[self._note],
            batching=False,
        )
        self._max_queue_size = max_queue_size
        self._cleanup_interval = setting_of("cleanup_interval_seconds", cleanup_interval_seconds)
        self._cleaned_at: Instant | None = None
        self._cleaned_monotonic = self._clock.monotonic()
        # A payload must be in place before its task can be taken. Reentrant: letting go of a payload may run its
        # finaliser, which may use the queue.
        self._lock = threading.RLock()
        self._payloads: dict[TaskId, object] = {}
        self._held: dict[TaskId, tuple[Task, Span]] = {}
        """Tasks in progress with the monotonic moment they were taken at, longest held first."""
        self._upkeep: Counter[Happening] = Counter()

    def submit_task(
        self,
        payload: object,
        priority: str | Priority = "medium",
        max_retries: int = 3,
        retry_policy: Backoff | Mapping[str, float] | None = None,
    ) -> SubmitAnswer:
        """Queue a task; the answer is rejected, with the reason, when the queue is full.

        `retry_policy` says how long a failed task waits: a `Backoff`, or a mapping with any of `initial_seconds`,
        `factor`, `max_seconds` and `jitter`. What it leaves out is 1 s, 2.0, 300 s and 0.1.

        Raises ValueError, saying what is valid, for a priority, a number of retries or a policy that makes no sense.
        """
        submission = Submission(
            type=_TYPE,
            priority=priority if isinstance(priority, Priority) else Priority.parse(priority),
            max_retries=max_retries,
            backoff=backoff_of(retry_policy),
            timeout=_FOREVER,
        )
        with self._lock:
            self._clean_when_due()
            try:
                task = run_inline(self._engine.submit(submission)).task
            except QueueFull as full:
                return {"status": "rejected", "error": str(full)}
            self._payloads[task.id] = payload
        return {"status": STATUS[task.state], "task_id": task.id}

    def get_next_task(self, worker_id: str) -> TaskView | None:
        """Take the task to be served next, or None when nothing is ready."""
        with self._lock:
            self._clean_when_due()
            self._answer_alarms()
            tasks = run_inline(self._engine.claim(WorkerId(worker_id), [DEFAULT_QUEUE], limit=1))
            return self._view(tasks[0]) if tasks else None

    def complete_task(
        self, task_id: str, success: bool, error: str | BaseException | None = None, *, lease: str | None = None
    ) -> bool:
        """Say how an attempt ended; False, and nothing changes, when the task is not in progress.

        A failure is retried until the task's retries are used up. With the `lease` that `get_next_task` gave, only the
        attempt that still holds the task is heard; without it, whoever names the task is believed to hold it.
        """
        outcome: Outcome = Completed() if success else Failed(failure=failure_of(error))
        with self._lock:
            self._clean_when_due()
            return self._settle(TaskId(task_id), outcome, lease)

    def get_task_status(self, task_id: str) -> TaskView | None:
        """The task as it stands, or None when there is none: it never existed, or its retention is over."""
        with self._lock:
            self._clean_when_due()
            (task,) = run_inline(self._store.get([TaskId(task_id)]))
            return None if task is None else self._view(task)

    def cancel_task(self, task_id: str) -> bool:
        """Cancel a pending task at once; False when it has ended or is unknown.

        A task in progress cannot be stopped from here: its `cancel_requested` turns true for its holder to look at, and
        if the attempt then fails it is cancelled instead of retried. If it succeeds, it has succeeded.
        """
        with self._lock:
            self._clean_when_due()
            try:
                run_inline(self._engine.cancel(TaskId(task_id)))
            except FairleadError:
                return False
            return True

    def requeue_task(self, task_id: str, reset_retries: bool = True) -> bool:
        """Queue a failed or cancelled task again, or take one in progress from its holder; False for any other.

        A task taken from its holder keeps its place in the line and its retries, and the holder's lease is void.
        """
        with self._lock:
            self._clean_when_due()
            if TaskId(task_id) in self._held:
                return self._settle(TaskId(task_id), HandedBack())
            try:
                run_inline(self._engine.replay(TaskId(task_id), reset_retries=reset_retries))
            except FairleadError:
                return False
            return True

    def get_statistics(self) -> Statistics:
        """How the queue stands; costs the same however many tasks there are."""
        with self._lock:
            self._clean_when_due()
            tally = run_inline(self._store.tally())
            size = self._store.index_size()
        by_status = dict.fromkeys(STATUS.values(), 0)
        pending = {priority.word: 0 for priority in Priority}
        for lane in tally.lanes:
            for state, count in lane.counts.items():
                by_status[STATUS[state]] += count
                if state.waiting:
                    pending[lane.lane.priority.word] += count
        return {
            "total": sum(by_status.values()),
            "by_status": by_status,
            "pending_by_priority": pending,
            "max_queue_size": self._max_queue_size,
            "heap_size": size.entries,
            "heap_efficiency": size.live / size.entries if size.entries else 1.0,
            "last_cleanup": None if self._cleaned_at is None else seconds(self._cleaned_at),
        }

    def force_maintenance(self) -> MaintenanceReport:
        """Do the upkeep now instead of at the next cleanup interval."""
        with self._lock:
            return self._clean()

    def held_longer_than(self, threshold_seconds: Duration) -> list[TaskView]:
        """The tasks that have been in progress for longer than this, longest first."""
        threshold = span_of("threshold_seconds", threshold_seconds)
        with self._lock:
            return [self._view(task) for task in self._overdue(threshold)]

    def requeue_held_longer_than(self, threshold_seconds: Duration) -> list[str]:
        """Take the tasks that have been in progress for longer than this from their holders. See `TaskSupervisor`."""
        threshold = span_of("threshold_seconds", threshold_seconds)
        with self._lock:
            overdue = self._overdue(threshold)
            for task in overdue:
                message = f"no word from its holder for over {shown_span(threshold)}"
                self._settle(task.id, Failed(failure=Failure(type="Stuck", message=message), after=0))
            return [task.id for task in overdue if self._is_pending(task.id)]

    # Below here the lock is held.

    def _view(self, task: Task) -> TaskView:
        return view_of(task, self._payloads.get(task.id))

    def _overdue(self, threshold: Span) -> list[Task]:
        taken_before = self._clock.monotonic() - threshold
        overdue: list[Task] = []
        for task, taken in self._held.values():
            if taken >= taken_before:
                break
            overdue.append(task)
        return overdue

    def _is_pending(self, task_id: TaskId) -> bool:
        (task,) = run_inline(self._store.get([task_id]))
        return task is not None and task.state.waiting

    def _settle(self, task_id: TaskId, outcome: Outcome, lease: str | None = None) -> bool:
        held = self._held.get(task_id)
        if held is None or held[0].status.lease is None or lease not in (None, held[0].status.lease.token):
            return False
        (answer,) = run_inline(self._engine.settle([Settlement(held[0], outcome)]))
        return isinstance(answer, Task)

    def _clean_when_due(self) -> None:
        if self._clock.monotonic() - self._cleaned_monotonic >= self._cleanup_interval:
            self._clean()

    def _clean(self) -> MaintenanceReport:
        self._cleaned_at, self._cleaned_monotonic = self._clock.now(), self._clock.monotonic()
        self._upkeep.clear()
        self._answer_alarms()
        removed, ready = self._upkeep[Happening.REMOVED], self._upkeep[Happening.READY]
        return {"removed": removed, "made_ready": ready, "remaining": len(self._payloads)}

    def _answer_alarms(self) -> None:
        while run_inline(self._engine.sweep()):
            pass

    def _note(self, occurrence: Occurrence) -> None:
        task = occurrence.task
        self._upkeep[occurrence.happening] += 1
        if occurrence.happening is Happening.REMOVED:
            self._payloads.pop(task.id, None)
        if task.state is not State.EXECUTING:
            self._held.pop(task.id, None)
        else:
            # A request to cancel changes the task under its holder; when it was taken stays as it was.
            _, taken = self._held.get(task.id, (task, self._clock.monotonic()))
            self._held[task.id] = task, taken
