"""Every error fairlead raises on purpose.

    FairleadError
    ├── InvalidTask             a submit that can never be stored as it is (also a ValueError)
    │   ├── PayloadTooLarge
    │   └── InvalidSchedule     a schedule that can never fire as it is
    ├── InvalidSettings         a setting that makes no sense (also a ValueError)
    ├── QueryError              a query that cannot be read (also a ValueError)
    ├── QueueFull               the queue's bound is reached; try again later
    ├── TaskNotFound            no task has this id (also a LookupError)
    ├── KeyNotFound             no API key has this id or name (also a LookupError)
    ├── WorkerNotFound          no worker has this id (also a LookupError)
    ├── ScheduleNotFound        no schedule has this name (also a LookupError)
    ├── CircuitNotFound         no circuit is set for this task type (also a LookupError)
    ├── ScheduleExists          a schedule with this name is there already
    ├── OperationNotFound       no operation has this id (also a LookupError)
    ├── OperationRefused        the operation cannot begin, go on or be stopped like this
    ├── WrongState              the task's state does not allow this
    ├── LeaseLost               the attempt no longer holds the task
    ├── TaskFailed              a result was asked for, and the task ended without one
    ├── Retry                   raised by a handler: try again, now or later
    ├── Reject                  raised by a handler: trying again cannot help
    └── StoreError              the store could not do it
        ├── StoreUnavailable    out of reach or too slow: the outcome is unknown, repeating is safe
        ├── StoreFull           no space left: nothing was stored
        ├── StoreReadOnly       the store cannot be written: nothing was stored
        ├── StoreRefused        a server does not let this caller do it: nothing was done
        └── StoreMismatch       not a fairlead store, damaged, or of another version

A message names the thing, the value and the remedy.
"""

from __future__ import annotations


class FairleadError(Exception):
    """The root of the tree."""


class InvalidTask(FairleadError, ValueError):
    """A submit that can never be stored as it is."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class PayloadTooLarge(InvalidTask):
    """Parameters or a result over the limit."""

    def __init__(self, field: str, size: int, limit: int) -> None:
        super().__init__(
            field,
            f"{field} is {size:,} bytes, over the limit of {limit:,}; store the data elsewhere and pass a reference, "
            f"or raise payload_limit",
        )
        self.size = size
        self.limit = limit


class InvalidSchedule(InvalidTask):
    """A schedule that can never fire as it is: its cron expression, its time zone or a policy makes no sense."""


class InvalidSettings(FairleadError, ValueError):
    """A setting that makes no sense."""


class QueryError(FairleadError, ValueError):
    """A query that cannot be read; it points at the mistake."""

    def __init__(self, message: str, query: str, position: int, length: int = 1) -> None:
        super().__init__(message)
        self.query = query
        self.position = position
        """Where the mistake begins, in characters from 0."""
        self.length = max(length, 1)

    @property
    def pointer(self) -> str:
        """Two lines: the query, or what is near the mistake, and carets under it."""
        begin = max(self.position - _BEFORE, 0)
        shown = " ".join(self.query[begin : self.position + _AFTER].splitlines())
        lead, tail = "…" if begin else "", "…" if len(self.query) > self.position + _AFTER else ""
        carets = max(min(self.length, len(shown) - (self.position - begin)), 1)
        return f"{lead}{shown}{tail}\n{' ' * (len(lead) + self.position - begin)}{'^' * carets}"


_BEFORE, _AFTER = 50, 60


class QueueFull(FairleadError):
    """The queue's bound is reached; nothing was stored."""

    def __init__(self, queue: str, depth: int, bound: int) -> None:
        super().__init__(
            f"queue {queue!r} is full: {depth:,} tasks wait and its bound is {bound:,}; "
            f"submit later, add workers, or raise queue_bound"
        )
        self.queue = queue
        self.depth = depth
        self.bound = bound


