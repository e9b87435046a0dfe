"""The vocabulary of the storage contract: what goes into a store's operations and what comes out."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.identity import LeaseToken, TaskId, WorkerId
from fairlead.core.instant import Instant, Span
from fairlead.core.queues.fairness import LineTurns
from fairlead.core.queues.limits import Limits
from fairlead.core.queues.order import QueueTurns, Share, Table
from fairlead.core.queues.promotion import Place
from fairlead.core.task import Lane, Priority, Progress, State, Status, Task
from fairlead.core.validation import check_text


class Added(Struct, frozen=True, gc=False):
    """The task is stored."""


class Known(Struct, frozen=True, gc=False):
    """A task with this id was stored before; it was left as it is."""


class KeyHeld(Struct, frozen=True, gc=False):
    """The idempotency key names another task; nothing was stored."""

    holder: TaskId


class Full(Struct, frozen=True, gc=False):
    """The queue's bound is reached; nothing was stored."""

    depth: int
    bound: int


class Missing(Struct, frozen=True, gc=False):
    """The task is to wait for one that is not stored; nothing was stored."""

    named: TaskId


class Apart(Struct, frozen=True, gc=False):
    """The task is to wait for one that this store cannot count together with it; nothing was stored."""

    named: TaskId


class KeyUnknown(Struct, frozen=True, gc=False):
    """The store has lost tasks, and may have lost the holder of the idempotency key; nothing was stored."""


Receipt: TypeAlias = Added | Known | KeyHeld | Full | Missing | Apart | KeyUnknown


class QueueOrder(Struct, frozen=True):
    """A queue to claim from, the tables of its order of service and its limits."""

    queue: str
    tables: tuple[Table, ...]
    limits: Limits | None = None
    """None when nothing is limited but what concurrency keys keep apart."""
    share: Share | None = None
    """How promoted tasks and others take turns; None if they do not."""
    passed: int = 0
    """How often others were served since a promoted task was, as far as whoever claims knows."""

    @property
    def turns(self) -> QueueTurns:
        """What the order of service goes by."""
        return QueueTurns(self.tables, self.share, self.passed)


class Claim(Struct, frozen=True, kw_only=True):
    """A worker's wish for tasks."""

    queues: tuple[QueueOrder, ...]
    worker: WorkerId
    token: LeaseToken
    now: Instant | None = None
    """When it is made; None for the store's own clock, in the step that takes the tasks."""
    lease: Span
    """How long the leases last unless renewed."""
    grace: Span
    """How long past its timeout an attempt may hold its lease."""
    limit: int
    capabilities: frozenset[str] = frozenset()
    types: frozenset[str] | None = None
    """The task types the worker can run; None for any."""
    excluded_types: frozenset[str] = frozenset()
    """Task types that are not to be taken for now, whatever the worker can run."""

    @property
    def limited(self) -> bool:
        """Whether any of the queues has limits of its own."""
        return any(order.limits is not None for order in self.queues)

    def admits(self, lane: Lane) -> bool:
        """Whether the worker may take tasks of this lane, given that it serves the lane's queue."""
        if self.types is not None and lane.type not in self.types:
            return False
        if lane.type in self.excluded_types:
            return False
        return self.capabilities.issuperset(lane.requires)

    @property
    def at(self) -> Instant:
        """When it is made, of a claim that is dated."""
        if self.now is None:
            raise ValueError(f"the claim of {self.worker} is not dated: its store reads the clock first")
        return self.now

    def dated(self, now: Instant) -> Claim:
        """The claim as it is made now, unless it says when it is made."""
        return self if self.now is not None else replace(self, now=now)

    def lease_end(self, timeout: Span, now: Instant) -> Instant:
        """When the lease ends, unless renewed, on a task with this timeout that is taken now."""
        return now + min(self.lease, timeout + self.grace)


class Beat(Struct, frozen=True, gc=False):
    """One heartbeat for one leased task, with a progress report if there is one."""

    id: TaskId
    token: LeaseToken
    progress: Progress | None = None
    allowance: Span = 0
    """How much later the attempt's time began than the attempt. Not for stores: whoever calls them adds it to the
    grace."""


class Pulse(enum.StrEnum):
    """What a heartbeat learns."""

    HELD = "held"
    CANCEL = "cancel"
    """Held, and cancel was asked."""
    LOST = "lost"
    OVERDUE = "overdue"
    """Never of a store: a keeper has settled the attempt as timed out, for its worker did not."""


