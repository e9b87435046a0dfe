"""The engine: what producers, workers and operators do with tasks, over any store."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import (
    FairleadError,
    LeaseLost,
    PayloadTooLarge,
    QueueFull,
    StoreUnavailable,
    TaskNotFound,
)
from fairlead.core.events import (
    AlarmRang,
    CancelAsked,
    Completed,
    Crashed,
    Discarded,
    Event,
    Failed,
    Outcome,
    Replayed,
    Request,
)
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.instant import Instant
from fairlead.core.lifecycle import decide, settlement
from fairlead.core.order import Table, effective_priority
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission, accept
from fairlead.core.task import Failure, Priority, Task
from fairlead.engine.batching import Batcher
from fairlead.engine.clock import Clock, FollowingClock, SystemClock
from fairlead.engine.identity import Chance, IdMaker, system_chance
from fairlead.engine.observe import Happening, Observer, Occurrence, happening_of
from fairlead.engine.stats import Stats, stats_of
from fairlead.storage.protocol import Store
from fairlead.storage.values import (
    Added,
    Beat,
    Change,
    Claim,
    Filter,
    Full,
    Held,
    KeyHeld,
    Known,
    Pulse,
    QueueOrder,
    Receipt,
    Seen,
    Verdict,
)

_TRIES = 100
"""How often a compare-and-set is tried; each failure means that someone else's change succeeded."""


class Submitted(Struct, frozen=True, gc=False):
    """The answer to a submit."""

    task: Task
    existing: bool = False
    """Whether the task was there before, by its idempotency key."""


