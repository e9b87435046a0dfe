"""The storage contract.

Every operation takes a batch and is atomic per task. Whole calls need not be atomic: if a call raises, some of its
tasks may be stored and repeating the call is safe. Calls may come from any number of tasks, threads and processes at
once. The conformance suite in `fairlead.testing` holds a store to each clause by its number.

Time
    T1  Where an operation takes `now`, None is the store's own clock, read in the same step that stores or finds what
        depends on it. Whatever the clocks of its users say, those who share a store share one clock.
    T2  A lease is asked for as a length. `curtail` cuts leases that would end later than `now + lease` to that, latest
        first, and their alarms with them; version and beats stay. It costs no more than what it cuts.

Adding
    A1  A stored task is returned by `get` exactly as given, byte for byte, until a change or its removal.
    A2  Adding an id that is stored is answered `Known` and changes nothing, even within one call.
    A3  A key (queue, idempotency_key) held by a stored task whose `key_until` is after `now` is answered `KeyHeld`
        with that task's id, and nothing is stored; of several concurrent adds of one key exactly one is `Added`.
    A4  A key past its `key_until`, or whose holder was removed, is free; taking it over does not touch the old holder.
    A5  With a bound for its queue, a task is answered `Full` when the queue's waiting tasks (scheduled or queued) are
        at the bound already, counting those added earlier in the same call. A2 and A3 are checked first. Concurrent
        adds never exceed a bound together. Requeued tasks are not held to the bound.
    A6  When `add` returns, what it answered `Added` is durable as the store's durability tier promises.
    A7  `holder` gives the id that A3 would answer with, None for a key that is free, and changes nothing.

Claiming
    C1  A claim takes queued tasks only, from the queues named, whose `requires` the capabilities cover and whose type
        is among `types` if given and not among `excluded_types`; never more than `limit`.
    C2  Best first: as `fairlead.core.queues.order.serve` would choose, across all queues named.
    C3  A claimed task is executing, version and attempts one higher, `started_at` = now, its lease has the claim's
        token and worker and ends at `Claim.lease_end`, and its alarm is that end. All else is unchanged.
    C4  No task is claimed by two claims, whatever runs at once.
    C5  A task the claim may not take never keeps it from one it may take.

Limits
    L1  A claim takes no task whose queue, or whose type or concurrency key in that queue, is full by the claim's
        limits: as many of it are executing as `running` says, counting what this claim has taken before it. What is
        executing counts whatever took it, and nothing else does: a place is free from the step on that ends its lease.
    L2  Nor one whose queue, type or key has a rate by which `fairlead.core.queues.limits.opens_at` is after `now`.
        Every start moves what is kept of a rate as `after_start` says, in the same step.
    L3  Among the others the order is that of C2, as if the tasks that are blocked were not there.
    L4  Without limits of its own a queue still runs at most one task of each concurrency key at once.
    L5  Limits are those of the claim: what was blocked under others, or is free by now, is taken by the next claim.
    L6  Claims never exceed a limit together, whatever runs at once.
    L7  `usage` says what L1 and L2 compare with the limits.

    A blocked key costs a claim one step, however many tasks it has, and none until it may go on. Nothing is kept of a
    key that has no tasks and no start that still counts.

Turns, of a store that is `Sharing`; `fairlead.core.queues.fairness` has their arithmetic and their words
    S1  A task that takes turns and comes to be queued, or to another priority while it is, gets a turn in the step that
        does it. If its status says turn 0, that is `entry_turn` of what its line has reached and of a `last` from the
        greatest turn of its key's tasks that wait there to the greatest that its key was given while any did, 0 if none
        does. Otherwise it is `return_turn` of what its status says. A task that stays queued at its priority keeps
        its turn whatever is said; one that takes no turns, or is not queued, has what it is given.
    S2  Turns are given in the order of the call. Calls at the same time may give one turn twice, and need not know of
        each other's, nor of claims at the same time.
    S3  In a line of which a claim may take fair tasks, C2 chooses by the oldest of all that it may take. Who is chosen
        by age is taken; otherwise `next_by_turn` of these is. L3 and C5 hold for turns, too.
    S4  `reached` and `others` of a line then are as `next_by_turn` says; by age nothing of them changes. Without fair
        tasks that wait both are 0, and nothing is kept of the line or its keys. Claims at the same time each go by what
        they know, and the greatest `reached` and `others` count.
    S5  `line_keys` gives `reached` and `others`, how many keys have waiting tasks, how many tasks those keys have that
        were named, and up to `most` others: those that have most tasks, if there are at most 1,000 keys.
    S6  F5 holds for a stretch `by_turn` of a lane of fair tasks, with (turn, id) for (ready_at, id).

    A claim and a submit cost as much with 100,000 keys as with one. Where no fair task waits, all is as if there were
    no turns, and costs what it would.

Heartbeats
    H1  `extend` moves lease end and alarm to the earlier of `now + lease` and `started_at + timeout + grace`, also to
        an earlier one; a `started_at` after `now` becomes `now`. It adds one to `beats` and leaves `version`; a
        progress report replaces the old one.
    H2  The answer is HELD; CANCEL when cancel was asked; LOST when the lease is not this one or the task is not there.
    H3  A lost lease is never resurrected: LOST changes nothing.

Changing
    G1  A change is applied if its guard holds, in one step with the comparison; the whole status is replaced.
    G2  `Held` holds if the task is executing under that token at that version. `Seen` holds if version and beats are
        as given.
    G3  A `Held` change that does not hold is REPEATED if the task's `settled` equals the change's own, else STALE.
        A `Seen` change that does not hold is STALE. A task that is not there is MISSING.
    G4  Changes to one task in one call take effect in their order.
    G5  A removed task is gone from every operation, and so is the key that it holds.

Depending
    D1  A task that is scheduled without an alarm and names others in `after` is added with `pending`, how many of those
        named have not ended, and `unmet`, how many ended other than completed, counted in one step with the add. If
        none is pending its alarm is `AT_ONCE`. A task that names one that is not stored is answered `Missing` with the
        first such; tasks added earlier in the same call are stored. `Apart` is answered for one that this store cannot
        count together with it. A2 and A3 are checked first, A5 last.
    D2  A change that is applied and takes a task into an ended state, or removes one that has not ended, counts in the
        same step for each task that waits for it: `pending` one lower, `unmet` one higher unless it completed, version
        one higher, and if none is pending its alarm is `AT_ONCE`. When one of them has nothing left to wait for after
        the call, at least one of the changes that counted for it is answered RELEASED instead of APPLIED, and none that
        did not. Nothing else of those tasks changes.
    D3  Each end counts once: neither a repeated settle, nor the removal of an ended task, nor a second end after a
        replay counts again. A task that no longer waits is not counted for.

Finding
    F1  `get` answers in the order asked, None for what is not there.
    F2  `due` gives the tasks whose alarm is at or before `now`, earliest alarm first, ids breaking ties; with `after`,
        only those beyond that (alarm, id).
    F3  `find` gives the tasks a filter admits, by id, newest first or oldest first, beyond the id `after` if given.
    F4  `tally` is exact when nothing else runs, and costs O(lanes), never O(tasks).
    F5  `count` gives, for each stretch, how many queued tasks of its lane have a (ready_at, id) from its start on and
        before its end. It is exact when nothing else runs, and reads the order of a lane, never its tasks. There need
        be no task at either end, nor such a lane. With `most`, each number is at most that, which says that there are
        so many or more, and no more entries than twice that are read for it, however many there are.

Records
    R1  `put` stores a record if the stored version is `expected` (0: no such record; None: whatever it is) and answers
        its new version, or None when it is not. `drop` removes likewise. `scan` gives all records of a kind by name.

Feed
    E1  `publish` puts values, in their order, behind all that were published before. `feed` gives the entries beyond
        the position `after`, or all that are kept if that is None, oldest first, byte for byte, at most `limit`.
    E2  Positions are strings that sort as the entries do. Who goes from one to the next misses nothing that is kept,
        whatever is published meanwhile by whomever: no entry ever appears before one that could be read.
    E3  The last `keep` entries are kept, and never many more, at most about twice as many. Publishing nothing trims the
        feed to `keep`.
    E4  A position whose entry is no longer kept, or that is none of this feed, is before all that are kept.
    E5  `feed_end` gives a position beyond which are the entries published from now on, and none from before.

Health, of a store that is `Examined`
    X1  `examine` changes nothing, names the store's durability tier, and looks at a bounded number of tasks. What it
        may not find out is a finding, not an error.

Quarantine, of a store that is `Quarantining`
    Q1  A task whose bytes cannot be decoded is set aside by the operation that meets it: its bytes are kept as a record
        of the kind `quarantine`, then it is removed in one step if they are still what was read. No operation raises
        for it, and what an operation answers is what it would without that task, up to its limit.
    Q2  Once a task is set aside nothing names it: not the tally, the alarms, the limits' counts nor any index. Its
        idempotency key is free, and for those who wait for it it has ended, other than completed (D2).
    Q3  Each task that is set aside is told to `Quarantine.observer` by the process that removed it.
    Q4  A task of a newer format (`fairlead.core.health.quarantine`) stays as it is: no operation claims, changes,
        answers or removes it. The observer is told of it once. The mark of one in a lane that does not say so is
        damage.
    Q5  `Quarantine.revive` gives the task that was set aside if its bytes can be decoded, and `add` takes it back.

Waiting
    W1  `wait` returns when a task may have become ready in one of the queues, or after `timeout` seconds. It is a hint:
        it may return early or late, never not at all. One task added to many waiters need wake only one.

Waiting, of a store that is `Prompt`
    W2  `wait_and_claim` waits as `wait` does and then claims as `claim` does, when it takes the tasks.
    W3  An empty answer says that there was nothing to take, None that it has not claimed: then the caller is to.
    W4  It may be cancelled at any time, and ends soon after. If it has taken tasks by then, it returns them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from fairlead.core.health.diagnosis import Examination, Finding
from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant, Span
from fairlead.core.settings import Rules
from fairlead.core.task import Priority, Task
from fairlead.storage.quarantine import Quarantine
from fairlead.storage.values import (
    Beat,
    Change,
    Claim,
    FeedEntry,
    Filter,
    LineKeys,
    Pulse,
    Receipt,
    Record,
    Stretch,
    Tally,
    Usage,
    Verdict,
)


class Store(Protocol):
    """Where tasks are kept. The clauses are in this module's docstring."""

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        """Store new tasks, none of them executing; a queue without a bound takes all it can hold."""
        ...

    async def holder(self, queue: str, key: str, *, now: Instant | None = None) -> TaskId | None:
        """The task that holds an idempotency key of a queue."""
        ...

    async def claim(self, claim: Claim) -> list[Task]:
        """Take the best ready tasks for a worker."""
        ...

    async def extend(
        self, beats: Sequence[Beat], *, lease: Span, grace: Span, now: Instant | None = None
    ) -> list[Pulse]:
        """Renew leases for this long, and store progress."""
        ...

    async def curtail(self, *, lease: Span, limit: int, now: Instant | None = None) -> int:
        """Cut leases that would end later than this long from now, at most so many; how many there were."""
        ...

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        """Compare and set."""
        ...

    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        """The tasks with these ids."""
        ...

    async def due(self, now: Instant | None, limit: int, after: tuple[Instant, TaskId] | None = None) -> list[Task]:
        """The tasks whose alarm has come."""
        ...

    async def find(
        self, matching: Filter, *, limit: int, newest_first: bool = True, after: TaskId | None = None
    ) -> list[Task]:
        """One page of a listing."""
        ...

    async def tally(self) -> Tally:
        """How the store stands."""
        ...

    async def count(self, stretches: Sequence[Stretch], most: int | None = None) -> list[int]:
        """How many tasks wait in stretches of lanes; counted up to `most` in each."""
        ...

    async def usage(self, queue: str, task_type: str, key: str | None) -> Usage:
        """What is used of the limits of a queue, of a task type in it, and of a concurrency key in it."""
        ...

    async def put(self, kind: str, name: str, value: bytes, *, expected: int | None = None) -> int | None:
        """Store a record."""
        ...

    async def drop(self, kind: str, name: str, *, expected: int | None = None) -> bool:
        """Remove a record; whether there was one to remove."""
        ...

    async def scan(self, kind: str) -> list[Record]:
        """All records of a kind, by name."""
        ...

    async def publish(self, values: Sequence[bytes], *, now: Instant, keep: int) -> None:
        """Put values into the feed, which all processes share. It is a view: a crash may lose what was put in last."""
        ...

    async def feed(self, after: str | None, limit: int) -> list[FeedEntry]:
        """The entries of the feed beyond a position."""
        ...

    async def feed_end(self) -> str:
        """The position from which on to read what will be published."""
        ...

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        """Sleep until there may be work."""
        ...

    async def time(self) -> Instant | None:
        """The store's own clock, when it is shared by hosts whose clocks may differ; None to use the host's."""
        ...

    async def close(self) -> None:
        """Give everything back; the store is not used afterwards."""
        ...


