"""The queues, the workers that are paused, and the time, as one engine knows them: read about once a second when used.

So a change takes effect everywhere on the first claim or submit a second after it, at the latest. One small record is
rung at every change, so that most looks cost one read; all are read now and then even if it was not rung.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from fairlead.core.errors import FairleadError, QueueFull, StoreError
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.instant import MINUTE, SECOND, Instant, Span
from fairlead.core.queues.admission import Tiers, is_listed, refusal_above
from fairlead.core.queues.fairness import FairRule
from fairlead.core.queues.limits import Limits
from fairlead.core.queues.order import Table
from fairlead.core.queues.queue import QueueSettings
from fairlead.core.settings import Settings, effective
from fairlead.core.submission import Declaration, Submission, accept, belonging, declared_options, filled
from fairlead.core.task import Lane, Task
from fairlead.engine.circuit_breaker import BELL as BELL
from fairlead.engine.circuit_breaker import Breakers
from fairlead.engine.records import Form, Records, decoder
from fairlead.engine.runtime.clock import Clock, FollowingClock

KIND: Final = "queue"
"""The kind of record that a queue's settings are."""
TYPE_KIND: Final = "type"
"""The kind of record that says of a task type that it is paused."""

WORKER_KIND: Final = "pause"
"""The kind of record that says of a worker that it is paused."""

FRESH: Final[Span] = SECOND
"""How long what was read is used without another look."""
SOON: Final[Span] = FRESH // 10
"""How long before it is due a look is taken by whoever has the time."""

_RESCAN: Final[Span] = MINUTE
"""How often all is read even if nobody rang: signals are hints."""
_NOTHING: Final[Mapping[str, Any]] = {}
_OUTAGE_PAUSE: Final[Span] = 5 * SECOND
_HUNG: Final[Span] = SECOND
"""How long a look takes at least that fails because the store hangs."""

FORM: Final = Form(kind=KIND, decode=decoder(QueueSettings), sealed=True)
"""Settings that cannot be read pause their queue: nobody knows what they said."""


DECLARATION_KIND: Final = "declaration"
"""The kind of record that says what a worker has published of a task type."""
SCHEMA_KIND: Final = "type_schema"
"""The kind of record that has the JSON schema of a published type's parameters."""
DECLARATION_FORM: Final = Form(kind=DECLARATION_KIND, decode=decoder(Declaration))


def declaration_name(task_type: str, tenant: str | None) -> str:
    """What the record is called that a type is published in for a tenant, or for all."""
    if tenant is None:
        return task_type
    import hashlib  # Whoever has no tenants needs none.

    return f"{task_type}@{hashlib.sha256(tenant.encode()).hexdigest()[:32]}"


