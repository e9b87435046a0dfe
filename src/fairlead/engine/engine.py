"""The engine: what producers, workers and operators do with tasks, over any store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from fairlead.core.errors import FairleadError, LeaseLost, StoreError, StoreUnavailable, TaskNotFound
from fairlead.core.events import CancelAsked, Discarded, Replayed, Request
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.instant import Instant, Span
from fairlead.core.scaling import WITHIN, advise
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission
from fairlead.core.task import Priority, Task
from fairlead.engine import depending
from fairlead.engine.book import QueueBook
from fairlead.engine.breakers import Breakers
from fairlead.engine.claiming import Claims, Wish
from fairlead.engine.clock import Clock, FollowingClock, SystemClock
from fairlead.engine.departments import Departments
from fairlead.engine.feeding import Publisher
from fairlead.engine.identity import Chance, IdMaker, system_chance
from fairlead.engine.leases import StoreLeases
from fairlead.engine.ledger import Ledger, changed, seen
from fairlead.engine.listening import Listener
from fairlead.engine.observe import Observer, Occurrence, Watcher
from fairlead.engine.presence import Presence
from fairlead.engine.settling import Settlement, settle
from fairlead.engine.stats import Stats, stats_of
from fairlead.engine.submitting import Submitted, Submitter
from fairlead.storage.protocol import Store
from fairlead.storage.values import (
    Beat,
    Filter,
    Pulse,
    Verdict,
)

if TYPE_CHECKING:
    from fairlead.core.circuit import Circuit
    from fairlead.core.diagnosis import Diagnosis
    from fairlead.core.explanation import Cause, Explanation
    from fairlead.core.query import Query
    from fairlead.engine.scaling import Scaling
    from fairlead.engine.searching import Found

_TRIES: Final = 100
"""How often a compare-and-set is tried; each failure means that someone else's change succeeded."""


