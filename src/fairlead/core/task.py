"""The values: what a task is and how it stands.

A task is a `Spec`, written once, and a `Status`, which holds everything that is ever rewritten. Both are arrays when
encoded: add fields at the end, with a default, and old records stay readable. None can be part of a cycle, so the
garbage collector is told not to look at them: a million waiting tasks must not slow down the thousandth.
"""

from __future__ import annotations

import enum
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from fairlead.core.errors import InvalidTask
from fairlead.core.identity import LeaseToken, TaskId, WorkerId, trace_id_of
from fairlead.core.instant import Instant, Span
from fairlead.core.retry import Backoff, RetryRules
from fairlead.core.secret_mask import masked_text
from fairlead.core.tenancy import key_in
from fairlead.core.validation import shown

PriorityWord: TypeAlias = Literal["critical", "high", "medium", "low", "normal"]
"""A priority as users write it."""


class Priority(enum.IntEnum):
    """How urgent a task is, the most urgent first."""

    CRITICAL = 0
    HIGH = 1
    MEDIUM = 2
    LOW = 3

    @property
    def word(self) -> str:
        """The priority as users write it."""
        return _WORDS[self]

    @classmethod
    def parse(cls, word: str | Priority) -> Priority:
        """The priority a user named; `normal` is another word for medium."""
        if type(word) is str and (found := _PRIORITY_WORDS.get(word)) is not None:
            return found
        if type(word) is cls:
            return word
        valid = ", ".join(priority.word for priority in cls)
        raise InvalidTask("priority", f"priority {shown(word)} is unknown; use one of {valid}")


PRIORITIES: Final = tuple(Priority)
"""All of them, for code that is run often: Python takes longer to go through an enum."""
_WORDS: Final = tuple(priority.name.lower() for priority in Priority)
_PRIORITY_WORDS: Final = {"normal": Priority.MEDIUM} | {priority.word: priority for priority in Priority}


class State(enum.StrEnum):
    """Where a task is in its life."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    EXECUTING = "executing"
    COMPLETED = "completed"
    FAILED = "failed"
    DEAD_LETTER = "dead_letter"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing more happens to the task by itself, but for being forgotten."""
        return self in ENDED

    @property
    def waiting(self) -> bool:
        """Whether the task counts towards its queue's bound."""
        return self in WAITING


QUEUED: Final = State.QUEUED
EXECUTING: Final = State.EXECUTING
COMPLETED: Final = State.COMPLETED
"""Names for code that every task passes through: Python 3.11 takes 0.2 µs to find a member by its class."""

ENDED: Final = frozenset({State.COMPLETED, State.FAILED, State.DEAD_LETTER, State.CANCELLED})
WAITING: Final = frozenset({State.SCHEDULED, State.QUEUED})


class Reason(enum.StrEnum):
    """Why a task came to its state."""

    SUBMITTED = "submitted"
    DUE = "due"
    COMPLETED = "completed"
    FAILED = "failed"
    REJECTED = "rejected"
    REJECTED_BY_RULE = "rejected_by_rule"
    TIMED_OUT = "timed_out"
    WORKER_LOST = "worker_lost"
    CRASHED = "crashed"
    HANDED_BACK = "handed_back"
    CANCEL_ASKED = "cancel_asked"
    CANCELLED = "cancelled"
    REPLAYED = "replayed"
    PRIORITIZED = "prioritized"
    RETRIES_USED_UP = "retries_used_up"
    RULE_USED_UP = "rule_used_up"
    """The retries that a rule allows for this error are used up."""
    CRASH_LOOP = "crash_loop"
    DEPENDENT = "dependent"
    """Submitted, to run after other tasks."""
    RELEASED = "released"
    """All it waited for has ended."""
    DEPENDENCY_FAILED = "dependency_failed"
    """What it waited for has ended, and not all of it completed."""


_TYPE_LIMIT: Final = 200
_MESSAGE_LIMIT: Final = 2_000
_TRACEBACK_LIMIT: Final = 16_000


