"""Claiming: from what a worker can take to tasks that it holds."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import StoreError
from fairlead.core.events import Expired, HandedBack, Returned
from fairlead.core.identity import TaskId, WorkerId, registered_token, registration_of
from fairlead.core.instant import SECOND
from fairlead.core.queues.order import passed_after, share_of
from fairlead.core.queues.shares import Passes, WorkerShares, moved
from fairlead.core.task import Task
from fairlead.core.transitions import is_late
from fairlead.engine.changes import TaskChanges, changed
from fairlead.engine.events.types import Happening, tell_foreign
from fairlead.engine.runtime.clock import FollowingClock
from fairlead.engine.runtime.ids import Chance, IdMaker
from fairlead.engine.settle import Settlement, settle
from fairlead.storage.protocol import Prompt
from fairlead.storage.values import APPLIED, Claim, Held, QueueOrder

_ROUNDS: Final = 100
"""How often one claim looks past tasks of other tenants."""
_REMEMBERED: Final = 10_000
"""How many of them the log tells of once each."""


class ClaimRequest(Struct, frozen=True):
    """What a worker can take."""

    worker: WorkerId
    queues: Sequence[str]
    limit: int
    capabilities: Collection[str]
    types: Collection[str] | None
    """None for any."""
    tenant: str | None = None
    """The only tenant whose tasks it may see; None for any."""
    registration: str = ""
    """The registration that the leases are to name."""
    shares: WorkerShares | None = None
    """How its queues share it; None if it takes the best over all of them."""


class Claims:
    """Gives tasks to workers."""

    def __init__(self, task_changes: TaskChanges, chance: Chance, ids: IdMaker) -> None:
        self._task_changes = task_changes
        self._store = task_changes.store
        self._settings = task_changes.settings
        self._clock = task_changes.clock
        self._queue_cache = task_changes.queue_cache
        self._breakers = task_changes.breakers
        self._chance = chance
        self._ids = ids
        self._shares = Passes()
        self._passed: dict[str, int] = {}
        """By queue, how often others were served since a promoted task was."""
        self._reported: set[TaskId] = set()
        """The tasks of other tenants that the log has told of."""
        self._expiring: set[asyncio.Future[None]] = set()
        """The ends of late tasks that are under way beside a wait."""

    @property
    def are_served(self) -> bool:
        """Whether a server makes them, which works while this process does: it has a clock of its own."""
        return isinstance(self._clock, FollowingClock) and self._clock.follows

    def passed_of(self, queue: str) -> int:
        """How often others were served since a promoted task was, as far as this engine has claimed."""
        share = share_of(self._queue_cache.settings_of(queue).order)
        # The first promoted task that is met is served: it may have waited for a turn at others.
        return 0 if share is None else self._passed.get(queue, share.due)

    async def claim(self, wish: ClaimRequest) -> list[Task]:
        """The best ready tasks."""
        await self._look()
        claim = self._claim_of(wish)
        if not claim.queues:
            return []
        take = self._take if wish.tenant is None else functools.partial(self._take_own, wish.tenant)
        tasks = await take(claim)
        if any(map(_is_late, tasks)):
            tasks = await self._in_time(take, claim, tasks)
        self._count_turns(wish, claim, tasks)
        self._task_changes.tell_started(tasks, claim)
        await self._task_changes.finish()
        return tasks

    async def _take(self, claim: Claim) -> list[Task]:
        """The best ready tasks, probes first."""
        tasks = await self._breakers.probe(claim, self._queue_cache.paused_types) if self._breakers.withheld else []
        if len(tasks) < claim.limit:
            tasks += await self._store.claim(replace(claim, limit=claim.limit - len(tasks)) if tasks else claim)
        return tasks

    async def _take_own(self, tenant: str, claim: Claim) -> list[Task]:
        """The best ready tasks of one tenant.

        A submit by who has yet to learn that a queue is bound can leave another's task in it. Such a task is held until
        the claim is over, so that it is not found again in place of those behind it, and then returned unseen.
        """
        own: list[Task] = []
        foreign: list[Task] = []
        try:
            for _ in range(_ROUNDS):
                token = registered_token(self._ids.token(), registration_of(claim.token))
                asked = replace(claim, limit=claim.limit - len(own), token=token)
                try:
                    found = await self._take(asked)
                except StoreError:
                    if not own:
                        raise
                    break  # What it has taken by now is to be run all the same.
                own += [task for task in found if task.spec.tenant == tenant]
                strangers = [task for task in found if task.spec.tenant != tenant]
                foreign += strangers
                if not strangers or len(own) >= claim.limit:
                    break
        finally:
            if foreign:
                # What the store does not take back now, it takes back when the leases end.
                with contextlib.suppress(StoreError):
                    await self._return(foreign)
        return own

    async def _return(self, foreign: Sequence[Task]) -> None:
        """Undo the claims of tasks that the worker may not see, and report them."""
        now = self._clock.now()
        leases = [task.status.lease for task in foreign]
        changes = [
            self._task_changes.decide(task, Returned(), now, Held(task.status.version, lease.token))
            for task, lease in zip(foreign, leases, strict=True)
            if lease is not None
        ]
        verdicts = await self._task_changes.apply(changes)
        for task, change, verdict in zip(foreign, changes, verdicts, strict=True):
            if verdict is APPLIED:
                self._task_changes.note(Happening.FOREIGN, now, changed(task, change))
                if task.id not in self._reported:
                    self._reported = {*self._reported, task.id} if len(self._reported) < _REMEMBERED else {task.id}
                    tell_foreign(task)
        left = [task for task, verdict in zip(foreign, verdicts, strict=True) if verdict is not APPLIED]
        if left:  # Cancelled just now: decided as for any task that its worker gives back.
            await settle(self._task_changes, [Settlement(task, HandedBack()) for task in left])

    async def wait(self, wish: ClaimRequest, timeout: float) -> list[Task] | None:
        """The best ready tasks once there may be some; None if they are yet to be claimed.

        They are claimed by what is known when the wait begins, so that lasts no longer than this is fresh.
        """
        if isinstance(self._store, Prompt) and self.are_served:
            await self._look()
            claim = self._claim_of(wish)
            if claim.queues and wish.tenant is None and not claim.limited and not self._breakers.withheld:
                tasks = await self._store.wait_and_claim(claim, min(timeout, self._queue_cache.fresh_for / SECOND))
                if tasks and any(map(_is_late, tasks)):
                    tasks = await self._spare(tasks) or None
                if tasks:
                    self._count_turns(wish, claim, tasks)
                    # What this tells is published with the next operation's: cancelled here, it would lose the tasks.
                    self._task_changes.tell_started(tasks, claim)
                return tasks
        await self._queue_cache.wait(wish.queues, timeout, wish.worker)
        return None

    async def _in_time(
        self, take: Callable[[Claim], Awaitable[list[Task]]], claim: Claim, tasks: list[Task]
    ) -> list[Task]:
        """Those of the tasks that may be started, and others in place of those that may not."""
        found, tasks = tasks, []
        for _ in range(_ROUNDS):
            late = [task for task in found if _is_late(task)]
            tasks += [task for task in found if not _is_late(task)]
            if not late:
                break
            try:
                await self._expire(late)
                if len(tasks) >= claim.limit:
                    break
                token = registered_token(self._ids.token(), registration_of(claim.token))
                found = await take(replace(claim, limit=claim.limit - len(tasks), token=token))
            except StoreError:
                if not tasks:
                    raise
                break  # What it has taken by now is to be run all the same.
        return tasks

    async def _spare(self, tasks: list[Task]) -> list[Task]:
        """Those of the tasks that may be started, also if this is cancelled: they were claimed."""
        late = [task for task in tasks if _is_late(task)]
        expiring = asyncio.ensure_future(self._expire(late))
        self._expiring.add(expiring)
        expiring.add_done_callback(self._expiring.discard)
        # What the store does not take now is taken back when the leases end.
        with contextlib.suppress(StoreError, asyncio.CancelledError):
            await asyncio.shield(expiring)
        return [task for task in tasks if not _is_late(task)]

    async def _expire(self, late: Sequence[Task]) -> None:
        """End tasks that were claimed too late, as if they had never been taken."""
        now = self._clock.now()
        leases = [task.status.lease for task in late]
        changes = [
            self._task_changes.decide(task, Expired(), now, Held(task.status.version, lease.token))
            for task, lease in zip(late, leases, strict=True)
            if lease is not None
        ]
        verdicts = await self._task_changes.apply(changes)
        for task, change, verdict in zip(late, changes, verdicts, strict=True):
            if verdict is APPLIED:
                self._task_changes.tell_change(task, change, now)
        left = [task for task, verdict in zip(late, verdicts, strict=True) if verdict is not APPLIED]
        if left:  # Cancelled just now: decided as for any task that its worker gives back.
            await settle(self._task_changes, [Settlement(task, HandedBack()) for task in left])

    async def _look(self) -> None:
        """Learn what the next claim goes by, if that is due."""
        if self._queue_cache.stale:
            await self._queue_cache.refresh()
        if self._breakers.due:
            await self._breakers.share()

    def _claim_of(self, wish: ClaimRequest) -> Claim:
        """The claim of those of the queues that are not paused: of none, if the worker is."""
        queue_cache = self._queue_cache
        queues = () if wish.worker in queue_cache.paused_workers else wish.queues
        orders = tuple(
            self._order_of(queue, wish.limit)
            for queue in queues
            if queue not in queue_cache.paused
            and (wish.tenant is None or queue_cache.tenants.get(queue) == wish.tenant)
        )
        return Claim(
            queues=orders if wish.shares is None else self._shared(orders, wish.shares),
            worker=wish.worker,
            token=registered_token(self._ids.token(), wish.registration),
            now=self._clock.given(),
            lease=self._settings.lease,
            grace=self._settings.grace,
            limit=wish.limit,
            capabilities=frozenset(wish.capabilities),
            types=None if wish.types is None else frozenset(wish.types),
            excluded_types=queue_cache.excluded_types,
        )

    def _order_of(self, queue: str, limit: int) -> QueueOrder:
        policy = self._queue_cache.settings_of(queue).order
        return QueueOrder(
            queue,
            policy.tables(limit, self._chance.random),
            self._queue_cache.limits.get(queue),
            share_of(policy),
            self.passed_of(queue),
        )

    def _shared(self, orders: Sequence[QueueOrder], shares: WorkerShares) -> tuple[QueueOrder, ...]:
        """The queues of a claim, of which the one that has had the least for its weight comes first."""
        names = self._shares.order([order.queue for order in orders], shares)
        at = {queue: place for place, queue in enumerate(names)}
        return tuple(
            replace(order, tables=moved(order.tables, at[order.queue], len(orders), shares.among)) for order in orders
        )

    def _count_turns(self, wish: ClaimRequest, claim: Claim, tasks: Sequence[Task]) -> None:
        """Remember whose turn it is next: over claims, since most claims of a worker that is nearly full are of one."""
        if wish.shares is not None:
            queues = [order.queue for order in claim.queues]
            self._shares.served(queues, wish.shares, Counter(task.spec.queue for task in tasks))
        for order in claim.queues:
            if order.share is None:
                continue
            own = tasks if len(claim.queues) == 1 else [task for task in tasks if task.spec.queue == order.queue]
            waits = [
                ((status := task.status).priority, (status.started_at or status.ready_at) - status.ready_at)
                for task in own
            ]
            self._passed[order.queue] = passed_after(order.turns, waits)


def _is_late(task: Task) -> bool:
    """Whether a task was claimed too late, by the clock that says when."""
    status = task.status
    return status.expires_at is not None and is_late(task, status.started_at or 0)