@runtime_checkable
class Upkept(Protocol):
    """A store that has duties of its own beside its operations."""

    async def upkeep(self, rules: Rules) -> None:
        """Do them until cancelled; a store that fails is tried again, not raised about."""
        ...


@runtime_checkable
class Prompt(Protocol):
    """A store that can claim in the moment in which a waiter would be woken."""

    async def wait_and_claim(self, claim: Claim, timeout: float) -> list[Task] | None:
        """Sleep until there may be work, and take it."""
        ...


@runtime_checkable
class Sharing(Protocol):
    """A store that gives turns to fair tasks, so that the keys of a line share it."""

    async def line_keys(self, queue: str, priority: Priority, *, named: Sequence[str] = (), most: int = 0) -> LineKeys:
        """How far the turns of a line have come, and which keys have how many tasks waiting in it."""
        ...


@runtime_checkable
class Clocked(Protocol):
    """A store whose servers have a clock each, and may be restarted, or replaced by others."""

    async def clocks(self) -> dict[str, Instant]:
        """What the clocks show, by a name for each run of each server; a server that does not answer is left out."""
        ...


@runtime_checkable
class OneWriter(Protocol):
    """A store that one process at a time may write to."""

    def writer(self) -> int | None:
        """The process that is writing now; None if none is, or if the system does not tell."""
        ...