class Engine(Departments):
    """The use cases over one store.

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
        self.publisher = Publisher(store, self.clock, inline=not batching)
        self._breakers = Breakers(store, self.settings, self.clock, self.publisher, self._ids.token)
        self.book = QueueBook(store, self.settings, self.clock, self._breakers)
        """The queues as this engine knows them."""
        self._ledger = Ledger(
            store,
            self.settings,
            self.clock,
            self._chance,
            observers,
            self.publisher,
            self.book,
            self._breakers,
            batching=batching,
        )
        self.feed = Listener(store, self.clock, self.publisher, self._ids.token)
        """What all processes tell of their tasks and workers."""
        self.presence = Presence(store, self.settings, self.clock, self._chance, self.publisher, self._ledger.meter)
        """The workers, as they say of themselves."""
        self._leases = StoreLeases(store, self.settings, self.clock)
        self._submitter = Submitter(self._ledger, self._ids)
        self._claims = Claims(self._ledger, self._chance, self._ids)
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
        self._ledger.observers = (*self._ledger.observers, observer)

    def unobserve(self, observer: Observer) -> None:
        """Tell an observer no more."""
        self._ledger.observers = tuple(other for other in self._ledger.observers if other != observer)

    # Producers

    def submit(self, submission: Submission) -> Coroutine[Any, Any, Submitted]:
        """Store a task; it is durable when this returns."""
        return self._submitter.submit(submission)

    def submit_many(self, submissions: Sequence[Submission]) -> Coroutine[Any, Any, list[Submitted | FairleadError]]:
        """Store many tasks; each succeeds or fails by itself, and the answers are in their order."""
        return self._submitter.submit_many(submissions)

    async def prepare(self, submission: Submission) -> Task:
        """The task that a submission becomes, not stored yet."""
        return await self._submitter.prepare(submission)

    async def cancel(self, task_id: TaskId) -> Task:
        """Cancel a waiting task at once; ask the worker of an executing one to stop."""
        return await self._request(task_id, CancelAsked())

    async def replay(self, task_id: TaskId, *, reset_retries: bool = True, priority: Priority | None = None) -> Task:
        """Queue an ended task again."""
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

    async def explain(self, task_id: TaskId) -> Explanation:
        """Why a task waits, or ran when it ran; reads no other task, but a store may count those ahead of it."""
        return await self._explainer.explain(await self.get(task_id))

    async def doubts(self, submitted: Submitted) -> tuple[Cause, ...]:
        """Why no live worker could run a task that was just submitted; none if one could, or if that is not known.

        The workers are looked up every few seconds at most, so this is for every submit.
        """
        if submitted.existing:
            return ()
        if self._lookout.stale:
            await self._lookout.look()
        return self._lookout.doubts(submitted.task)

    async def unended(self, task: Task) -> list[Task]:
        """Those of the tasks that this one waits for that have not ended."""
        return await depending.unended(self.store, task)

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

    async def search(
        self,
        query: Query,
        *,
        within: Filter | None = None,
        limit: int = 100,
        newest_first: bool = True,
        after: TaskId | None = None,
    ) -> Found:
        """One page of the tasks that a query means, of those that a filter admits.

        A call looks at a bounded number of tasks: the page may not be full, and its cursor still leads further.
        """
        from fairlead.engine.searching import plan

        sought = plan(query, self.clock.now(), within)
        return await self._searcher.page(sought, limit=limit, newest_first=newest_first, after=after)

    async def diagnose(self) -> Diagnosis:
        """Whether all is as it should be, and what to do if it is not; changes nothing."""
        from fairlead.engine.doctor import Doctor

        return await Doctor(self).diagnose()

    async def stats(self) -> Stats:
        """How the queues stand, and the workers; costs O(lanes + workers)."""
        await self.book.refresh()
        tally, now = await self.store.tally(), self.clock.now()
        return stats_of(
            tally,
            now,
            await self.presence.workers(),
            await self.presence.throughput(),
            paused=self.book.paused,
            paused_types=self.book.paused_types,
            circuits=await self._known_circuits(),
            promoted_today=await self._ledger.promotions.today(now),
        )

    async def _known_circuits(self) -> dict[str, Circuit]:
        """The circuits; as they were last known, while a journal that keeps them cannot be reached."""
        try:
            return await self.circuits.all()
        except StoreError:
            return self._breakers.circuits

    async def autoscale(
        self, queue: str | None = None, *, within: Span = WITHIN, capacity: int | None = None
    ) -> Scaling:
        """How much one queue has to do, or all of them, and how many workers that takes; costs O(lanes + workers)."""
        from fairlead.engine.scaling import Scaling, load_of

        await self.book.refresh()
        tally, now = await self.store.tally(), self.clock.now()
        spent = await self.presence.spent(queue)
        load = load_of(queue, tally, now, self.book, await self.presence.workers(), spent)
        return Scaling(queue, load, advise(load, within=within, capacity=capacity))

    # Workers

    def claim(
        self,
        worker: WorkerId,
        queues: Sequence[str],
        *,
        limit: int,
        capabilities: Collection[str] = (),
        types: Collection[str] | None = None,
    ) -> Coroutine[Any, Any, list[Task]]:
        """The best ready tasks for a worker, now executing under leases of their own.

        What is paused is left out; of a type that keeps failing, a few are taken as probes when its circuit says so.
        """
        return self._claims.claim(Wish(worker, queues, limit, capabilities, types))

    def wait(
        self,
        worker: WorkerId,
        queues: Sequence[str],
        timeout: float,
        *,
        limit: int,
        capabilities: Collection[str] = (),
        types: Collection[str] | None = None,
    ) -> Coroutine[Any, Any, list[Task] | None]:
        """Sleep until there may be work, and claim it at once if the store can; None if it is yet to be claimed.

        Cancelled after it has claimed tasks, this returns them.
        """
        return self._claims.wait(Wish(worker, queues, limit, capabilities, types), timeout)

    async def heartbeat(self, beats: Sequence[Beat]) -> list[Pulse]:
        """Renew leases and report progress; the answer says which are lost and which should stop."""
        now = self.clock.now()
        dated = [replace(beat, progress=beat.progress.dated(now)) if beat.progress else beat for beat in beats]
        pulses = await self._leases.heartbeat(dated)
        for beat, pulse in zip(dated, pulses, strict=True):
            if beat.progress is not None and pulse is not Pulse.LOST:
                self.publisher.report(beat.id, beat.progress, now)
        await self._ledger.finish()
        return pulses

    async def look(self, beats: Sequence[Beat]) -> list[Pulse]:
        """What a heartbeat would learn, without renewing anything: a cancel need not wait for the next one."""
        return await self._leases.look(beats)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Task | LeaseLost]:
        """Say how attempts ended; the answer is how each task stands now, or that its lease is lost.

        Repeating a settle is safe. A lost lease changes nothing: someone else holds the task or decided about it.
        """
        answers = await settle(self._ledger, settlements)
        await self._ledger.finish()
        return answers

    # Upkeep

    async def sweep(self, limit: int = 1_000, after: tuple[Instant, TaskId] | None = None) -> list[Task]:
        """Answer one batch of alarms: tasks that are due, leases and retentions that have ended.

        The answer is the tasks looked at, as they stood; an empty one means that nothing is due.
        """
        now = self.clock.now()
        tasks = await self.store.due(now, limit, after)
        if not tasks:
            return []
        lost: list[Task] = []
        for task, status in await self._ledger.ring(tasks, now):
            if task.status.lease is not None and status is not None:
                lost.append(task)
                self._breakers.count(task, status)
        await self._ledger.finish()
        if lost:
            await self.workers.note(lost, now)
        return tasks

    async def share_promotions(self) -> None:
        """Tell the other processes how many promoted tasks were claimed here."""
        await self._ledger.promotions.share()

    async def follow_clock(self) -> None:
        """Measure how far the host's clock is from the store's, and follow the store's from now on.

        A clock that was given to the engine is left alone.
        """
        await self._leases.follow_clock()

    async def close(self) -> None:
        """Close the store, after the last events."""
        await self.publisher.close()
        await self.store.close()

    async def _request(self, task_id: TaskId, request: Request) -> Task:
        for _ in range(_TRIES):
            task = await self.get(task_id)
            now = self.clock.now()
            change = self._ledger.decide(task, request, now, seen(task))
            (verdict,) = await self._ledger.apply([change])
            if verdict is Verdict.APPLIED:
                self._ledger.tell_change(task, change, now)
                await self._ledger.finish()
                return changed(task, change)
        raise StoreUnavailable(
            f"task {task_id} changed {_TRIES} times while {request.name} was tried; try again when it is calmer"
        )


__all__ = ["Engine", "Settlement", "Submitted"]
