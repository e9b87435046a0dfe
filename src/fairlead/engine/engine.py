"""The engine: what producers, workers and operators do with tasks, over any store."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from fairlead.core.errors import FairleadError, LeaseLost, StoreUnavailable, TaskNotFound
from fairlead.core.events import CancelAsked, Discarded, Replayed, Request, TimedOut
from fairlead.core.health.clock_watch import ClockReading
from fairlead.core.health.quarantine import Quarantined
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.instant import AT_ONCE, Instant, Span
from fairlead.core.queues.shares import WorkerShares
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission
from fairlead.core.task import Priority, State, Task
from fairlead.engine import dependencies
from fairlead.engine.changes import TaskChanges, changed, seen
from fairlead.engine.circuit_breaker import Breakers
from fairlead.engine.claim import ClaimRequest, Claims
from fairlead.engine.events.feed import Listener, Publisher
from fairlead.engine.events.types import Observer, Occurrence, Watcher, tell_set_aside
from fairlead.engine.leases import StoreLeases
from fairlead.engine.queue_cache import QueueCache
from fairlead.engine.records import Records
from fairlead.engine.runtime.clock import Clock, FollowingClock, SystemClock
from fairlead.engine.runtime.ids import Chance, IdMaker, system_chance
from fairlead.engine.settle import Settlement, settle
from fairlead.engine.submit import Submitted, Submitter
from fairlead.engine.worker_records import WorkerRecords
from fairlead.engine.worker_tasks import LostTasks
from fairlead.storage.protocol import Quarantining, Store
from fairlead.storage.values import (
    Beat,
    Filter,
    Pulse,
    Verdict,
)

if TYPE_CHECKING:
    from fairlead.core.explain.explanation import Cause, Explanation
    from fairlead.core.health.unserved import UnservedTasks
    from fairlead.engine.explain.eligibility import WorkerCheck
    from fairlead.engine.explain.explainer import Explainer
    from fairlead.engine.worker_records import WorkerRecord
    from fairlead.storage.values import LaneTally

_TRIES: Final = 100
"""How often a compare-and-set is tried; each failure means that someone else's change succeeded."""