class TaskNotFound(FairleadError, LookupError):
    """No task has this id: it never existed, or its retention has ended."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"no task {task_id}; the id is wrong, or the task ended and its retention has passed")
        self.task_id = task_id


class KeyNotFound(FairleadError, LookupError):
    """No API key has this id or name."""

    def __init__(self, named: str) -> None:
        super().__init__(f"no key {named!r}; `fairlead keys list` shows the ids and names of those there are")
        self.named = named


class WorkerNotFound(FairleadError, LookupError):
    """No worker has this id: it never joined, has left, or was forgotten."""

    def __init__(self, worker_id: str) -> None:
        super().__init__(f"no worker {worker_id}; the id is wrong, or it has left or was forgotten and must join again")
        self.worker_id = worker_id


class ScheduleNotFound(FairleadError, LookupError):
    """No schedule has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no schedule {name!r}; `fairlead schedule list` shows the names of those there are")
        self.name = name


class CircuitNotFound(FairleadError, LookupError):
    """No circuit is set for this task type."""

    def __init__(self, task_type: str) -> None:
        super().__init__(f"task type {task_type!r} has no circuit; `fairlead circuits set` gives it one")
        self.task_type = task_type


class ScheduleExists(FairleadError):
    """A schedule with this name is there already; it was left as it is."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the schedule {name!r} is there already; replace it, remove it, or choose another name")
        self.name = name


class OperationNotFound(FairleadError, LookupError):
    """No operation has this id: it never began, or ended so long ago that it was forgotten."""

    def __init__(self, operation_id: str) -> None:
        super().__init__(f"no operation {operation_id}; `fairlead operations list` shows those there are")
        self.operation_id = operation_id


class OperationRefused(FairleadError):
    """The operation cannot begin, go on or be stopped like this; nothing was done."""


class WrongState(FairleadError):
    """The task's state does not allow what was asked."""

    def __init__(self, task_id: str, state: str, event: str, allowed: tuple[str, ...]) -> None:
        wanted = " or ".join(allowed) if allowed else "no state"
        super().__init__(f"task {task_id} is {state}: {event} needs it to be {wanted}")
        self.task_id = task_id
        self.state = state
        self.event = event


class LeaseLost(FairleadError):
    """The attempt no longer holds the task, so what it says of the task is refused."""

    def __init__(self, task_id: str) -> None:
        super().__init__(
            f"the lease on task {task_id} is lost: it ended or the task was taken over; drop this attempt's outcome"
        )
        self.task_id = task_id


class TaskFailed(FairleadError):
    """A result was asked for, and the task ended without one."""

    def __init__(self, task_id: str, state: str, reason: str, cause: str = "") -> None:
        super().__init__(f"task {task_id} ended as {state} ({reason}){f': {cause}' if cause else ''}")
        self.task_id = task_id
        self.state = state
        self.reason = reason


class Retry(FairleadError):
    """Raised by a handler: this attempt failed, try again after so many seconds, or when the backoff says."""

    def __init__(self, message: str = "the handler asked for a retry", *, after: float | None = None) -> None:
        if after is not None and not 0 <= after < float("inf"):
            raise ValueError(f"Retry(after={after}) is not a time to wait; use seconds, 0 or more")
        super().__init__(message)
        self.after = after


class Reject(FairleadError):
    """Raised by a handler: trying again cannot help, so the task fails at once."""

    def __init__(self, message: str = "the handler rejected the task") -> None:
        super().__init__(message)


class StoreError(FairleadError):
    """The store could not do what was asked."""


class StoreUnavailable(StoreError):
    """The store is out of reach or too slow: whether it happened is unknown.

    Repeating is safe, but a submit that is repeated makes a second task unless it has an idempotency key.
    """


class StoreFull(StoreError):
    """No space left: nothing of the call was stored."""


class StoreReadOnly(StoreError):
    """The store cannot be written: nothing of the call was stored."""


class StoreRefused(StoreError):
    """A server does not let this caller do it: there is no key, a wrong one, or one without the role."""


class StoreMismatch(StoreError):
    """What is at this address is not a fairlead store, is damaged, or is of another version."""