def _storable(text: str, limit: int, *, end: bool = False) -> str:
    """Valid Unicode, cut to the limit; a traceback is worth most at its end.

    It may be of a class derived from `str`, whose own methods are not asked.
    """
    text = str.__str__(text)
    if len(text) > limit:
        text = f"…{text[-limit:]}" if end else f"{text[:limit]}…"
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


class Failure(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """What went wrong in an attempt."""

    type: str
    message: str = ""
    traceback: str | None = None

    def storable(self) -> Failure:
        """The same in valid Unicode, of bounded size and without passwords: an error's words come from anywhere."""
        return Failure(
            type=_storable(self.type, _TYPE_LIMIT),
            message=_storable(masked_text(self.message), _MESSAGE_LIMIT),
            traceback=None
            if self.traceback is None
            else _storable(masked_text(self.traceback), _TRACEBACK_LIMIT, end=True),
        )


class Lease(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """The right of one worker to run one task until a moment."""

    token: LeaseToken
    """New at every claim and never used again: the fence that every write of the worker must show."""
    worker: WorkerId
    until: Instant


class Progress(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """The progress that a worker has reported."""

    percent: float
    message: str = ""
    at: Instant = 0

    def dated(self, now: Instant) -> Progress:
        """The same as said at this moment, in valid Unicode and of bounded size."""
        return Progress(percent=self.percent, message=_storable(self.message, _MESSAGE_LIMIT), at=now)


class Entry(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """One line of a task's history: a decision, and the attempt it ended if it ended one."""

    at: Instant
    state: State
    reason: Reason
    attempt: int = 0
    worker: WorkerId | None = None
    started_at: Instant | None = None
    failure: Failure | None = None


class OnFailure(enum.StrEnum):
    """What becomes of a task when one that it waits for ends other than completed."""

    CANCEL = "cancel"
    RUN_ANYWAY = "run_anyway"
    RUN_ONLY_THEN = "run_only_then"
    """Run it, and cancel it when all of them have completed."""


class After(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """What a task waits for."""

    tasks: tuple[TaskId, ...]
    """The tasks that must have ended first, distinct."""
    on_failure: OnFailure = OnFailure.CANCEL
    """As every process knows it; `rule` says what it is."""
    only_then: bool = False
    """Whether it runs only if one of them ended other than completed."""

    @property
    def rule(self) -> OnFailure:
        """What becomes of the task when one of them ends other than completed."""
        return OnFailure.RUN_ONLY_THEN if self.only_then else self.on_failure


def after_of(tasks: tuple[TaskId, ...], rule: OnFailure) -> After:
    """What is kept of tasks that are waited for, so that processes of an earlier version can read it."""
    if rule is OnFailure.RUN_ONLY_THEN:
        return After(tasks=tasks, on_failure=OnFailure.RUN_ANYWAY, only_then=True)
    return After(tasks=tasks, on_failure=rule)


class OwnRetention(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """How long a task is kept once it has ended, where it says so itself; None is as the settings say."""

    completed: Span | None = None
    cancelled: Span | None = None
    failed: Span | None = None
    dead_letter: Span | None = None

    def of(self, state: State) -> Span | None:
        """How long it is kept that ended in this state."""
        found: Span | None = getattr(self, state.value)
        return found


class Fair(Struct, frozen=True, array_like=True, gc=False):
    """Whose turns a task takes, and how far apart they are (`fairlead.core.queues.fairness`)."""

    key: str
    """The fair key: tasks that have one share their line with those of other keys, turn by turn."""
    step: int = 5_040
    """How far apart the turns of its key are, by the key's weight when it was submitted."""


class Spec(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """What was asked for. Never rewritten."""

    id: TaskId
    queue: str
    type: str
    parameters: bytes
    """A JSON object, as the submitter wrote it: never decoded or re-encoded on its way to the handler."""
    requires: tuple[str, ...] = ()
    """Capabilities a worker must have, sorted and distinct."""
    created_at: Instant
    timeout: Span
    max_retries: int
    max_crashes: int
    backoff: Backoff | RetryRules = Backoff()
    """One for all errors, or rules by error: in one field, so that tasks without rules store nothing for them."""
    idempotency_key: str | None = None
    """By the name that the store knows it by, in the scope of the tenant (`fairlead.core.tenancy`)."""
    key_until: Instant | None = None
    """Until when the idempotency key answers with this task."""
    tenant: str | None = None
    tags: tuple[str, ...] = ()
    trace: str | None = None
    """The W3C traceparent of the submit."""
    concurrency_key: str | None = None
    """Tasks of one queue that share it run one at a time, or as many at once as the queue says."""
    after: After | None = None
    """What the task waits for, if it waits for others."""
    fair: Fair | None = None
    """Whose turns it takes; None if it shares those of all tasks that have no fair key."""
    expires: Span | None = None
    """How long after it was due it may still be started."""
    retention: OwnRetention | None = None
    """How long it is kept once it has ended, if it says so itself."""

    @property
    def takes_turns(self) -> bool:
        """Whether it takes turns of its own: tasks with a concurrency key share those of all without a fair key."""
        return self.fair is not None and self.concurrency_key is None

    @property
    def fair_key(self) -> str | None:
        """The key whose turns it takes."""
        return None if self.fair is None else self.fair.key

    @property
    def key(self) -> str | None:
        """The idempotency key as it was given."""
        return None if self.idempotency_key is None else key_in(self.idempotency_key)

    @property
    def trace_id(self) -> str:
        """The id of its trace: the one in its traceparent, the one that its submitter gave, or else its own id."""
        return trace_id_of(self.trace) or self.id


class Status(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """How a task stands: all that is ever rewritten."""

    state: State
    priority: Priority
    ready_at: Instant
    """When its wait began or will begin; the order of service counts from here."""
    timeout: Span
    """How long the current or next attempt may take."""
    version: int = 1
    """One more with every claim and every decision."""
    beats: int = 0
    """One more with every heartbeat or progress report of a lease holder."""
    attempts: int = 0
    """Claims so far. Never reset: a number downstream systems can fence on."""
    retries: int = 0
    crashes: int = 0
    alarm: Instant | None = None
    """When the task next needs attention: due, lease end or retention end."""
    lease: Lease | None = None
    started_at: Instant | None = None
    ended_at: Instant | None = None
    cancel_asked: bool = False
    reason: Reason = Reason.SUBMITTED
    failure: Failure | None = None
    result: bytes | None = None
    """A JSON value, as the handler's worker wrote it."""
    progress: Progress | None = None
    settled: str | None = None
    """What the last lease holder said, so that saying it again is recognised."""
    history: tuple[Entry, ...] = ()
    pending: int = 0
    """How many of the tasks that it waits for have not ended. The store counts."""
    unmet: int = 0
    """How many of them ended other than completed."""
    turn: int = 0
    """Its turn in its line since it was last queued, given by the store; 0 before that, and for who takes none."""
    expires_at: Instant | None = None
    """After this moment it is not started any more."""

    @property
    def waits(self) -> bool:
        """Whether the task waits for others to end: nothing else is scheduled without a moment."""
        return self.state is State.SCHEDULED and self.alarm is None


class Task(Struct, frozen=True, gc=False):
    """One unit of work."""

    spec: Spec
    status: Status

    @property
    def id(self) -> TaskId:
        return self.spec.id

    @property
    def state(self) -> State:
        return self.status.state

    @property
    def lane(self) -> Lane:
        """The lane the task waits in when it is ready."""
        spec = self.spec
        priority, keyed = self.status.priority, spec.concurrency_key is not None
        return Lane(spec.queue, spec.type, spec.requires, priority, keyed, spec.fair is not None and not keyed)


class Lane(Struct, frozen=True, order=True, gc=False, cache_hash=True):
    """The ready tasks of one queue, type, capability set and priority: first in, first out."""

    queue: str
    type: str
    requires: tuple[str, ...]
    priority: Priority
    keyed: bool = False
    """Whether its tasks have concurrency keys; the others are in a lane of their own, which need not look at keys."""
    fair: bool = False
    """Whether its tasks take turns by their fair keys; the others are in a lane of their own, which has no turns."""