class Engine:
    """What producers and workers do with tasks, and the sweep, over one store. What people operate is added in `admin`.

    With `batching`, concurrent submits and settles of one event loop are coalesced into batches; without it the engine
    never suspends over a store that does not, and `inline.run_inline` can drive it from synchronous code.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings | None = None,
        *,
        clock: Clock | None = None,
        chance: Chance | None = None,
        observers: Sequence[Observer] = (),
        batching: bool = True,
    ) -> None:
        for observer in observers:
            if isinstance(observer, Watcher):
                store = observer.around(store)
        self.store = store
        self.settings = settings or Settings()
        self.clock = clock or FollowingClock(SystemClock())
        self._chance = chance or system_chance()
        self._ids = IdMaker(self._chance)
        if isinstance(store, Quarantining):
            store.quarantine.observer = self._set_aside
        self.records = Records(store, self.clock, self._set_aside)
        """What the store keeps beside tasks, as it is read."""
        self.publisher = Publisher(self.records, self.clock, inline=not batching)
        self._breakers = Breakers(self.records, self.settings, self.clock, self.publisher, self._ids.token)
        self.queue_cache = QueueCache(self.records, self.settings, self.clock, self._breakers)
        """The queues as this engine knows them."""
        self._task_changes = TaskChanges(
            self.records,
            self.settings,
            self.clock,
            self._chance,
            observers,
            self.publisher,
            self.queue_cache,
            self._breakers,
            batching=batching,
        )
        self.feed = Listener(store, self.clock, self.publisher, self._ids.token)
        """What all processes tell of their tasks and workers."""
        self.worker_records = WorkerRecords(
            self.records,
            self.settings,
            self.clock,
            self._chance,
            self.publisher,
            self._task_changes.meter,
            self.queue_cache,
            self._task_changes.watchers,
        )
        """The workers, as they say of themselves."""
        self.lost_tasks = LostTasks(self.records, self.worker_records)
        """Which tasks were taken from which worker."""
        self._leases = StoreLeases(store, self.settings, self.clock)
        self._submitter = Submitter(self._task_changes, self._ids, batching=batching)
        self._claims = Claims(self._task_changes, self._chance, self._ids)
        self._batching = batching

    @property
    def is_served(self) -> bool:
        """Whether the store is a server, which works while this process does: it has a clock of its own."""
        return self._claims.are_served

    def draw(self) -> float:
        """A number from 0.0 up to but not including 1.0, from the engine's randomness."""
        return self._chance.random()

    def observe(self, observer: Callable[[Occurrence], None]) -> None:
        """Tell one more observer of every occurrence."""
        self._task_changes.observers = (*self._task_changes.observers, observer)

    def unobserve(self, observer: Observer) -> None:
        """Tell an observer no more."""
        self._task_changes.observers = tuple(other for other in self._task_changes.observers if other != observer)

    # Producers

    def submit(self, submission: Submission) -> Coroutine[Any, Any, Submitted]:
        """Store a task; it is durable when this returns."""
        return self._submitter.submit(submission)

    def submit_many(self, submissions: Sequence[Submission]) -> Coroutine[Any, Any, list[Submitted | FairleadError]]:
        """Store many tasks; each succeeds or fails by itself, and the answers are in their order."""
        return self._submitter.submit_many(submissions)

    def submit_listed(
        self, submissions: Sequence[Submission], listed: Collection[int]
    ) -> Coroutine[Any, Any, list[Submitted | FairleadError]]:
        """The same, where the submitters of those at the positions `listed` are on the allow list.

        Tenants that it names are known here; a server knows whose key submits.
        """
        return self._submitter.submit_many(submissions, listed)

    async def begin_key_scopes(self) -> None:
        """Have it written down when the servers of this store began to know idempotency keys by their tenants."""
        await self._submitter.keys.begin()

    async def prepare(self, submission: Submission) -> Task:
        """The task that a submission becomes, not stored yet."""
        return await self._submitter.prepare(submission)

    async def cancel(self, task_id: TaskId) -> Task:
        """Cancel a waiting task at once; ask the worker of an executing one to stop."""
        return await self._request(task_id, CancelAsked())

    async def replay(self, task_id: TaskId, *, reset_retries: bool = True, priority: Priority | None = None) -> Task:
        """Queue an ended task again."""
        await self.queue_cache.refresh()
        return await self._request(task_id, Replayed(reset_retries=reset_retries, priority=priority))

    async def discard(self, task_id: TaskId) -> Task:
        """Remove an ended task; the answer is how it stood."""
        return await self._request(task_id, Discarded())

    async def get(self, task_id: TaskId) -> Task:
        """The task with this id."""
        (task,) = await self.store.get([task_id])
        if task is None:
            raise TaskNotFound(task_id)
        return task

    async def explain(self, task_id: TaskId, tenant: str | None = None) -> Explanation:
        """Why a task waits, or ran when it ran; reads no other task, but a store may count those ahead of it.

        To who is bound to a tenant, others appear as numbers at most.
        """
        (task,) = await dependencies.shown_to(self.store, [await self.get(task_id)], tenant)
        return await self._explainer.explain(task, tenant)

    async def doubts(self, submitted: Submitted, tenant: str | None = None) -> tuple[Cause, ...]:
        """Why no live worker could run a task that was just submitted; none if one could, or if that is not known.

        The workers are looked up every few seconds at most, so this is for every submit.
        """
        if submitted.existing:
            return ()
        if self._worker_check.stale:
            await self._worker_check.look()
        return self._worker_check.doubts(submitted.task, tenant)

    async def unserved(
        self, lanes: Sequence[LaneTally], workers: Sequence[WorkerRecord] | None = None
    ) -> dict[str, UnservedTasks]:
        """What no live worker could run of the ready tasks of these lanes, by queue; costs O(lanes + workers)."""
        found = await self.worker_records.workers() if workers is None else workers
        return self._worker_check.unserved(lanes, found, self.queue_cache)

    async def unended(self, task: Task) -> list[Task]:
        """Those of the tasks that this one waits for that have not ended."""
        return await dependencies.unended(self.store, task)

    async def find(
        self,
        matching: Filter | None = None,
        *,
        limit: int = 100,
        newest_first: bool = True,
        after: TaskId | None = None,
    ) -> list[Task]:
        """One page of a listing; the last task's id leads to the next page."""
        return await self.store.find(matching or Filter(), limit=limit, newest_first=newest_first, after=after)

    # Workers

    def claim(
        self,
        worker: WorkerId,
        queues: Sequence[str],
        *,
        limit: int,
        capabilities: Collection[str] = (),
        types: Collection[str] | None = None,
        tenant: str | None = None,
        registration: str = "",
        shares: WorkerShares | None = None,
    ) -> Coroutine[Any, Any, list[Task]]:
        """The best ready tasks for a worker, now executing under leases of their own.

        What is paused is left out, and a worker that is paused gets nothing; of a type that keeps failing, a few are
        taken as probes when its circuit says so. For a worker of one tenant only queues that are bound to it are looked
        at; a task of another's that is found there waits again as if it had never been taken. The leases name the
        `registration` of the worker, if one is given. `shares` says how the queues share the worker, if they do.
        """
        return self._claims.claim(
            ClaimRequest(worker, queues, limit, capabilities, types, tenant, registration, shares)
        )

    def wait(
        self,
        worker: WorkerId,
        queues: Sequence[str],
        timeout: float,
        *,
        limit: int,
        capabilities: Collection[str] = (),
        types: Collection[str] | None = None,
        shares: WorkerShares | None = None,
    ) -> Coroutine[Any, Any, list[Task] | None]:
        """Sleep until there may be work, and claim it at once if the store can; None if it is yet to be claimed.

        Cancelled after it has claimed tasks, this returns them; if the store does not say whether it has, it raises
        StoreUnavailable.
        """
        return self._claims.wait(ClaimRequest(worker, queues, limit, capabilities, types, shares=shares), timeout)

    async def heartbeat(self, beats: Sequence[Beat]) -> list[Pulse]:
        """Renew leases and report progress; the answer says which are lost and which should stop."""
        now = self.clock.now()
        dated = [replace(beat, progress=beat.progress.dated(now)) if beat.progress else beat for beat in beats]
        pulses = await self._leases.heartbeat(dated)
        for beat, pulse in zip(dated, pulses, strict=True):
            if beat.progress is not None and pulse is not Pulse.LOST:
                self.publisher.report(beat.id, beat.progress, now)
        await self._task_changes.finish()
        return pulses

    async def look(self, beats: Sequence[Beat]) -> list[Pulse]:
        """What a heartbeat would learn, without renewing anything: a cancel need not wait for the next one."""
        return await self._leases.look(beats)

    async def time_out(self, beats: Sequence[Beat]) -> None:
        """Settle attempts as timed out, by their leases, for a worker that does not say so; what is lost stays lost."""
        stored = await self.store.get([beat.id for beat in beats])
        held = {beat.id: beat.token for beat in beats}
        await self.settle(
            [
                Settlement(task, TimedOut())
                for task in stored
                if task is not None and task.status.lease is not None and task.status.lease.token == held[task.id]
            ]
        )

    async def settle(self, settlements: Sequence[Settlement]) -> list[Task | LeaseLost]:
        """Say how attempts ended; the answer is how each task stands now, or that its lease is lost.

        Repeating a settle is safe. A lost lease changes nothing: someone else holds the task or decided about it.
        """
        answers = await settle(self._task_changes, settlements)
        await self._task_changes.finish()
        return answers

    # Upkeep

    async def sweep(
        self,
        limit: int = 1_000,
        after: tuple[Instant, TaskId] | None = None,
        *,
        watched: Callable[[], Awaitable[Instant | None]] | None = None,
    ) -> list[Task]:
        """Answer one batch of alarms: tasks that are due, leases and retentions that have ended.

        `watched` is asked when leases have ended, and says since when the store's clock has been watched, or None to
        leave them alone; without it, every lease that has ended by the clock is taken to have.

        The answer is the tasks looked at, as they stood; an empty one means that nothing is due.
        """
        tasks = await self.store.due(self.clock.given(), limit, after)
        if not tasks:
            return []
        watched_from: Instant | None = AT_ONCE
        ringing = tasks
        if watched is not None and any(task.state is State.EXECUTING for task in tasks):
            # Only now: a step between a look before and the store's own would have gone unseen.
            watched_from = await watched()
            if watched_from is None:
                ringing = [task for task in tasks if task.state is not State.EXECUTING]
        now = self.clock.now()
        lost: list[Task] = []
        for task, status in await self._task_changes.ring(ringing, now, watched_from or AT_ONCE):
            if task.status.lease is not None and status is not None:
                lost.append(task)
                self._breakers.count(task, status)
                if status.state.waiting:
                    self._task_changes.meter.recovered(Task(task.spec, status), now)
        await self._task_changes.finish()
        if lost:
            await self.lost_tasks.note(lost, now)
        return tasks

    async def share_promotions(self) -> None:
        """Tell the other processes how many promoted tasks were claimed here."""
        await self._task_changes.promotions.share()

    async def follow_clock(self) -> ClockReading:
        """Look at the store's clock, and follow it from now on; a clock given to the engine is looked at instead."""
        return await self._leases.follow_clock()

    async def look_at_clocks(self) -> dict[str, ClockReading]:
        """Look at every clock that leases go by, each by a name; the store's is followed from now on."""
        return await self._leases.look_at_clocks()

    async def curtail_leases(self, limit: int, lease: Span) -> int:
        """Cut leases that would end later than one lease length from now, as a clock that went back leaves them."""
        return await self.store.curtail(lease=lease, limit=limit, now=self.clock.given())

    async def close(self) -> None:
        """Close the store, after the last events."""
        await self.publisher.close()
        await self.store.close()

    @functools.cached_property
    def _explainer(self) -> Explainer:
        from fairlead.engine.explain.explainer import Explainer

        return Explainer(self._task_changes, self.worker_records, self._claims.passed_of)

    @functools.cached_property
    def _worker_check(self) -> WorkerCheck:
        from fairlead.engine.explain.eligibility import WorkerCheck

        return WorkerCheck(self.worker_records, self.clock, self.settings.lease)

    def _set_aside(self, found: Quarantined) -> None:
        """Say that something was set aside, or cannot be read here."""
        tell_set_aside(found)
        for watcher in self._task_changes.watchers:
            watcher.set_aside(found)

    async def _request(self, task_id: TaskId, request: Request) -> Task:
        for _ in range(_TRIES):
            task = await self.get(task_id)
            now = self.clock.now()
            change = self._task_changes.decide(task, request, now, seen(task))
            (verdict,) = await self._task_changes.apply([change])
            if verdict is Verdict.APPLIED:
                self._task_changes.tell_change(task, change, now)
                await self._task_changes.finish()
                return changed(task, change)
        raise StoreUnavailable(f"task {task_id} changed {_TRIES} times while {request.name} was tried; try again later")


__all__ = ["Engine", "Settlement", "Submitted"]