class QueueCache:
    """The queues as one engine knows them."""

    def __init__(self, records: Records, settings: Settings, clock: Clock, breakers: Breakers) -> None:
        self._records = records
        self._store = records.store
        self._settings = settings
        self._clock = clock
        self._breakers = breakers
        self._looked_at: Span | None = None
        self._read_at: Span | None = None
        self._rung: int | None = None
        self._effective: dict[str, Settings] = {}
        self._tables: dict[str, Table] = {}
        self._table = _table(settings)
        self.paused: frozenset[str] = frozenset()
        """The queues that are paused."""
        self.unreadable: frozenset[str] = frozenset()
        """Those of them that are paused because their settings cannot be read."""
        self.paused_types: frozenset[str] = frozenset()
        """The task types that are paused, in whatever queue."""
        self.paused_workers: frozenset[str] = frozenset()
        """The ids of the workers that are paused."""
        self.limits: dict[str, Limits] = {}
        """The limits of the queues that have any of their own."""
        self.tenants: dict[str, str] = {}
        """The tenants that queues are bound to, by queue; a queue that is not here is anybody's."""
        self.tiers: dict[str, Tiers] = {}
        """From how many waiting tasks on queues take fewer, by queue; a queue that is not here has no tiers."""
        self.fair: dict[str, FairRule] = {}
        """How their tasks share queues by fair keys, by queue; in a queue that is not here nobody takes turns."""
        self._declared: dict[tuple[str | None, str], Mapping[str, Any]] = {}
        """The options that submits by name get, by tenant and task type."""
        self.looks = 0
        """How often the store was asked."""
        self._known_by = 0
        """The number of the look that what is known comes from."""
        self._expiries = 0

    @property
    def stale(self) -> bool:
        """Whether it is time to look again."""
        return self.fresh_for <= 0

    @property
    def fresh_for(self) -> Span:
        """How much longer what was read is used without another look."""
        return 0 if self._looked_at is None else self._looked_at + FRESH - self._clock.monotonic()

    async def refresh(self, ahead: Span = 0) -> None:
        """Look whether anything has changed, if that is due by then. Who comes meanwhile does not wait for it.

        While the store cannot be read, what was last known holds. Only of a store that hangs the error is raised: the
        caller would wait as long once more.
        """
        if self.fresh_for > ahead:
            return
        began, expiries = self._clock.monotonic(), self._expiries
        first = self._looked_at is None
        if not first:
            self._looked_at = self._clock.monotonic()
        try:
            await self._look()
        except StoreError:
            # What the caller is about to do meets the same error, or can be done without knowing more.
            now = self._clock.monotonic()
            if expiries == self._expiries:
                self._looked_at = now + _OUTAGE_PAUSE - FRESH
            if now - began >= _HUNG and not ahead:
                raise
        else:
            # What was changed here meanwhile may not have been read.
            if first and expiries == self._expiries:
                self._looked_at = self._clock.monotonic()

    def expire(self) -> None:
        """Have the next use read everything, whatever look is under way: something was changed here."""
        self._looked_at = self._rung = None
        self._expiries += 1

    def settings_of(self, queue: str) -> Settings:
        """The settings as they are for a queue."""
        return self._effective.get(queue, self._settings)

    def table_of(self, queue: str) -> Table:
        """How the wait of a queue's tasks counts."""
        return self._tables.get(queue, self._table)

    def accept(self, submission: Submission, task_id: TaskId, now: Instant) -> Task:
        """The task that a submission becomes by the settings of its queue, and as its queue's tenant's.

        Whatever submits comes by here: this is where a queue that is bound to a tenant takes that tenant's tasks only.
        """
        queue = submission.queue
        if self.tenants and (tenant := self.tenants.get(queue)) is not None:
            submission = belonging(submission, tenant)
        # As `settings_of` says, without the call: this is on the way of every submit.
        rule = self.fair.get(queue) if self.fair else None
        return accept(submission, task_id, now, self._effective.get(queue, self._settings), rule)

    def as_declared(self, submission: Submission) -> Submission:
        """A submission by name, with what workers have published of its type: for its tenant, or else for all."""
        declared = self._declared
        options = declared.get((submission.tenant, submission.type)) if submission.tenant is not None else None
        if options is None:
            options = declared.get((None, submission.type), _NOTHING)
        return filled(submission, options)

    def is_foreign(self, task: Task) -> bool:
        """Whether a task's queue is bound to a tenant that is not the task's: it was there a moment too soon."""
        return self.tenants.get(task.spec.queue, task.spec.tenant) != task.spec.tenant

    def queues_of(self, tenant: str) -> frozenset[str]:
        """The queues that are bound to a tenant."""
        return frozenset(queue for queue, bound in self.tenants.items() if bound == tenant)

    @property
    def bounded(self) -> bool:
        """Whether any queue may have a bound."""
        return bool(self._effective) or self._settings.queue_bound is not None

    def bounds_of(self, queues: Collection[str]) -> dict[str, int]:
        """The bounds of those queues that have one."""
        bounds = {queue: self.settings_of(queue).queue_bound for queue in queues}
        return {queue: bound for queue, bound in bounds.items() if bound is not None}

    def tier_of(self, task: Task, *, listed: bool) -> int | None:
        """How many tasks may wait in a task's queue before it is refused, by the queue's bound and tiers."""
        queue, tenant = task.spec.queue, task.spec.tenant
        bound = self.settings_of(queue).queue_bound
        tiers = self.tiers.get(queue)
        if tiers is None:
            return bound
        listed = listed or is_listed(self._settings.admission_allow, None, tenant)
        tier = tiers.bound_of(task.status.priority, listed=listed)
        return tier if bound is None else bound if tier is None else min(tier, bound)

    def full(self, task: Task, depth: int, bound: int) -> FairleadError:
        """Why a queue did not take a task that met this bound there."""
        queue = task.spec.queue
        tiers = self.tiers.get(queue)
        if tiers is not None and bound != self.settings_of(queue).queue_bound:
            refusal = refusal_above(tiers, depth, task.status.priority, listed=False, queue=queue)
            if refusal is not None:
                return refusal
        return QueueFull(queue, depth, bound)

    def withheld(self, lane: Lane) -> bool:
        """Whether the tasks of a lane wait because someone paused them, or because their type keeps failing."""
        return lane.queue in self.paused or lane.type in self.paused_types or self._breakers.holds(lane.type)

    @property
    def excluded_types(self) -> frozenset[str]:
        """The task types that are paused, or claimed only as probes."""
        withheld = self._breakers.withheld
        return self.paused_types | withheld if withheld else self.paused_types

    async def wait(self, queues: Sequence[str], timeout: float, worker: WorkerId | None = None) -> None:
        """Sleep until there may be work in one of these queues, if a worker is named for this one.

        What is paused is not listened to: its tasks would ring for nothing. So that a resume is noticed, this then
        takes no longer than what was read is fresh. Where a rate holds starts back, no ring tells when the next is due,
        and this takes no longer than about until then.
        """
        nothing = worker is not None and worker in self.paused_workers
        listening = [] if nothing else [queue for queue in queues if queue not in self.paused]
        if len(listening) < len(queues) or self.excluded_types:
            timeout = min(timeout, FRESH / SECOND)
        for queue in listening:
            limits = self.limits.get(queue)
            if limits is not None and limits.paced:
                timeout = min(timeout, limits.pause / SECOND)
        if listening:
            await self._store.wait(listening, timeout)
        else:
            await asyncio.sleep(timeout)

    async def _look(self) -> None:
        self.looks += 1
        number = self.looks
        if isinstance(self._clock, FollowingClock):
            # Who only submits sees no other sign that the store's clock was set, or that its own is slow.
            await self._clock.measure(self._store.time)
        rung = next((record.version for record in await self._store.scan(BELL)), 0)
        now = self._clock.monotonic()
        if self._read_at is not None and rung == self._rung and now - self._read_at < _RESCAN:
            return
        read = await self._records.read(FORM)
        queues = [(each.name, each.value) for each in read.kept]
        types = await self._store.scan(TYPE_KIND)
        workers = await self._store.scan(WORKER_KIND)
        declared = await self._records.read(DECLARATION_FORM)
        await self._breakers.reread()
        if number < self._known_by:
            # A look that began later has been quicker, and knows more.
            return
        self._known_by = number
        self._effective = {
            name: effective(self._settings, own) for name, own in queues if own != QueueSettings(paused=own.paused)
        }
        self._tables = {name: _table(own) for name, own in self._effective.items()}
        self.unreadable = frozenset(each.name for each in read.unread)
        self.paused = self.unreadable.union(name for name, own in queues if own.paused)
        self.paused_types = frozenset(record.name for record in types)
        self.paused_workers = frozenset(record.name for record in workers)
        self.limits = {name: limits for name, own in queues if (limits := own.limits) is not None}
        self._declared = {(each.tenant, each.submission.type): declared_options(each) for each in declared.values}
        self.tenants = {name: own.tenant for name, own in queues if own.tenant is not None}
        self.fair = {name: rule for name, own in queues if (rule := own.fair_rule) is not None}
        self.tiers = {name: tiers for name, own in queues if (tiers := own.tiers) is not None}
        self._rung, self._read_at = rung, now


def _table(settings: Settings) -> Table:
    # Luck only moves the turns of a weighted order, and no wait changes those.
    (table, *_) = settings.order.tables(1, lambda: 0.0)
    return table