@runtime_checkable
class Lagging(Protocol):
    """A store whose listings and tally may lag behind its tasks, or not know all of them."""

    async def find_current(
        self, matching: Filter, *, limit: int, newest_first: bool = True, after: TaskId | None = None
    ) -> list[Task]:
        """One page of a listing that does not lag; it costs more."""
        ...

    async def find_leased(
        self, matching: Filter, *, limit: int, newest_first: bool = True, after: TaskId | None = None
    ) -> list[Task]:
        """One page of the executing tasks, from where their leases are kept: it needs nothing else of the store."""
        ...


@runtime_checkable
class Journaled(Protocol):
    """A store with a journal, which knows what it should have."""

    async def loss(self) -> str | None:
        """What it has lost, or why it must not be used; None when nothing is known to be wrong."""
        ...


@runtime_checkable
class Examined(Protocol):
    """A store that knows more of its own health than its operations tell."""

    async def examine(self) -> Examination:
        """Its durability tier, and what was found in its settings and indexes."""
        ...


@runtime_checkable
class OnDisk(Protocol):
    """A store in files of this host."""

    def privacy(self) -> Finding:
        """Whether any other user may open them; raises OSError if that cannot be told."""
        ...


@runtime_checkable
class Placed(Protocol):
    """A store whose tasks may be in several places, each of which may keep its callers waiting."""

    spread: bool
    """Whether there are several places."""

    def place_of(self, task_id: TaskId) -> int:
        """The place of a task."""
        ...


@runtime_checkable
class Quarantining(Protocol):
    """A store that sets aside what it cannot decode."""

    quarantine: Quarantine