class Held(Struct, frozen=True, gc=False):
    """A lease holder's guard: nothing was decided since it was read, and the lease is this one."""

    version: int
    token: LeaseToken


class Seen(Struct, frozen=True, gc=False):
    """Anyone else's guard: nothing was decided and no heartbeat came since it was read."""

    version: int
    beats: int


Guard: TypeAlias = Held | Seen


class Change(Struct, frozen=True, gc=False):
    """A task is to stand like this, if the guard still holds; status None removes the task."""

    id: TaskId
    guard: Guard
    status: Status | None


class Verdict(enum.StrEnum):
    """What became of a change."""

    APPLIED = "applied"
    RELEASED = "released"
    """Applied, and with that a task that waited for this one has nothing left to wait for."""
    STALE = "stale"
    """The guard no longer holds; nothing was changed."""
    REPEATED = "repeated"
    """The same settle was applied before; nothing was changed, and nothing need be."""
    MISSING = "missing"
    """There is no such task."""


APPLIED: Final = Verdict.APPLIED
RELEASED: Final = Verdict.RELEASED
"""Names for code that every task passes through, as in `fairlead.core.task`."""


class Filter(Struct, frozen=True, kw_only=True):
    """Which tasks to list; an empty field asks for nothing in particular."""

    states: frozenset[State] = frozenset()
    queue: str | None = None
    type: str | None = None
    priority: Priority | None = None
    worker: WorkerId | None = None
    tag: str | None = None
    created_from: Instant | None = None
    created_before: Instant | None = None

    def __post_init__(self) -> None:
        # What a store cannot be asked for is found nowhere, and is an error of whoever asks.
        if self.queue is not None:
            check_text("queue", self.queue)
        if self.type is not None:
            check_text("type", self.type)

    def admits(self, task: Task) -> bool:
        """Whether the task is one of those asked for."""
        spec, status = task.spec, task.status
        return (
            (not self.states or status.state in self.states)
            and (self.queue is None or spec.queue == self.queue)
            and (self.type is None or spec.type == self.type)
            and (self.priority is None or status.priority == self.priority)
            and (self.worker is None or (status.lease is not None and status.lease.worker == self.worker))
            and (self.tag is None or self.tag in spec.tags)
            and (self.created_from is None or spec.created_at >= self.created_from)
            and (self.created_before is None or spec.created_at < self.created_before)
        )


class LaneTally(Struct, frozen=True):
    """How many tasks of a lane's queue, type, capability set and priority are in each state."""

    lane: Lane
    counts: dict[State, int]
    """Only the states that have tasks."""
    oldest_ready: Instant | None = None
    """When the wait of the lane's head began; None when nothing is queued."""


class Tally(Struct, frozen=True):
    """How the whole store stands."""

    lanes: Sequence[LaneTally]
    next_alarm: Instant | None
    journal_behind: int | None = None
    """How many changed tasks the journal has yet to learn of; None without a journal."""
    intact: bool | None = None
    """Whether the store has all that its journal knows of; None without a journal."""


class Stretch(Struct, frozen=True, gc=False):
    """A part of a lane, from one place on and before another."""

    lane: Lane
    start: Place
    end: Place
    by_turn: bool = False
    """Whether the lane is counted in the order of (turn, id), with turns for moments; only lanes of fair tasks have
    one."""


class LineKeys(Struct, frozen=True):
    """Who waits in a line, of a queue and priority, by fair keys."""

    turns: LineTurns = LineTurns()
    """How far their turns have come."""
    keys: int = 0
    """How many keys have fair tasks that wait."""
    waiting: dict[str, int] = {}
    """How many tasks of a key wait: of those that were named and have any, and of some others."""


class Used(Struct, frozen=True, gc=False):
    """What is used of a limit."""

    running: int = 0
    """How many tasks are executing that count towards it."""
    due: Instant | None = None
    """When the next start is due, as `fairlead.core.queues.limits` has it; None if there is nothing to wait for."""


class Usage(Struct, frozen=True, gc=False):
    """What is used of the limits that a task comes under."""

    queue: Used
    type: Used
    key: Used


class Record(Struct, frozen=True, kw_only=True):
    """A small versioned document: queue settings, a schedule, a worker's record, an API key."""

    kind: str
    name: str
    value: bytes
    version: int


class FeedEntry(Struct, frozen=True, gc=False):
    """A small value in the feed, and where it is there."""

    position: str
    value: bytes
