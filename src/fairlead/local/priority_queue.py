"""The queue of one process: tasks in, tasks out, over the engine and the memory store."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from fairlead.admin.engine import AdminEngine
from fairlead.core.errors import FairleadError, InvalidTask, QueueFull
from fairlead.core.events import Completed, Failed, HandedBack, Outcome
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.instant import AT_ONCE, LATEST, LONGEST, Instant, Span, seconds
from fairlead.core.retry import MOST_RETRIES, Backoff
from fairlead.core.settings import Retention, Rules, Settings
from fairlead.core.submission import DEFAULT_QUEUE, Submission
from fairlead.core.task import Failure, Priority, State
from fairlead.core.task import Task as StoredTask
from fairlead.core.validation import (
    Duration,
    bad_setting,
    check_count,
    check_flag,
    check_text,
    setting_of,
    shown,
    shown_span,
)
from fairlead.engine.engine import Settlement
from fairlead.engine.events.types import Happening, Occurrence
from fairlead.engine.runtime.clock import Clock, SystemClock
from fairlead.engine.runtime.inline import run_inline
from fairlead.local.task import (
    STATUS,
    HeapHealth,
    InvalidStateTransitionError,
    MaintenanceReport,
    QueueFullError,
    Statistics,
    Task,
    TaskNotFoundError,
    TaskPriority,
    TaskStatus,
    backoff_of,
    failure_of,
    moment_of,
    policy_of,
    priority_of,
    statistics_of,
    status_of,
)
from fairlead.storage.memory import MemoryStore

_TYPE: Final = "local"
_FOREVER: Final[Span] = LONGEST
"""Leases here do not end by themselves: a holder in the same process has no heartbeat. See `TaskSupervisor`."""
_NOBODY: Final = WorkerId("")
"""Who takes a task and does not say who it is."""

_REMEDIES: Final = {
    TaskStatus.PENDING: "only one that is in_progress can be requeued; replay_task is for failed and cancelled ones",
    TaskStatus.IN_PROGRESS: "dequeue gives tasks to workers, in their order",
    TaskStatus.COMPLETED: "only one that is in_progress can",
    TaskStatus.FAILED: "only one that is in_progress can",
    TaskStatus.CANCELLED: "only a pending one can; request_cancel asks the holder of one that is in_progress",
}


async def _no_lease_has_ended() -> None:
    """Not even when the clock is set forward by years, as one that begins at 1970 is."""


class _Kept(Struct):
    """What the queue keeps of a task beside what the engine knows of it."""

    name: str
    """The task's id as its submitter knows it."""
    payload: object
    max_retries: int
    retry_policy: dict[Any, Any] | None
    submitted: Span
    """By the monotonic clock."""


