"""Deciding, storing what was decided, and telling of it: what every use case does."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from fairlead.core.events import AlarmRang, Event
from fairlead.core.instant import AT_ONCE, Instant
from fairlead.core.lifecycle import decide
from fairlead.core.order import effective_priority
from fairlead.core.settings import Settings
from fairlead.core.task import Status, Task
from fairlead.engine.batching import Batcher
from fairlead.engine.book import QueueBook
from fairlead.engine.breakers import Breakers
from fairlead.engine.clock import Clock
from fairlead.engine.feeding import Publisher
from fairlead.engine.identity import Chance
from fairlead.engine.metering import Meter
from fairlead.engine.observe import Happening, Observer, Occurrence, Watcher, happening_of
from fairlead.engine.promotions import Promotions
from fairlead.storage.protocol import Store
from fairlead.storage.values import APPLIED, RELEASED, Added, Change, Claim, Guard, Receipt, Seen, Verdict

_BATCH: Final = 1_000
_ROUNDS: Final = 100
"""How far one call follows a chain whose tasks end one after the other by being cancelled. The sweep does the rest."""


class Ledger:
    """The one place where a decision meets the store and the observers."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Clock,
        chance: Chance,
        observers: Sequence[Observer],
        publisher: Publisher,
        book: QueueBook,
        breakers: Breakers,
        *,
        batching: bool,
    ) -> None:
        self.store = store
        self.settings = settings
        self.clock = clock
        self.watchers = tuple(observer for observer in observers if isinstance(observer, Watcher))
        self.observers = tuple(observer for observer in observers if not isinstance(observer, Watcher))
        """Replaced, never changed: another thread may be telling them of something."""
        self.publisher = publisher
        self.book = book
        self.breakers = breakers
        self.meter = Meter()
        self.promotions = Promotions(store)
        self.released = False
        """Whether there may be tasks that have nothing left to wait for, and whose alarm is to be answered."""
        self._luck = random.Random(chance.getrandbits(64))  # noqa: S311 - spreads retries, guards nothing
        self.add: Callable[[Sequence[Task]], Awaitable[Sequence[Receipt]]] = self._add
        self.apply: Callable[[Sequence[Change]], Awaitable[Sequence[Verdict]]] = self._apply
        if batching:
            self.add = Batcher(self._add).answers
            self.apply = Batcher(self._apply).answers

    def decide(self, task: Task, event: Event, now: Instant, guard: Guard) -> Change:
        """The change that an event makes to a task."""
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
        at = tasks[0].status.started_at or claim.now
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
            await self._let_go()
        if self.breakers.due:
            await self.breakers.share()
        if self.publisher.due:
            await self.publisher.flush()

    async def ring(self, tasks: Sequence[Task], now: Instant) -> list[tuple[Task, Status | None]]:
        """Answer the alarms of these tasks; those that no one else answered meanwhile, and how each stands now."""
        changes = [self.decide(task, AlarmRang(), now, seen(task)) for task in tasks]
        answered: list[tuple[Task, Status | None]] = []
        for task, change, verdict in zip(tasks, changes, await self.apply(changes), strict=True):
            if verdict is APPLIED:
                self.tell_change(task, change, now)
                answered.append((task, change.status))
        return answered

    async def _let_go(self) -> None:
        """Answer the alarms of tasks that have nothing left to wait for; if we die first, any sweep does."""
        for _ in range(_ROUNDS):
            tasks = await self.store.due(AT_ONCE, _BATCH)
            if not tasks or not await self.ring(tasks, self.clock.now()):
                return

    async def _apply(self, changes: Sequence[Change]) -> Sequence[Verdict]:
        verdicts = await self.store.apply(changes)
        if RELEASED in verdicts:
            self.released = True
            return [APPLIED if verdict is RELEASED else verdict for verdict in verdicts]
        return verdicts

    async def _add(self, tasks: Sequence[Task]) -> Sequence[Receipt]:
        """Store new tasks, and say so of those that were not there: here, where many submits have become one batch."""
        now = self.clock.now()
        bounds = self.book.bounds_of({task.spec.queue for task in tasks}) if self.book.bounded else {}
        receipts = await self.store.add(tasks, now=now, bounds=bounds)
        if self.watchers or self.observers or self.publisher.wanted(now):
            self.tell([task for task, receipt in zip(tasks, receipts, strict=True) if type(receipt) is Added], now)
        return receipts


def seen(task: Task) -> Seen:
    """The guard of someone who has read a task and does not hold it."""
    return Seen(task.status.version, task.status.beats)


def changed(task: Task, change: Change) -> Task:
    """The task as the change leaves it; as it stood before, if the change removes it."""
    return task if change.status is None else Task(task.spec, change.status)
