"""The engine: what producers, workers and operators do with tasks, over any store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import FairleadError, LeaseLost, QueueFull, StoreUnavailable, TaskNotFound
from fairlead.core.events import AlarmRang, CancelAsked, Discarded, Replayed, Request
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.instant import Instant
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission, accept
from fairlead.core.task import Priority, Task
from fairlead.engine.clock import Clock, FollowingClock, SystemClock
from fairlead.engine.identity import Chance, IdMaker, system_chance
from fairlead.engine.ledger import Ledger, changed, seen
from fairlead.engine.observe import Observer
from fairlead.engine.settling import Settlement, settle
from fairlead.engine.stats import Stats, stats_of
from fairlead.storage.protocol import Store
from fairlead.storage.values import Added, Beat, Claim, Filter, Full, KeyHeld, Known, Pulse, QueueOrder, Verdict

_TRIES: Final = 100
"""How often a compare-and-set is tried; each failure means that someone else's change succeeded."""


class Submitted(Struct, frozen=True, gc=False):
    """The answer to a submit."""

    task: Task
    existing: bool = False
    """Whether the task was there before, by its idempotency key."""


class Engine:
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
        self.store = store
        self.settings = settings or Settings()
        self.clock = clock or FollowingClock(SystemClock())
        self._chance = chance or system_chance()
        self._ids = IdMaker(self._chance)
        self._ledger = Ledger(store, self.settings, self.clock, self._chance, observers, batching=batching)

    def draw(self) -> float:
        """A number from 0.0 up to but not including 1.0, from the engine's randomness."""
        return self._chance.random()

    def observe(self, observer: Observer) -> None:
        """Tell one more observer of every occurrence."""
        self._ledger.observers.append(observer)

    # Producers

    async def submit(self, submission: Submission) -> Submitted:
        """Store a task; it is durable when this returns."""
        (answer,) = await self.submit_many([submission])
        if isinstance(answer, FairleadError):
            raise answer
        return answer

    async def submit_many(self, submissions: Sequence[Submission]) -> list[Submitted | FairleadError]:
        """Store many tasks; each succeeds or fails by itself, and the answers are in their order."""
        now = self.clock.now()
        answers: list[Submitted | FairleadError] = []
        accepted: list[tuple[int, Task]] = []
        for position, submission in enumerate(submissions):
            try:
                task = accept(submission, self._ids.task_id(submission.queue, now), now, self.settings)
            except FairleadError as error:
                answers.append(error)
            else:
                accepted.append((position, task))
                answers.append(Submitted(task))
        receipts = await self._ledger.add([task for _, task in accepted]) if accepted else []
        for (position, task), receipt in zip(accepted, receipts, strict=True):
            match receipt:
                case Added() | Known():
                    self._ledger.tell(task, now)
                case KeyHeld(holder):
                    answers[position] = await self._held(submissions[position], holder)
                case Full(depth, bound):
                    answers[position] = QueueFull(task.spec.queue, depth, bound)
        return answers

    def prepare(self, submission: Submission) -> Task:
        """The task that a submission becomes, not stored yet."""
        now = self.clock.now()
        return accept(submission, self._ids.task_id(submission.queue, now), now, self.settings)

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

    async def stats(self) -> Stats:
        """How the queues stand."""
        return stats_of(await self.store.tally(), self.clock.now())

    # Workers

    async def claim(
        self,
        worker: WorkerId,
        queues: Sequence[str],
        *,
        limit: int,
        capabilities: Collection[str] = (),
        types: Collection[str] | None = None,
    ) -> list[Task]:
        """The best ready tasks for a worker, now executing under leases of their own."""
        now = self.clock.now()
        tables = {queue: self.settings.order.tables(limit, self._chance.random) for queue in queues}
        tasks = await self.store.claim(
            Claim(
                queues=tuple(QueueOrder(queue, tables[queue]) for queue in queues),
                worker=worker,
                token=self._ids.token(),
                now=now,
                until=now + self.settings.lease,
                grace=self.settings.grace,
                limit=limit,
                capabilities=frozenset(capabilities),
                types=None if types is None else frozenset(types),
            )
        )
        self._ledger.tell_started(tasks, now, tables)
        return tasks

    async def heartbeat(self, beats: Sequence[Beat]) -> list[Pulse]:
        """Renew leases and report progress; the answer says which are lost and which should stop."""
        now = self.clock.now()
        dated = [replace(beat, progress=beat.progress.dated(now)) if beat.progress else beat for beat in beats]
        return await self.store.extend(dated, until=now + self.settings.lease, grace=self.settings.grace)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Task | LeaseLost]:
        """Say how attempts ended; the answer is how each task stands now, or that its lease is lost.

        Repeating a settle is safe. A lost lease changes nothing: someone else holds the task or decided about it.
        """
        return await settle(self._ledger, settlements)

    # Upkeep

    async def sweep(self, limit: int = 1_000, after: tuple[Instant, TaskId] | None = None) -> list[Task]:
        """Answer one batch of alarms: tasks that are due, leases and retentions that have ended.

        The answer is the tasks looked at, as they stood; an empty one means that nothing is due.
        """
        now = self.clock.now()
        tasks = await self.store.due(now, limit, after)
        if not tasks:
            return []
        changes = [self._ledger.decide(task, AlarmRang(), now, seen(task)) for task in tasks]
        for task, change, verdict in zip(tasks, changes, await self._ledger.apply(changes), strict=True):
            if verdict is Verdict.APPLIED:
                self._ledger.tell_change(task, change, now)
        return tasks

    async def follow_clock(self) -> None:
        """Measure how far the host's clock is from the store's, and follow the store's from now on.

        A clock that was given to the engine is left alone.
        """
        if isinstance(self.clock, FollowingClock):
            await self.clock.measure(self.store.time)

    async def close(self) -> None:
        """Close the store."""
        await self.store.close()

    async def _held(self, submission: Submission, holder: TaskId) -> Submitted | FairleadError:
        """The task that holds a submission's key; or the submission stored after all, if the holder just went."""
        (task,) = await self.store.get([holder])
        if task is not None:
            return Submitted(task, existing=True)
        (answer,) = await self.submit_many([submission])
        return answer

    async def _request(self, task_id: TaskId, request: Request) -> Task:
        for _ in range(_TRIES):
            task = await self.get(task_id)
            now = self.clock.now()
            change = self._ledger.decide(task, request, now, seen(task))
            (verdict,) = await self._ledger.apply([change])
            if verdict is Verdict.APPLIED:
                self._ledger.tell_change(task, change, now)
                return changed(task, change)
        raise StoreUnavailable(
            f"task {task_id} changed {_TRIES} times while {request.name} was tried; try again when it is calmer"
        )


__all__ = ["Engine", "Settlement", "Submitted"]
