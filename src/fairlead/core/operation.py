"""Operations: one action on all tasks that a query means, done in batches, and what is kept of it.

An operation is one record. It says what is wanted, how far it is, and which tasks the current batch is: whoever takes
it over after a crash looks at those first, so that nothing is done twice or left out, and nothing counted wrongly.
"""

from __future__ import annotations

import enum
from typing import Final, assert_never

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import OperationRefused
from fairlead.core.events import CancelAsked, Discarded, Prioritized, Replayed
from fairlead.core.identity import TaskId
from fairlead.core.instant import DAY, LATEST, SECOND, Instant, Span
from fairlead.core.query.query import Query, states_of
from fairlead.core.task import WAITING, Priority, Reason, State, Task
from fairlead.core.validation import check_count, check_flag, check_instant, check_number

KEPT: Final[Span] = 30 * DAY
"""How long an operation is kept after it has ended, or was last touched while it is paused."""
LEASE: Final[Span] = 15 * SECOND
"""How long a process works on an operation without a word before another may take over."""
BATCH: Final = 500
"""How many tasks one batch has at most."""


class Action(enum.StrEnum):
    """What is done to each task."""

    REPLAY = "replay"
    DISCARD = "discard"
    CANCEL = "cancel"
    PRIORITIZE = "prioritize"

    @property
    def states(self) -> frozenset[State]:
        """The states in which it can be done."""
        match self:
            case Action.REPLAY:
                return frozenset({State.FAILED, State.DEAD_LETTER, State.CANCELLED})
            case Action.DISCARD:
                return frozenset({State.FAILED, State.DEAD_LETTER, State.CANCELLED, State.COMPLETED})
            case Action.CANCEL:
                return frozenset({State.SCHEDULED, State.QUEUED, State.EXECUTING})
            case Action.PRIORITIZE:
                return WAITING
            case _:
                assert_never(self)


