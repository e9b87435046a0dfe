"""Stores that claim wrongly: each chooses or takes tasks in a way of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from fairlead.core.queues.order import Line, Table, rank_after, service_key
from fairlead.core.task import Lane, State, Task
from fairlead.storage.values import Change, Claim
from fairlead.testing.builders import seen
from fairlead.testing.clauses.claim import as_claimed
from fairlead.testing.steps import contents
from tests.conformance.wrong_store import GAP, WrongStore


class ChoosingStore(WrongStore):
    """Claims rightly, in steps that a subclass can get wrong."""

    async def claim(self, claim: Claim) -> list[Task]:
        served = {order.queue for order in claim.queues}
        if claim.limited or any(lane.keyed and lane.queue in served for lane in self._all_lanes()):
            return await super().claim(claim)
        if any(order.share is not None for order in claim.queues):
            return await super().claim(claim)
        chosen = await self._choose(claim)
        return [taken for task in chosen if (taken := await self._take(task, claim)) is not None]

    async def _choose(self, claim: Claim) -> list[Task]:
        served = {order.queue for order in claim.queues}
        waiting = [task for task in await contents(self) if task.spec.queue in served and self._admits(claim, task)]
        if all(len(order.tables) == 1 for order in claim.queues):
            return sorted(waiting, key=lambda task: self._place(claim, task, 0))[: self._limit(claim)]
        chosen: list[Task] = []
        while waiting and len(chosen) < self._limit(claim):
            best = min(waiting, key=lambda task: self._place(claim, task, len(chosen)))
            waiting.remove(best)
            chosen.append(best)
        return chosen

    async def _take(self, task: Task, claim: Claim) -> Task | None:
        taken = as_claimed(task, claim)
        (verdict,) = await self.apply([Change(task.id, seen(task), taken.status)])
        return taken if verdict == "applied" else None

    def _all_lanes(self) -> list[Lane]:
        return [lane for queue in self._lanes.queues.values() for lane in queue.lanes]

    def _admits(self, claim: Claim, task: Task) -> bool:
        return task.state is State.QUEUED and claim.admits(task.lane)

    def _limit(self, claim: Claim) -> int:
        return claim.limit

    def _place(self, claim: Claim, task: Task, turn: int) -> tuple[object, ...]:
        status = task.status
        return service_key(self._table(claim, task, turn), status.priority, status.ready_at, task.id, claim.at)

    def _table(self, claim: Claim, task: Task, turn: int) -> Table:
        tables = next(order.tables for order in claim.queues if order.queue == task.spec.queue)
        return tables[turn % len(tables)]


class IgnoresCapabilities(WrongStore):
    """Gives a task to a worker that cannot run it."""

    breaks = "C1"

    async def claim(self, claim: Claim) -> list[Task]:
        needed = {name for queue in self._lanes.queues.values() for lane in queue.lanes for name in lane.requires}
        return await super().claim(replace(claim, capabilities=frozenset(needed)))


class NeedsOneCapabilityOnly(ChoosingStore):
    """Takes any common capability for all of them."""

    breaks = "C1"

    def _admits(self, claim: Claim, task: Task) -> bool:
        some = not task.spec.requires or bool(claim.capabilities.intersection(task.spec.requires))
        return some and super()._admits(claim, Task(replace(task.spec, requires=()), task.status))


class IgnoresTypes(ChoosingStore):
    """Gives a task to a worker that has no handler for it."""

    breaks = "C1"

    def _admits(self, claim: Claim, task: Task) -> bool:
        return super()._admits(replace(claim, types=None), task)


class TakesNoTypesForAllTypes(ChoosingStore):
    """Confuses an empty set with none given."""

    breaks = "C1"

    def _admits(self, claim: Claim, task: Task) -> bool:
        return super()._admits(replace(claim, types=claim.types or None), task)


class IgnoresExcludedTypes(ChoosingStore):
    """Gives out tasks of a type that is paused."""

    breaks = "C1"

    def _admits(self, claim: Claim, task: Task) -> bool:
        return super()._admits(replace(claim, excluded_types=frozenset()), task)


class ExceedsTheLimit(ChoosingStore):
    """Takes one more than it may."""

    breaks = "C1"

    def _limit(self, claim: Claim) -> int:
        return claim.limit + 1


class ClaimsScheduledTasks(ChoosingStore):
    """Takes due tasks before a sweep has queued them."""

    breaks = "C1"

    def _admits(self, claim: Claim, task: Task) -> bool:
        due = task.state is State.SCHEDULED and task.status.ready_at <= claim.at
        return super()._admits(claim, Task(task.spec, replace(task.status, state=State.QUEUED)) if due else task)


class BreaksTiesByTheNewest(ChoosingStore):
    """Serves the newest of equal tasks first."""

    breaks = "C2"

    def _place(self, claim: Claim, task: Task, turn: int) -> tuple[object, ...]:
        rank, start, task_id = super()._place(claim, task, turn)
        return rank, start, -int(str(task_id), 16)


class NeverPromotes(ChoosingStore):
    """Ranks by priority, however long a task has waited."""

    breaks = "C2"

    def _place(self, claim: Claim, task: Task, turn: int) -> tuple[object, ...]:
        line = self._line(claim, task, turn)
        return line.rank, task.status.ready_at - line.head_start, task.id

    def _line(self, claim: Claim, task: Task, turn: int) -> Line:
        return self._table(claim, task, turn)[task.status.priority]


class PromotesTooLate(NeverPromotes):
    """Promotes a task one moment after its time."""

    def _place(self, claim: Claim, task: Task, turn: int) -> tuple[object, ...]:
        line = self._line(claim, task, turn)
        rank = rank_after(line, claim.at - task.status.ready_at - 1)
        return rank, task.status.ready_at - line.head_start, task.id


class IgnoresHeadStarts(NeverPromotes):
    """Compares the waits of all priorities as they are."""

    def _place(self, claim: Claim, task: Task, turn: int) -> tuple[object, ...]:
        rank = rank_after(self._line(claim, task, turn), claim.at - task.status.ready_at)
        return rank, task.status.ready_at, task.id


class UsesOneTable(ChoosingStore):
    """Draws once for the whole claim."""

    breaks = "C2"

    def _table(self, claim: Claim, task: Task, turn: int) -> Table:
        return super()._table(claim, task, 0)


class ServesQueueAfterQueue(ChoosingStore):
    """Empties the first queue before it looks at the second."""

    breaks = "C2"

    def _place(self, claim: Claim, task: Task, turn: int) -> tuple[object, ...]:
        at = [order.queue for order in claim.queues].index(task.spec.queue)
        return at, *super()._place(claim, task, turn)


class ServesLaneAfterLane(ChoosingStore):
    """Empties one lane of a rank before it looks at the next."""

    breaks = "C2"

    def _place(self, claim: Claim, task: Task, turn: int) -> tuple[object, ...]:
        rank, *rest = super()._place(claim, task, turn)
        return rank, task.lane, *rest


class DoesNotRestartTheWait(ChoosingStore):
    """Serves a retry by the time its task first came."""

    breaks = "C2"

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[TaskId, Instant] = {}

    def _place(self, claim: Claim, task: Task, turn: int) -> tuple[object, ...]:
        ready_at = self._first.setdefault(task.id, task.status.ready_at)
        return super()._place(claim, Task(task.spec, replace(task.status, ready_at=ready_at)), turn)


class LeasesPastTheTimeout(ChoosingStore):
    """Ends a lease when the claim says, however short the task's timeout."""

    breaks = "C3"

    async def _take(self, task: Task, claim: Claim) -> Task | None:
        return await super()._take(task, replace(claim, grace=2**50))


