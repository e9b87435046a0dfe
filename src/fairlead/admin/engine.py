"""An engine with what people operate: queues, circuits, schedules, operations, searches, counts and checks.

Each part is made when it is first asked for: most processes need none of them, and should not pay for them.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import TYPE_CHECKING

from fairlead.core.errors import StoreError
from fairlead.core.health.autoscale import WITHIN, Scaling, advise
from fairlead.core.identity import check_name
from fairlead.core.instant import Span
from fairlead.engine.engine import Engine
from fairlead.engine.fair_keys import fair_keys
from fairlead.engine.metrics.throughput import hour_of
from fairlead.engine.queue_ages import QueueAges, queue_ages
from fairlead.engine.stats import Stats, stats_of
from fairlead.storage.values import Filter

if TYPE_CHECKING:
    from fairlead.admin.circuits.service import Circuits
    from fairlead.admin.dead_letters.service import DeadLetters
    from fairlead.admin.operations.service import Operations
    from fairlead.admin.quarantine.service import QuarantineRecords
    from fairlead.admin.queues.service import Queues
    from fairlead.admin.schedules.service import Schedules
    from fairlead.admin.tenants.service import Tenants
    from fairlead.admin.types.service import Types
    from fairlead.admin.workers.service import Workers
    from fairlead.core.circuit import Circuit
    from fairlead.core.health.diagnosis import Diagnosis
    from fairlead.core.identity import TaskId
    from fairlead.core.query.query import Query
    from fairlead.engine.search import Found, Searcher


class AdminEngine(Engine):
    """The use cases of producers, workers and operators over one store."""

    @functools.cached_property
    def workers(self) -> Workers:
        """The workers and their tasks."""
        from fairlead.admin.workers.service import Workers

        return Workers(self.records, self.clock, self.worker_records)

    @functools.cached_property
    def tenants(self) -> Tenants:
        """Who shares the queues that are shared by fair keys."""
        from fairlead.admin.tenants.service import Tenants

        return Tenants(self.store, self.queue_cache, self.clock)

    @functools.cached_property
    def queues(self) -> Queues:
        """What is said of single queues, and of task types that are paused."""
        from fairlead.admin.queues.service import Queues

        return Queues(self._task_changes, self._current)

    @functools.cached_property
    def circuits(self) -> Circuits:
        """The circuits of task types."""
        from fairlead.admin.circuits.service import Circuits

        return Circuits(self._task_changes)

    @functools.cached_property
    def types(self) -> Types:
        """The task types that workers have published."""
        from fairlead.admin.types.service import Types

        return Types(self._task_changes)

    @functools.cached_property
    def schedules(self) -> Schedules:
        """The schedules, and their firing."""
        from fairlead.admin.schedules.service import Schedules
        from fairlead.engine.scheduler import Firing

        firing = Firing(self._task_changes, self._ids.task_ids, self.cancel, batching=self._batching)
        return Schedules(self._task_changes, firing, self._ids.task_id)

    @functools.cached_property
    def dead_letters(self) -> DeadLetters:
        """The dead letters, grouped."""
        from fairlead.admin.dead_letters.service import DeadLetters

        return DeadLetters(self._searcher, self.settings, self.clock)

    @functools.cached_property
    def operations(self) -> Operations:
        """Actions on all tasks that a query means."""
        from fairlead.admin.operations.service import Operations

        return Operations(self._task_changes, self._current, self._ids)

    @functools.cached_property
    def quarantine(self) -> QuarantineRecords:
        """What was set aside because it cannot be decoded."""
        from fairlead.admin.quarantine.service import QuarantineRecords
        from fairlead.admin.record_kinds import BELLS, FORMS

        return QuarantineRecords(self._task_changes, FORMS, BELLS)

    @functools.cached_property
    def _current(self) -> Searcher:
        """Searches the tasks as they stand, at any cost."""
        from fairlead.engine.search import Searcher

        return Searcher(self.store, batching=self._batching, current=True)

    @functools.cached_property
    def _searcher(self) -> Searcher:
        from fairlead.engine.search import Searcher

        return Searcher(self.store, batching=self._batching)

    async def search(
        self,
        query: Query,
        *,
        within: Filter | None = None,
        limit: int = 100,
        newest_first: bool = True,
        after: TaskId | None = None,
        parameters: bool = False,
    ) -> Found:
        """One page of the tasks that a query means, of those that a filter admits.

        A call looks at a bounded number of tasks: the page may not be full, and its cursor still leads further. Its
        tasks have their parameters, asked for or not.
        """
        from fairlead.engine.search import plan

        del parameters
        sought = plan(query, self.clock.now(), within)
        return await self._searcher.page(sought, limit=limit, newest_first=newest_first, after=after)

    async def diagnose(self) -> Diagnosis:
        """Check the store and what runs on it, and say how to fix each problem; changes nothing."""
        from fairlead.admin.doctor.service import Doctor

        return await Doctor(self, self.workers, self.schedules, self.quarantine).diagnose()

    async def stats(self) -> Stats:
        """Statistics of the queues and the workers; costs O(lanes + workers)."""
        await self.queue_cache.refresh()
        tally, now = await self.store.tally(), self.clock.now()
        throughput, rows = await self.worker_records.counted()
        workers = await self.worker_records.workers()
        return stats_of(
            tally,
            now,
            workers,
            throughput,
            paused=self.queue_cache.paused,
            paused_types=self.queue_cache.paused_types,
            circuits=await self._known_circuits(),
            promoted_today=await self._task_changes.promotions.today(now),
            unreadable=self.queue_cache.unreadable,
            quarantined=await self._quarantined(),
            hour=hour_of(rows, now),
            unserved=await self.unserved(tally.lanes, workers),
            fair=await fair_keys(self.store, tally.lanes),
        )

    async def ages(self, queues: Collection[str] | None = None) -> QueueAges:
        """How long the tasks have waited that wait, in some queues or in all; counts them, but looks at none."""
        return await queue_ages(self.store, self.clock.now(), queues, batching=self._batching)

    async def _quarantined(self) -> dict[str, int]:
        """How many records are set aside; none, while a journal that keeps them cannot be reached."""
        try:
            return await self.quarantine.counts()
        except StoreError:
            return {}

    async def _known_circuits(self) -> dict[str, Circuit]:
        """The circuits; as they were last known, while a journal that keeps them cannot be reached."""
        try:
            return await self.circuits.all()
        except StoreError:
            return self._breakers.circuits

    async def autoscale(
        self,
        queue: str | None = None,
        *,
        within: Span = WITHIN,
        capacity: int | None = None,
        queues: Collection[str] | None = None,
    ) -> Scaling:
        """How much one queue has to do, or all of them, and how many workers that takes; costs O(lanes + workers).

        With `queues`, all of them are these.
        """
        from fairlead.admin.workers.service import load_of
        from fairlead.core.health.autoscale import Scaling

        if queue is not None:
            check_name("queue", queue)
        await self.queue_cache.refresh()
        tally, now = await self.store.tally(), self.clock.now()
        chosen = queues if queue is None else {queue}
        spent = await self.worker_records.spent(chosen)
        load = load_of(chosen, tally, now, self.queue_cache, await self.worker_records.workers(), spent)
        return Scaling(queue, load, advise(load, within=within, capacity=capacity))