class PriorityTaskQueue:
    """A thread-safe priority queue with retries, in this process's memory."""

    def __init__(
        self,
        max_queue_size: int | None = None,
        task_retention_seconds: Duration = 3600,
        cleanup_interval_seconds: Duration = 300,
        *,
        clock: Clock | None = None,
    ) -> None:
        if max_queue_size is not None:
            check_count("max_queue_size", max_queue_size, 1, LATEST, bad_setting)
        kept = setting_of("task_retention_seconds", task_retention_seconds)
        self._cleanup_interval = setting_of("cleanup_interval_seconds", cleanup_interval_seconds)
        self._clock = clock or SystemClock()
        self._store = MemoryStore(self._clock.now)
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
        self._cleaned_at: Instant | None = None
        self._cleaned_monotonic = self._clock.monotonic()
        # What is kept of a task must be in place before it can be taken. Reentrant: letting go of a payload may run its
        # finaliser, which may use the queue.
        self._lock = threading.RLock()
        self._kept: dict[TaskId, _Kept] = {}
        self._ids: dict[str, TaskId] = {}
        """The engine's ids of tasks by those that their submitters know."""
        self._held: dict[TaskId, tuple[StoredTask, Span]] = {}
        """Tasks in progress with the monotonic moment they were taken at, longest held first."""
        self._backing_off: set[TaskId] = set()
        """Tasks that failed and wait for their backoff."""
        self._upkeep: Counter[Happening] = Counter()

    def enqueue(self, task: Task, *, backoff: Backoff | Mapping[str, float] | None = None) -> str:
        """Queue a task, and give back its id. With `backoff`, a failed attempt is retried after a wait, not at once.

        Raises QueueFullError when the queue is full, and ValueError, saying what is valid, for what makes no sense.
        """
        if not isinstance(task, Task):
            raise InvalidTask("task", f"task {shown(task)} is not a Task; write Task(payload)")
        name = check_text("task_id", task.task_id)
        if status_of(task.status) is not TaskStatus.PENDING:
            remedy = "enqueue a new Task; replay_task is for failed and cancelled ones"
            raise InvalidStateTransitionError(name, task.status, TaskStatus.PENDING, remedy)
        attempts = check_count("max_retries", task.max_retries, 0, MOST_RETRIES)
        submission = Submission(
            type=_TYPE,
            priority=Priority[priority_of(task.priority).name],
            # The engine counts the attempts after the first one, the last of which may be the first.
            max_retries=max(attempts - 1, 0),
            backoff=backoff_of(backoff),
            timeout=_FOREVER,
        )
        policy = policy_of(task.retry_policy)
        with self._lock:
            self._clean_when_due()
            if name in self._ids:
                raise InvalidTask("task_id", f"task_id {name} is in the queue already; enqueue a new Task")
            try:
                stored = run_inline(self._engine.submit(submission)).task
            except QueueFull as full:
                raise QueueFullError(full.depth, full.bound) from None
            self._kept[stored.id] = _Kept(name, task.payload, attempts, policy, self._clock.monotonic())
            self._ids[name] = stored.id
        return name

    def dequeue(self, worker_id: str | None = None) -> Task | None:
        """Take the task to be served next, or None when nothing is ready."""
        worker = _NOBODY if worker_id is None else WorkerId(check_text("worker_id", worker_id))
        with self._lock:
            self._clean_when_due()
            if self._backing_off:
                self._answer_alarms()
            tasks = run_inline(self._engine.claim(worker, [DEFAULT_QUEUE], limit=1))
            return self._shown(tasks[0]) if tasks else None

    def get_task(self, task_id: str) -> Task | None:
        """The task as it stands, or None when there is none: it never existed, or its retention is over."""
        with self._lock:
            self._clean_when_due()
            stored = self._stored(task_id)
            return None if stored is None else self._shown(stored)

    def update_status(
        self,
        task_id: str,
        status: TaskStatus | str,
        error: object = None,
        *,
        lease: str | None = None,
        reset_retries: bool = False,
    ) -> tuple[bool, bool]:
        """Say what becomes of a task: whether that was accepted, and whether the task is retried because of it.

        One in progress is completed, failed, or pending again as if nobody had taken it; with `reset_retries` it is
        then as if it had never failed. A pending one is cancelled. With a `lease` only the attempt that still holds the
        task is accepted: the answer is `(False, False)` for any other. Raises TaskNotFoundError, and
        InvalidStateTransitionError for every other change.
        """
        wanted = status_of(status)
        check_flag("reset_retries", reset_retries)
        with self._lock:
            self._clean_when_due()
            stored = self._stored(task_id)
            if stored is None:
                raise TaskNotFoundError(task_id)
            if wanted is TaskStatus.CANCELLED and stored.state.waiting:
                run_inline(self._engine.cancel(stored.id))
                return True, False
            outcomes: dict[TaskStatus, Outcome] = {
                TaskStatus.COMPLETED: Completed(),
                TaskStatus.FAILED: Failed(failure=failure_of(error)),
                TaskStatus.PENDING: HandedBack(reset_retries=reset_retries),
            }
            if wanted not in outcomes or stored.state is not State.EXECUTING:
                name = self._kept[stored.id].name
                raise InvalidStateTransitionError(name, STATUS[stored.state], wanted, _REMEDIES[wanted])
            if stored.status.lease is None or lease not in (None, stored.status.lease.token):
                return False, False
            after = self._settle(stored.id, outcomes[wanted])
            return after is not None, wanted is TaskStatus.FAILED and after is not None and after.state.waiting

    def cancel_task(self, task_id: str) -> bool:
        """Cancel a pending task; False, and nothing changes, for any other."""
        return self._tried(task_id, TaskStatus.CANCELLED)

    def requeue_task(self, task_id: str, reset_retries: bool = False) -> bool:
        """Take a task in progress from its holder; False, and nothing changes, for any other.

        It keeps its place in the line, and its retries unless they are reset; the holder's lease is void.
        """
        return self._tried(task_id, TaskStatus.PENDING, reset_retries=reset_retries)

    def request_cancel(self, task_id: str) -> bool:
        """Cancel a pending task, or ask the holder of one in progress to stop; False for one that has ended.

        A task in progress cannot be stopped from here: its `cancel_requested` turns true for its holder to look at, and
        if the attempt then fails it is cancelled instead of retried. If it succeeds, it has succeeded.
        """
        with self._lock:
            self._clean_when_due()
            stored = self._stored(task_id)
            if stored is None or stored.state.ended:
                return False
            run_inline(self._engine.cancel(stored.id))
            return True

    def replay_task(self, task_id: str, reset_retries: bool = True) -> bool:
        """Queue a failed or cancelled task again; False, and nothing changes, for any other.

        With its retries not reset, a task that had used them up has one attempt more.
        """
        check_flag("reset_retries", reset_retries)
        with self._lock:
            self._clean_when_due()
            stored = self._stored(task_id)
            if stored is None:
                return False
            try:
                run_inline(self._engine.replay(stored.id, reset_retries=reset_retries))
            except FairleadError:
                return False
            return True

    def stuck_tasks(self, threshold_seconds: Duration) -> list[Task]:
        """The tasks that have been in progress for this long or longer, longest first."""
        threshold = setting_of("threshold_seconds", threshold_seconds)
        with self._lock:
            return [self._shown(task) for task in self._overdue(threshold)]

    def requeue_stuck(self, threshold_seconds: Duration, *, spend_retries: bool = False) -> tuple[list[str], list[str]]:
        """Take the tasks that have been in progress for this long or longer from their holders.

        The answer is the ids of all that were found, and of those that are pending again. See `TaskSupervisor`.
        """
        threshold = setting_of("threshold_seconds", threshold_seconds)
        message = f"no word from its holder for {shown_span(threshold)}"
        stuck = Failed(failure=Failure(type="Stuck", message=message), after=0)
        with self._lock:
            overdue = self._overdue(threshold)
            found = [self._kept[task.id].name for task in overdue]
            settled = [self._settle(task.id, stuck if spend_retries else HandedBack()) for task in overdue]
            return found, [
                name for name, task in zip(found, settled, strict=True) if task is not None and task.state.waiting
            ]

    def get_queue_stats(self) -> Statistics:
        """How the queue stands; costs the same however many tasks there are."""
        with self._lock:
            self._clean_when_due()
            return statistics_of(run_inline(self._store.tally()), self.heap_health, moment_of(self._cleaned_at))

    @property
    def heap_health(self) -> HeapHealth:
        """How the index of pending tasks stands."""
        size = self._store.index_size()
        return HeapHealth(
            total_entries=size.entries,
            valid_entries=size.live,
            invalid_entries=size.entries - size.live,
            last_rebuild=moment_of(size.compacted_at),
        )

    def force_cleanup(self) -> MaintenanceReport:
        """Do the maintenance now instead of at the next cleanup interval, and rebuild the index in any case."""
        with self._lock:
            removed = self._clean()
            stale = self._store.compact()
            return {
                "tasks_removed": removed,
                "heap_entries_removed": stale,
                "tasks_remaining": len(self._kept),
                "heap_size": self._store.index_size().entries,
            }

    def _tried(self, task_id: str, status: TaskStatus, *, reset_retries: bool = False) -> bool:
        try:
            accepted, _ = self.update_status(task_id, status, reset_retries=reset_retries)
        except (TaskNotFoundError, InvalidStateTransitionError):
            return False
        return accepted

    # Below here the lock is held.

    def _stored(self, task_id: object) -> StoredTask | None:
        """The task with this id, if there is one; whatever is no text is no id."""
        known = self._ids.get(str.__str__(task_id)) if isinstance(task_id, str) else None
        if known is None:
            return None
        (task,) = run_inline(self._store.get([known]))
        return task

    def _shown(self, task: StoredTask) -> Task:
        spec, status, kept, now = task.spec, task.status, self._kept[task.id], self._clock.monotonic()
        failed = status.state in (State.FAILED, State.DEAD_LETTER)
        last = status.history[-1].worker if status.state.ended and status.history else None
        worker = last if status.lease is None else status.lease.worker
        _, taken = self._held.get(task.id, (task, None))
        return Task(
            payload=kept.payload,
            priority=TaskPriority[status.priority.name],
            max_retries=kept.max_retries,
            retry_policy=kept.retry_policy,
            task_id=kept.name,
            status=STATUS[status.state],
            created_at=moment_of(spec.created_at),
            started_at=moment_of(status.started_at),
            completed_at=moment_of(status.ended_at),
            error_message=(status.failure.message or None) if status.failure else None,
            # The failure that ended a task is no retry to the engine.
            retry_count=status.retries + failed,
            worker_id=worker or None,
            age_seconds=seconds(now - kept.submitted),
            time_in_progress=None if taken is None else seconds(now - taken),
            attempts=status.attempts,
            ready_at=moment_of(status.ready_at),
            lease=None if status.lease is None else status.lease.token,
            cancel_requested=status.cancel_asked,
        )

    def _overdue(self, threshold: Span) -> list[StoredTask]:
        taken_until = self._clock.monotonic() - threshold
        overdue: list[StoredTask] = []
        for task, taken in self._held.values():
            if taken > taken_until:
                break
            overdue.append(task)
        return overdue

    def _settle(self, task_id: TaskId, outcome: Outcome) -> StoredTask | None:
        held, _ = self._held[task_id]
        (answer,) = run_inline(self._engine.settle([Settlement(held, outcome)]))
        return answer if isinstance(answer, StoredTask) else None

    def _clean_when_due(self) -> None:
        if self._clock.monotonic() - self._cleaned_monotonic >= self._cleanup_interval:
            self._clean()

    def _clean(self) -> int:
        """Remove ended tasks whose retention is over, and what is stale in the index if that is most of it."""
        self._cleaned_at, self._cleaned_monotonic = self._clock.now(), self._clock.monotonic()
        self._upkeep.clear()
        self._answer_alarms()
        if self.heap_health.should_rebuild:
            self._store.compact()
        return self._upkeep[Happening.REMOVED]

    def _answer_alarms(self) -> None:
        after: tuple[Instant, TaskId] | None = None
        while tasks := run_inline(self._engine.sweep(after=after, watched=_no_lease_has_ended)):
            after = (tasks[-1].status.alarm or AT_ONCE, tasks[-1].id)

    def _note(self, occurrence: Occurrence) -> None:
        task = occurrence.task
        self._upkeep[occurrence.happening] += 1
        if occurrence.happening is Happening.REMOVED:
            gone = self._kept.pop(task.id, None)
            if gone is not None:
                self._ids.pop(gone.name, None)
        if task.state is State.SCHEDULED:
            self._backing_off.add(task.id)
        else:
            self._backing_off.discard(task.id)
        if task.state is not State.EXECUTING:
            self._held.pop(task.id, None)
        else:
            # A request to cancel changes the task under its holder; when it was taken stays as it was.
            _, taken = self._held.get(task.id, (task, self._clock.monotonic()))
            self._held[task.id] = task, taken