class LeasesByTheFirstTimeout(ChoosingStore):
    """Ends a lease by the spec's timeout, though the status's has grown."""

    breaks = "C3"

    async def _take(self, task: Task, claim: Claim) -> Task | None:
        grown = task.status.timeout
        first = Task(task.spec, replace(task.status, timeout=task.spec.timeout))
        taken = await super()._take(first, claim)
        if taken is None:
            return None
        restored = Task(taken.spec, replace(taken.status, timeout=grown))
        await self._force(task, restored.status)
        return restored


class AnswersWithTheTaskAsItWas(ChoosingStore):
    """Gives the worker a task that is not yet executing."""

    breaks = "C3"

    async def _take(self, task: Task, claim: Claim) -> Task | None:
        await super()._take(task, claim)
        return task


class DoesNotCountAttempts(ChoosingStore):
    """Leaves the number that downstream systems fence on."""

    breaks = "C3"

    async def _take(self, task: Task, claim: Claim) -> Task | None:
        taken = await super()._take(task, claim)
        if taken is None:
            return None
        uncounted = Task(taken.spec, replace(taken.status, attempts=task.status.attempts))
        await self._force(task, uncounted.status)
        return uncounted


class ChoosesBeforeItTakes(ChoosingStore):
    """Chooses in one step and takes in another."""

    breaks = "C4"

    async def _choose(self, claim: Claim) -> list[Task]:
        chosen = await super()._choose(claim)
        await asyncio.sleep(GAP)
        return chosen

    async def _take(self, task: Task, claim: Claim) -> Task | None:
        taken = as_claimed(task, claim)
        await self._force(task, taken.status)
        return taken


class ClaimsEndedLeases(ChoosingStore):
    """Takes a task from a worker that is late, without a decision."""

    breaks = "C4"

    def _admits(self, claim: Claim, task: Task) -> bool:
        late = task.state is State.EXECUTING and (task.status.alarm or 0) <= claim.at
        return super()._admits(claim, Task(task.spec, replace(task.status, state=State.QUEUED)) if late else task)


class BlocksTheLine(ChoosingStore):
    """Stops at the first task that the worker may not take."""

    breaks = "C5"

    async def _choose(self, claim: Claim) -> list[Task]:
        served = {order.queue for order in claim.queues}
        waiting = [task for task in await contents(self) if task.spec.queue in served and task.state is State.QUEUED]
        return self._until_blocked(sorted(waiting, key=lambda task: self._place(claim, task, 0)), claim)

    def _until_blocked(self, line: Sequence[Task], claim: Claim) -> list[Task]:
        chosen: list[Task] = []
        for task in line:
            if len(chosen) == claim.limit or not self._admits(claim, task):
                break
            chosen.append(task)
        return chosen


class LooksAtTheFirstHundred(BlocksTheLine):
    """Looks at so many tasks and gives up."""

    def _until_blocked(self, line: Sequence[Task], claim: Claim) -> list[Task]:
        return [task for task in line[:100] if self._admits(claim, task)][: claim.limit]
