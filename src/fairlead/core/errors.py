"""Every error fairlead raises on purpose.

    FairleadError
    ├── InvalidTask             a submit that can never be stored as it is (also a ValueError)
    │   ├── PayloadTooLarge
    │   └── InvalidSchedule     a schedule that can never fire as it is
    ├── InvalidSettings         a setting that makes no sense (also a ValueError)
    │   └── BindingRefused      the queue holds tasks of others, so it cannot be bound to a tenant
    ├── QueryError              a query that cannot be read (also a ValueError)
    ├── QueueFull               the queue's bound is reached; try again later
    ├── AdmissionRefused        too much waits, or was submitted by this caller; try again later
    ├── TaskNotFound            no task has this id (also a LookupError)
    ├── KeyNotFound             no API key has this id or name (also a LookupError)
    ├── WorkerNotFound          no worker has this id (also a LookupError)
    ├── ScheduleNotFound        no schedule has this name (also a LookupError)
    ├── CircuitNotFound         no circuit is set for this task type (also a LookupError)
    ├── TypeNotFound            no worker has published this task type (also a LookupError)
    ├── ScheduleExists          a schedule with this name is there already
    ├── OperationNotFound       no operation has this id (also a LookupError)
    ├── OperationRefused        the operation cannot begin, go on or be stopped like this
    ├── NotInQuarantine         nothing of this name was set aside (also a LookupError)
    ├── RestoreRefused          what was set aside cannot go back to its place
    ├── WrongState              the task's state does not allow this
    │   └── ForeignTask         the task's queue is bound to another tenant
    ├── Forbidden               the caller's key is not for this; nothing was done
    ├── LeaseLost               the attempt no longer holds the task
    ├── TaskFailed              a result was asked for, and the task ended without one
    ├── Retry                   raised by a handler: try again, now or later
    ├── Snooze                  raised by a handler: too early, run the task again later
    ├── SoftTimeout             raised within a handler: its soft timeout has passed
    ├── Reject                  raised by a handler: trying again cannot help
    └── StoreError              the store could not do it
        ├── StoreUnavailable    out of reach or too slow: the outcome is unknown, repeating is safe
        ├── StoreFull           no space left: nothing was stored
        ├── StoreReadOnly       the store cannot be written: nothing was stored
        ├── StoreRefused        a server does not let this caller in, or do it: nothing was done
        └── StoreMismatch       not a fairlead store, damaged, or of another version
            └── RecordUnreadable    one record, which is damaged and was set aside, or is of a newer version

What handlers raise is in `fairlead.core.retry`. A message names the thing, the value and the remedy.
"""

from __future__ import annotations

from fairlead.core.secret_mask import masked_text


def shown(value: object) -> str:
    """A value as a message shows it: short, in valid Unicode, whatever its `repr` does."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    text = text if text.isascii() else text.encode(errors="backslashreplace").decode()
    return text if len(text) <= _SHOWN_LIMIT else f"{text[:_SHOWN_LIMIT]}…"


def _plain(said: object) -> str:
    """The same of an id, which needs no quotes."""
    return said if isinstance(said, str) and said.isprintable() and len(said) <= _ID_LIMIT else shown(said)


_ID_LIMIT = 200
_SHOWN_LIMIT = 250


class FairleadError(Exception):
    """The root of the tree. Whatever its message says, no password of a URL is in it."""

    def __init__(self, *said: object) -> None:
        super().__init__(*(masked_text(each) if isinstance(each, str) else each for each in said))


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


class BindingRefused(InvalidSettings):
    """The queue holds tasks of others, so it cannot be bound to this tenant. Nothing was changed."""


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


class AdmissionRefused(FairleadError):
    """The task is not taken now: too many wait, or this caller has submitted too many; nothing was stored."""

    def __init__(self, message: str, rule: str, retry_after: int) -> None:
        super().__init__(message)
        self.rule = rule
        """Which rule refuses it, as a member of `fairlead.core.queues.admission.AdmissionRule`."""
        self.retry_after = retry_after
        """In how many seconds to try again."""


class TaskNotFound(FairleadError, LookupError):
    """No task has this id: it never existed, or its retention has ended."""

    def __init__(self, task_id: str) -> None:
        super().__init__(
            f"task {_plain(task_id)} not found; the id is wrong, or the task has ended and its retention has passed"
        )
        self.task_id = task_id


class KeyNotFound(FairleadError, LookupError):
    """No API key has this id or name."""

    def __init__(self, named: str) -> None:
        super().__init__(f"key {shown(named)} not found; `fairlead keys list` shows the ids and names of all keys")
        self.named = named


class WorkerNotFound(FairleadError, LookupError):
    """No worker has this id: it never joined, has left, or was forgotten."""

    def __init__(self, worker_id: str) -> None:
        super().__init__(
            f"worker {_plain(worker_id)} not found; the id is wrong, or the worker has left and must register again"
        )
        self.worker_id = worker_id


class ScheduleNotFound(FairleadError, LookupError):
    """No schedule has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"schedule {shown(name)} not found; `fairlead schedule list` shows the names of all schedules")
        self.name = name


