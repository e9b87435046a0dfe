"""Deciding, storing what was decided, and telling of it: what every use case does."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence

from fairlead.core.errors import ForeignTask
from fairlead.core.events import AlarmRang, Event, Replayed
from fairlead.core.identity import TaskId
from fairlead.core.instant import AT_ONCE, Instant
from fairlead.core.lifecycle import decide
from fairlead.core.queues.order import effective_priority
from fairlead.core.settings import Settings
from fairlead.core.task import Status, Task
from fairlead.engine import dependencies
from fairlead.engine.circuit_breaker import Breakers
from fairlead.engine.events.feed import Publisher
from fairlead.engine.events.types import Happening, Observer, Occurrence, Watcher, happening_of
from fairlead.engine.metrics.throughput import Promotions, ThroughputMeter
from fairlead.engine.queue_cache import QueueCache
from fairlead.engine.records import Records
from fairlead.engine.runtime.clock import Clock
from fairlead.engine.runtime.event_loop import Batcher, PlacedBatcher
from fairlead.engine.runtime.ids import Chance
from fairlead.storage.protocol import Placed
from fairlead.storage.values import (
    APPLIED,
    RELEASED,
    Added,
    Change,
    Claim,
    Full,
    Guard,
    Missing,
    Receipt,
    Seen,
    Verdict,
)


class TaskChanges:
    """The one place where a decision meets the store and the observers."""

    def __init__(
        self,
        records: Records,
        settings: Settings,
        clock: Clock,
        chance: Chance,
        observers: Sequence[Observer],
        publisher: Publisher,
        queue_cache: QueueCache,
        breakers: Breakers,
        *,
        batching: bool,
    ) -> None:
        self.records = records
        self.store = records.store
        self.settings = settings
        self.clock = clock
        self.watchers = tuple(observer for observer in observers if isinstance(observer, Watcher))
        self.observers = tuple(observer for observer in observers if not isinstance(observer, Watcher))
        """Replaced, never changed: another thread may be telling them of something."""
        self.publisher = publisher
        self.queue_cache = queue_cache
        self.breakers = breakers
        self.meter = ThroughputMeter()
        self.promotions = Promotions(records)
        self.listed: set[TaskId] = set()
        """Tasks on their way to the store whose submitters are on the allow list."""
        self.released = False
        """Whether there may be tasks that have nothing left to wait for, and whose alarm is to be answered."""
        self._luck = random.Random(chance.getrandbits(64))  # noqa: S311 - spreads retries, guards nothing
        self.add: Callable[[Sequence[Task]], Awaitable[Sequence[Receipt]]] = self._add
        self.apply: Callable[[Sequence[Change]], Awaitable[Sequence[Verdict]]] = self._apply
        if batching:
            if isinstance(self.store, Placed) and self.store.spread:
                place_of = self.store.place_of
                self.add = PlacedBatcher(self._add, lambda task: place_of(task.id)).answers
                self.apply = PlacedBatcher(self._apply, lambda change: place_of(change.id)).answers
            else:
                self.add = Batcher(self._add).answers
                self.apply = Batcher(self._apply).answers

    def decide(self, task: Task, event: Event, now: Instant, guard: Guard) -> Change:
        """The change that an event makes to a task; none is replayed into a queue that is bound to another tenant."""
        if type(event) is Replayed and self.queue_cache.is_foreign(task):
            raise ForeignTask(task.id, task.state, task.spec.queue)
        luck = 2.0 * self._luck.random() - 1.0
        return Change(task.spec.id, guard, decide(task, event, now, rules=self.settings.rules, luck=luck))

    def tell(self, tasks: Sequence[Task], at: Instant) -> None:
        """Say that tasks have come to their states."""
        if not tasks:
            return
        for watcher in self.watchers:
            watcher.moved(tasks, at)
        if self.observers or self.publisher.wanted(at):
            for task in tasks:
                self._announce(Occurrence(happening_of(task), at, task))

    def tell_settled(self, tasks: Sequence[Task], at: Instant) -> None:
        """Say how tasks have come out of their attempts, and count them."""
        self.meter.count(tasks, at)
        self.tell(tasks, at)

    def tell_change(self, task: Task, change: Change, at: Instant) -> None:
        """Say that a change was applied to a task that stood like this."""
        if change.status is None:
            self.note(Happening.REMOVED, at, task)
        else:
            self.tell_settled([changed(task, change)], at)

    def tell_started(self, tasks: Sequence[Task], claim: Claim) -> None:
        """Say that tasks were claimed, and which of them were promoted."""
        if not tasks:
            return
        at = tasks[0].status.started_at or 0
        tables = {order.queue: order.tables for order in claim.queues}
        self.tell(tasks, at)
        wanted = self.observers or self.publisher.wanted(at)
        for task in tasks:
            status = task.status
            priority, table = status.priority, tables[task.spec.queue][0]
            steps = table[priority].steps
            if not steps or at - status.ready_at < steps[0].after:
                continue
            treated_as = effective_priority(table, priority, at - status.ready_at)
            if treated_as < priority:
                self.promotions.count(at)
                self.meter.promoted(task, at)
                for watcher in self.watchers:
                    watcher.promoted(task, treated_as, at)
                if wanted:
                    self._announce(Occurrence(Happening.PROMOTED, at, task))

    def note(self, happening: Happening, at: Instant, task: Task) -> None:
        """Say what a task's own standing does not show."""
        occurrence = Occurrence(happening, at, task)
        for watcher in self.watchers:
            watcher.noted(occurrence)
        self._announce(occurrence)

    def _announce(self, occurrence: Occurrence) -> None:
        for observer in self.observers:
            observer(occurrence)
        self.publisher(occurrence)

    @property
    def unfinished(self) -> bool:
        """Whether `finish` has anything to do; most operations leave nothing, and need not call it to learn that."""
        return self.released or self.breakers.due or self.publisher.due

    async def finish(self) -> None:
        """End an operation: let go whom it released, and publish what it told unless a task of the loop will.

        What was counted for circuits is shared before, now and then.
        """
        if self.released:
            self.released = False
            await dependencies.release(self.store, lambda tasks: self.ring(tasks, self.clock.now()))
        if self.breakers.due:
            await self.breakers.share()
        if self.publisher.due:
            await self.publisher.flush()

    async def ring(
        self, tasks: Sequence[Task], now: Instant, watched_from: Instant = AT_ONCE
    ) -> list[tuple[Task, Status | None]]:
        """Answer the alarms of these tasks; those that no one else answered meanwhile, and how each stands now."""
        rang = AlarmRang(watched_from)
        changes = [self.decide(task, rang, now, seen(task)) for task in tasks]
        answered: list[tuple[Task, Status | None]] = []
        for task, change, verdict in zip(tasks, changes, await self.apply(changes), strict=True):
            if verdict is APPLIED:
                self.tell_change(task, change, now)
                answered.append((task, change.status))
        return answered

    async def _apply(self, changes: Sequence[Change]) -> Sequence[Verdict]:
        verdicts = await self.store.apply(changes)
        if RELEASED in verdicts:
            self.released = True
            return [APPLIED if verdict is RELEASED else verdict for verdict in verdicts]
        return verdicts

    async def _add(self, tasks: Sequence[Task]) -> Sequence[Receipt]:
        """Store new tasks, and say so of those that were not there: here, where many submits have become one batch."""
        now = self.clock.now()
        if self.queue_cache.tiers:
            receipts = await self._add_by_tiers(tasks)
        else:
            bounds = self.queue_cache.bounds_of({task.spec.queue for task in tasks}) if self.queue_cache.bounded else {}
            receipts = await self.store.add(tasks, now=self.clock.given(), bounds=bounds)
        if self.watchers or self.observers or self.publisher.wanted(now):
            self.tell([task for task, receipt in zip(tasks, receipts, strict=True) if type(receipt) is Added], now)
        return receipts

    async def _add_by_tiers(self, tasks: Sequence[Task]) -> list[Receipt]:
        """Store new tasks, each held to the bound of its own tier in its queue.

        All are held to the lowest of them at first, and usually that is all. Those that met a bound below their own
        are asked for again, with what waits for them, at most once for each tier.
        """
        tiers = [self.queue_cache.tier_of(task, listed=task.id in self.listed) for task in tasks]
        receipts: list[Receipt] = []
        left = list(range(len(tasks)))
        while left:
            bounds: dict[str, int] = {}
            for at in left:
                queue, tier = tasks[at].spec.queue, tiers[at]
                if tier is not None:
                    bounds[queue] = min(tier, bounds.get(queue, tier))
            batch = [tasks[at] for at in left]
            found = await self.store.add(batch, now=self.clock.given(), bounds=bounds)
            if not receipts:
                receipts = [*found]
            again: dict[TaskId, int] = {}
            for at, receipt in zip(left, found, strict=True):
                receipts[at] = receipt
                tier = tiers[at]
                is_full = isinstance(receipt, Full) and (tier is None or receipt.bound < tier)
                if is_full or (isinstance(receipt, Missing) and receipt.named in again):
                    again[tasks[at].id] = at
            left = list(again.values())
        return receipts


def seen(task: Task) -> Seen:
    """The guard of someone who has read a task and does not hold it."""
    return Seen(task.status.version, task.status.beats)


def changed(task: Task, change: Change) -> Task:
    """The task as the change leaves it; as it stood before, if the change removes it."""
    return task if change.status is None else Task(task.spec, change.status)