class Stage(enum.StrEnum):
    """Where an operation is in its life."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    DONE = "done"

    @property
    def active(self) -> bool:
        """Whether someone should work on it."""
        return self in (Stage.PENDING, Stage.RUNNING)

    @property
    def ended(self) -> bool:
        """Whether nothing more becomes of it."""
        return self in (Stage.CANCELLED, Stage.DONE)


class Batch(Struct, frozen=True, array_like=True):
    """What is being done, or was when the process died: tasks and the versions they were seen at."""

    tasks: tuple[tuple[TaskId, int], ...]
    cursor: TaskId | None
    """Where to go on after them; None when they are the last."""


class Operation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One action on many tasks."""

    id: str
    action: Action
    query: str
    as_of: Instant
    """Tasks are meant as they stood at this moment: later ones, and what ended later, are left alone."""
    created_at: Instant
    expected: int
    """How many there were at the beginning."""
    exact: bool = True
    """Whether there were no more: counting ends after very many."""
    who: str = ""
    """Who began it."""
    tenant: str | None = None
    """The only tenant whose tasks it may touch."""
    priority: Priority | None = None
    """The priority that replayed tasks are queued with instead of their own, or that waiting tasks are given."""
    reset_retries: bool = True
    rate: float | None = None
    """How many tasks a second at most."""
    canary: int | None = None
    """After how many tasks it stops and waits to be resumed."""
    stage: Stage = Stage.PENDING
    note: str = ""
    """Why it is paused or cancelled."""
    started_at: Instant | None = None
    touched_at: Instant = 0
    """When it last moved."""
    ended_at: Instant | None = None
    cursor: TaskId | None = None
    """The last task that was looked at."""
    done: int = 0
    skipped: int = 0
    """Tasks that no longer matched when their turn came."""
    failed: int = 0
    """Tasks that could not be changed because others kept changing them."""
    batch: Batch | None = None
    holder: str | None = None
    """The process that works on it."""
    held_until: Instant = 0
    credit: float = 1.0
    """How many tasks the rate allowed at the moment `credit_at`."""
    credit_at: Instant | None = None

    @property
    def event(self) -> Replayed | Discarded | CancelAsked | Prioritized:
        """What happens to each task."""
        match self.action:
            case Action.REPLAY:
                return Replayed(reset_retries=self.reset_retries, priority=self.priority)
            case Action.DISCARD:
                return Discarded()
            case Action.CANCEL:
                return CancelAsked()
            case Action.PRIORITIZE:
                assert self.priority is not None, "check refuses an operation that does not say which"  # noqa: S101
                return Prioritized(self.priority)
            case _:
                assert_never(self.action)

    def held(self, now: Instant) -> bool:
        """Whether a process works on it, as far as is known."""
        return self.holder is not None and 0 < self.held_until - now <= 2 * LEASE

    def stands(self, task: Task) -> bool:
        """Whether a task stands as it did at `as_of`, as far as that can be told, and can be acted on."""
        spec, status = task.spec, task.status
        if status.state not in self.action.states or spec.created_at > self.as_of:
            return False
        if self.action is Action.CANCEL:
            return not status.cancel_asked and not _since(task, Reason.REPLAYED, self.as_of)
        if self.action is Action.PRIORITIZE:
            return status.priority is not self.priority and not _since(task, Reason.REPLAYED, self.as_of)
        return status.ended_at is None or status.ended_at <= self.as_of

    def was_done(self, task: Task | None) -> bool:
        """Whether a task of a batch that was begun looks as if it had been acted on."""
        match self.action:
            case Action.DISCARD:
                return task is None
            case Action.REPLAY:
                return task is not None and _since(task, Reason.REPLAYED, self.created_at - 1)
            case Action.CANCEL:
                return task is not None and (task.status.cancel_asked or task.state is State.CANCELLED)
            case Action.PRIORITIZE:
                return task is not None and _since(task, Reason.PRIORITIZED, self.created_at - 1)
            case _:
                assert_never(self.action)

    def allowance(self, now: Instant) -> int:
        """How many tasks may be acted on now."""
        allowed = BATCH if self.rate is None else min(BATCH, int(self._credit(now)))
        return allowed if self.canary is None else min(allowed, self.canary - self.done)

    def spent(self, count: int, now: Instant) -> Operation:
        """The operation after so many tasks were acted on, as far as its rate goes."""
        if self.rate is None:
            return self
        return replace(self, credit=self._credit(now) - count, credit_at=now)

    def pause(self, now: Instant) -> Span:
        """How long to wait until the rate allows more; not for one task each if it allows many."""
        if self.rate is None:
            return 0
        return max(SECOND // 10, min(SECOND, round((1.0 - self._credit(now)) / self.rate * SECOND)))

    def _credit(self, now: Instant) -> float:
        """A second's worth at most: whoever was away for long must not make up for it at once."""
        rate = self.rate or 0.0
        since = 0 if self.credit_at is None else max(now - self.credit_at, 0)
        return min(self.credit + rate * since / SECOND, max(rate, 1.0))


def check(action: Action, query: Query, rate: float | None, canary: int | None, priority: Priority | None) -> None:
    """Raise OperationRefused for what makes no sense, and InvalidTask for what is not of its type."""
    if not query.terms:
        raise OperationRefused(f"an empty query would {action} everything; say what, such as state:dead_letter")
    states = action.states
    for term in query.terms:
        if term.field == "state":
            states &= states_of(term)
    if not states:
        able = ", ".join(sorted(action.states))
        raise OperationRefused(f"the query asks for states that {action} is not for; it needs one of {able}")
    if rate is not None:
        check_number("rate", rate, 0.001, 1e6, _refused)
    if canary is not None:
        check_count("canary", canary, 1, LATEST, _refused)
    if priority is not None and action not in (Action.REPLAY, Action.PRIORITIZE):
        raise OperationRefused(f"{action} cannot change the priority; only replay and prioritize can")
    if priority is None and action is Action.PRIORITIZE:
        raise OperationRefused("prioritize needs the new priority; use critical, high, medium or low")


def _refused(name: str, message: str) -> OperationRefused:
    del name
    return OperationRefused(message)


def begun(operation: Operation, count: int, *, exact: bool) -> Operation:
    """The operation as it is first stored; with nothing to do, it is done."""
    if count or not exact:
        return replace(operation, expected=count, exact=exact)
    return replace(operation, stage=Stage.DONE, started_at=operation.created_at, ended_at=operation.created_at)


def paused(operation: Operation, note: str, now: Instant) -> Operation:
    """The operation, stopped until it is resumed; what is being done at this moment is still done."""
    if operation.stage.ended:
        raise _ended(operation, "paused")
    return replace(operation, stage=Stage.PAUSED, note=note, touched_at=now)


def resumed(operation: Operation, now: Instant) -> Operation:
    """The operation, going on from where it was; a canary has then been approved."""
    if operation.stage.ended:
        raise _ended(operation, "resumed")
    if operation.stage.active:
        return operation
    # Whoever held it takes it anew, or another does: a batch under way is then looked at again.
    return replace(operation, stage=Stage.PENDING, note="", canary=None, holder=None, touched_at=now)


def cancelled(operation: Operation, note: str, now: Instant) -> Operation:
    """The operation, ended before its time; what is done stays done."""
    if operation.stage is Stage.CANCELLED:
        return operation
    if operation.stage.ended:
        raise _ended(operation, "cancelled")
    return replace(operation, stage=Stage.CANCELLED, note=note, touched_at=now, ended_at=now)


def settled(operation: Operation, done: int, skipped: int, failed: int, now: Instant) -> Operation:
    """The operation after its batch was done with these counts."""
    batch = operation.batch
    last = batch is not None and batch.cursor is None
    after = replace(
        operation,
        batch=None,
        cursor=operation.cursor if batch is None or last else batch.cursor,
        done=operation.done + done,
        skipped=operation.skipped + skipped,
        failed=operation.failed + failed,
        touched_at=now,
    )
    if last and not after.stage.ended:
        return replace(after, stage=Stage.DONE, note="", ended_at=now, holder=None)
    if after.stage.active and after.canary is not None and after.done >= after.canary:
        note = f"the canary of {after.canary:,} is done; resume to go on"
        return replace(after, stage=Stage.PAUSED, note=note, holder=None)
    return after if after.stage.active else replace(after, holder=None)


def _ended(operation: Operation, what: str) -> OperationRefused:
    return OperationRefused(f"operation {operation.id} is {operation.stage}, so it cannot be {what}; begin a new one")


def _since(task: Task, reason: Reason, moment: Instant) -> bool:
    """Whether this happened to the task after the moment."""
    return any(entry.reason is reason and entry.at > moment for entry in task.status.history)


class NewOperation(Struct, frozen=True, kw_only=True):
    """An operation that someone wants."""

    action: Action
    query: Query
    as_of: Instant | None = None
    """Tasks are meant as they stood at this moment; None for now."""
    expected: int | None = None
    """How many the person saw: if there are not so many, nothing is done."""
    rate: float | None = None
    canary: int | None = None
    priority: Priority | None = None
    reset_retries: bool = True
    who: str = ""
    tenant: str | None = None


def check_new(wish: NewOperation) -> None:
    """Raise OperationRefused for a wish that makes no sense, and InvalidTask for what is not of its type."""
    check(wish.action, wish.query, wish.rate, wish.canary, wish.priority)
    if wish.as_of is not None:
        check_instant("as_of", wish.as_of)
    if wish.expected is not None:
        check_count("expected", wish.expected, 0, LATEST)
    check_flag("reset_retries", wish.reset_retries)


class Preview(Struct, frozen=True, kw_only=True):
    """What an operation would act on."""

    as_of: Instant
    count: int
    exact: bool = True
    """Whether there are no more: counting ends after very many."""
    sample: list[Task]
    """The oldest of them."""