class CircuitNotFound(FairleadError, LookupError):
    """No circuit is set for this task type."""

    def __init__(self, task_type: str) -> None:
        super().__init__(f"task type {shown(task_type)} has no circuit breaker; `fairlead circuits set` gives it one")
        self.task_type = task_type


class TypeNotFound(FairleadError, LookupError):
    """No worker has published this task type."""

    def __init__(self, task_type: str) -> None:
        super().__init__(
            f"task type {shown(task_type)} is not published; workers publish their types when they start, and "
            f"`fairlead types list` shows them"
        )
        self.task_type = task_type


class ScheduleExists(FairleadError):
    """A schedule with this name is there already; it was left as it is."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the schedule name {shown(name)} is taken; replace that schedule, remove it, or choose another name"
        )
        self.name = name


class OperationNotFound(FairleadError, LookupError):
    """No operation has this id: it never began, or ended so long ago that it was forgotten."""

    def __init__(self, operation_id: str) -> None:
        super().__init__(f"operation {_plain(operation_id)} not found; `fairlead operations list` shows all operations")
        self.operation_id = operation_id


class OperationRefused(FairleadError):
    """The operation cannot begin, go on or be stopped like this; nothing was done."""


class NotInQuarantine(FairleadError, LookupError):
    """Nothing of this name was set aside, or somebody has restored or discarded it."""

    def __init__(self, key: object) -> None:
        super().__init__(f"record {shown(key)} not found in quarantine; `fairlead quarantine list` shows what is there")
        self.key = key


class RestoreRefused(FairleadError):
    """What was set aside cannot go back: it still cannot be decoded, or its place is taken. Nothing was done."""


class WrongState(FairleadError):
    """The task's state does not allow what was asked."""

    def __init__(self, task_id: str, state: str, event: str, allowed: tuple[str, ...]) -> None:
        wanted = " or ".join(allowed) if allowed else "no state"
        super().__init__(f"task {task_id} is {state}: {event} is possible only if it is {wanted}")
        self.task_id = task_id
        self.state = state
        self.event = event


class ForeignTask(WrongState):
    """The task's queue is bound to a tenant that is not the task's, so it cannot be queued there again."""

    def __init__(self, task_id: str, state: str, queue: str) -> None:
        FairleadError.__init__(
            self,
            f"task {task_id} does not belong to the tenant of its queue {queue!r}, so it cannot be queued there "
            f"again; submit a task like it to another queue, and discard this one",
        )
        self.task_id = task_id
        self.state = state
        self.event = "replay"


class Forbidden(FairleadError):
    """The caller's key is not for this: it is bound to a tenant, or the worker is another key's. Nothing was done."""

    def __init__(self, what: str, remedy: str, field: str | None = None, value: str | None = None) -> None:
        super().__init__(f"{what}; {remedy}")
        self.field = field
        self.value = value


class LeaseLost(FairleadError):
    """The attempt no longer holds the task, so what it says of the task is refused."""

    def __init__(
        self,
        task_id: str,
        why: str = "it ended or the task was taken over",
        remedy: str = "drop this attempt's outcome",
    ) -> None:
        super().__init__(f"the lease on task {task_id} is lost: {why}; {remedy}")
        self.task_id = task_id


class TaskFailed(FairleadError):
    """A result was asked for, and the task ended without one."""

    def __init__(self, task_id: str, state: str, reason: str, cause: str = "") -> None:
        super().__init__(f"task {task_id} ended as {state} ({reason}){f': {cause}' if cause else ''}")
        self.task_id = task_id
        self.state = state
        self.reason = reason


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

    lasting = False
    """Whether it was opened for reading only: this process will never write it, whatever it waits for."""


class StoreRefused(StoreError):
    """A server does not let this caller in or do it: no key or password, a wrong one, or one without the right.

    Nothing was done, and repeating it changes nothing.
    """


class StoreMismatch(StoreError):
    """What is at this address is not a fairlead store, is damaged, or is of another version."""


class RecordUnreadable(StoreMismatch):
    """One record cannot be read: it was damaged and set aside, or is of a newer version. Nothing was done to it."""
