"""Claiming: from what a worker can take to tasks that it holds."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.identity import WorkerId
from fairlead.core.instant import SECOND
from fairlead.core.task import Task
from fairlead.engine.clock import FollowingClock
from fairlead.engine.identity import Chance, IdMaker
from fairlead.engine.ledger import Ledger
from fairlead.storage.protocol import Prompt
from fairlead.storage.values import Claim, QueueOrder


class Wish(Struct, frozen=True):
    """What a worker can take."""

    worker: WorkerId
    queues: Sequence[str]
    limit: int
    capabilities: Collection[str]
    types: Collection[str] | None
    """None for any."""


class Claims:
    """Gives tasks to workers."""

    def __init__(self, ledger: Ledger, chance: Chance, ids: IdMaker) -> None:
        self._ledger = ledger
        self._store = ledger.store
        self._settings = ledger.settings
        self._clock = ledger.clock
        self._book = ledger.book
        self._breakers = ledger.breakers
        self._chance = chance
        self._ids = ids

    @property
    def are_served(self) -> bool:
        """Whether a server makes them, which works while this process does: it has a clock of its own."""
        return isinstance(self._clock, FollowingClock) and self._clock.follows

    async def claim(self, wish: Wish) -> list[Task]:
        """The best ready tasks."""
        await self._look()
        claim = self._claim_of(wish)
        if not claim.queues:
            return []
        tasks = await self._breakers.probe(claim, self._book.paused_types) if self._breakers.withheld else []
        if len(tasks) < wish.limit:
            tasks += await self._store.claim(replace(claim, limit=wish.limit - len(tasks)) if tasks else claim)
        self._ledger.tell_started(tasks, claim)
        await self._ledger.finish()
        return tasks

    async def wait(self, wish: Wish, timeout: float) -> list[Task] | None:
        """The best ready tasks once there may be some; None if they are yet to be claimed.

        They are claimed by what is known when the wait begins, so that lasts no longer than this is fresh.
        """
        if isinstance(self._store, Prompt) and self.are_served:
            await self._look()
            claim = self._claim_of(wish)
            if claim.queues and not claim.limited and not self._breakers.withheld:
                tasks = await self._store.wait_and_claim(claim, min(timeout, self._book.fresh_for / SECOND))
                if tasks:
                    # What this tells is published with the next operation's: cancelled here, it would lose the tasks.
                    self._ledger.tell_started(tasks, claim)
                return tasks
        await self._book.wait(wish.queues, timeout)
        return None

    async def _look(self) -> None:
        """Learn what the next claim goes by, if that is due."""
        if self._book.stale:
            await self._book.refresh()
        if self._breakers.due:
            await self._breakers.share()

    def _claim_of(self, wish: Wish) -> Claim:
        """The claim of those of the queues that are not paused."""
        book, now = self._book, self._clock.now()
        return Claim(
            queues=tuple(
                QueueOrder(
                    queue,
                    book.settings_of(queue).order.tables(wish.limit, self._chance.random),
                    book.limits.get(queue),
                )
                for queue in wish.queues
                if queue not in book.paused
            ),
            worker=wish.worker,
            token=self._ids.token(),
            now=now,
            until=now + self._settings.lease,
            grace=self._settings.grace,
            limit=wish.limit,
            capabilities=frozenset(wish.capabilities),
            types=None if wish.types is None else frozenset(wish.types),
            excluded_types=book.excluded_types,
        )