class Settlement(Struct, frozen=True, gc=False):
    """A lease holder's word on how its attempt ended; the task is as it was claimed."""

    task: Task
    outcome: Outcome


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
        self._luck = random.Random(self._chance.getrandbits(64))  # noqa: S311 - spreads retries, guards nothing
        self._observers = list(observers)
        self._add: Callable[[Sequence[Task]], Awaitable[Sequence[Receipt]]] = self._add_now
        self._apply: Callable[[Sequence[Change]], Awaitable[Sequence[Verdict]]] = store.apply
        if batching:
            self._add = Batcher(self._add_now)
            self._apply = Batcher(store.apply)

    def draw(self) -> float:
        """A number from 0.0 up to but not including 1.0, from the engine's randomness."""
        return self._chance.random()

    def observe(self, observer: Observer) -> None:
        """Tell one more observer of every occurrence."""
        self._observers.append(observer)

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
        receipts = await self._add([task for _, task in accepted]) if accepted else []
        for (position, task), receipt in zip(accepted, receipts, strict=True):
            match receipt:
                case Added() | Known():
                    self._tell(task, now)
                case KeyHeld(holder):
                    answers[position] = await self._held(submissions[position], holder)
                case Full(depth, bound):
                    answers[position] = QueueFull(task.spec.queue, depth, bound)
        return answers

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
        if self._observers:
            for task in tasks:
                self._tell_started(task, now, tables[task.spec.queue][0])
        return tasks

    async def heartbeat(self, beats: Sequence[Beat]) -> list[Pulse]:
        """Renew leases and report progress; the answer says which are lost and which should stop."""
        now = self.clock.now()
        dated = [replace(beat, progress=replace(beat.progress, at=now)) if beat.progress else beat for beat in beats]
        return await self.store.extend(dated, until=now + self.settings.lease, grace=self.settings.grace)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Task | LeaseLost]:
        """Say how attempts ended; the answer is how each task stands now, or that its lease is lost.

        Repeating a settle is safe. A lost lease changes nothing: someone else holds the task or decided about it.
        """
        now = self.clock.now()
        answers: list[Task | LeaseLost] = [LeaseLost(said.task.id) for said in settlements]
        outcomes = [self._storable(said.outcome) for said in settlements]
        unsettled = {position: said.task for position, said in enumerate(settlements)}
        while unsettled:
            changes = [self._decide(task, outcomes[position], now, _held(task)) for position, task in unsettled.items()]
            verdicts = await self._apply(changes)
            unclear: dict[int, Task] = {}
            for (position, task), change, verdict in zip(unsettled.items(), changes, verdicts, strict=True):
                match verdict:
                    case Verdict.APPLIED:
                        answers[position] = settled = _after(task, change)
                        self._tell(settled, now)
                    case Verdict.REPEATED | Verdict.STALE:
                        unclear[position] = task
                    case Verdict.MISSING:
                        pass
            unsettled = await self._look_again(unclear, outcomes, answers)
        for said, answer in zip(settlements, answers, strict=True):
            if isinstance(answer, LeaseLost):
                self._announce(Occurrence(Happening.REFUSED, now, said.task))
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
        changes = [self._decide(task, AlarmRang(), now, _seen(task)) for task in tasks]
        for task, change, verdict in zip(tasks, changes, await self._apply(changes), strict=True):
            if verdict is Verdict.APPLIED:
                self._tell_change(task, change, now)
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

    async def _add_now(self, tasks: Sequence[Task]) -> Sequence[Receipt]:
        bound = self.settings.queue_bound
        bounds = {} if bound is None else {task.spec.queue: bound for task in tasks}
        return await self.store.add(tasks, now=self.clock.now(), bounds=bounds)

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
            change = self._decide(task, request, now, _seen(task))
            (verdict,) = await self._apply([change])
            if verdict is Verdict.APPLIED:
                self._tell_change(task, change, now)
                return _after(task, change)
        raise StoreUnavailable(
            f"task {task_id} changed {_TRIES} times while {request.name} was tried; try again when it is calmer"
        )

    async def _look_again(
        self, unclear: dict[int, Task], outcomes: list[Outcome], answers: list[Task | LeaseLost]
    ) -> dict[int, Task]:
        """Answer those settles that were made before; the others whose lease still stands, as they stand now.

        Asking to cancel an executing task is a decision made while its lease goes on: the holder's word still counts,
        but must be judged in that light.
        """
        if not unclear:
            return {}
        held: dict[int, Task] = {}
        fresh = await self.store.get([task.id for task in unclear.values()])
        for (position, task), stored in zip(unclear.items(), fresh, strict=True):
            if stored is None or task.status.lease is None:
                continue
            if stored.status.lease is not None and stored.status.lease.token == task.status.lease.token:
                held[position] = stored
            elif stored.status.settled == settlement(task.status.lease, outcomes[position]):
                answers[position] = stored
        return held

    def _storable(self, outcome: Outcome) -> Outcome:
        """An outcome that fits into the store: of bounded size, and in valid Unicode."""
        limit = self.settings.payload_limit
        match outcome:
            case Completed(result) if result is not None and len(result) > limit:
                error = PayloadTooLarge("result", len(result), limit)
                return Failed(failure=Failure(type="PayloadTooLarge", message=str(error)), retriable=False)
            case Failed(failure=failure) | Crashed(failure):
                return replace(outcome, failure=failure.storable())
            case _:
                return outcome

    def _decide(self, task: Task, event: Event, now: Instant, guard: Held | Seen) -> Change:
        luck = self._luck.uniform(-1.0, 1.0)
        return Change(task.id, guard, decide(task, event, now, rules=self.settings.rules, luck=luck))

    def _tell(self, task: Task, at: Instant) -> None:
        if self._observers:
            self._announce(Occurrence(happening_of(task), at, task))

    def _tell_change(self, task: Task, change: Change, at: Instant) -> None:
        if change.status is None:
            self._announce(Occurrence(Happening.REMOVED, at, task))
        else:
            self._tell(_after(task, change), at)

    def _tell_started(self, task: Task, at: Instant, table: Table) -> None:
        self._announce(Occurrence(Happening.STARTED, at, task))
        if effective_priority(table, task.status.priority, at - task.status.ready_at) < task.status.priority:
            self._announce(Occurrence(Happening.PROMOTED, at, task))

    def _announce(self, occurrence: Occurrence) -> None:
        for observer in self._observers:
            observer(occurrence)


def _seen(task: Task) -> Seen:
    return Seen(task.status.version, task.status.beats)


def _held(task: Task) -> Held:
    if task.status.lease is None:
        raise ValueError(f"task {task.id} is {task.state}: only a task as it was claimed can be settled")
    return Held(task.status.version, task.status.lease.token)


def _after(task: Task, change: Change) -> Task:
    """The task as the change leaves it; as it stood before, if the change removes it."""
    return task if change.status is None else Task(task.spec, change.status)
