"""The sweep: answers alarms, wherever it runs.

Any number of processes may sweep at once: every change is a compare-and-set, so the slower one's is stale and nothing
happens twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Sequence

from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.sessions import SessionRecords
from fairlead.admin.operations import BELL, KIND
from fairlead.core.errors import StoreError, StoreReadOnly
from fairlead.core.health.clock_watch import LeaseTerms, Watches
from fairlead.core.health.diagnosis import Level
from fairlead.core.identity import TaskId
from fairlead.core.instant import AT_ONCE, MINUTE, SECOND, Instant, Span
from fairlead.engine.events.feed import forget_feed
from fairlead.storage.protocol import OnDisk, Store, Upkept

SESSION_INTERVAL: Span = 10 * MINUTE
"""How often each looks for sessions that are over."""

_BATCH = 1_000
_PAGES = 20
"""How many batches of leases are cut at once; the rest the next time."""
_OPERATIONS_EVERY = 60
"""At every so many looks whether the bell of the operations rang, they themselves are looked for."""
_WORKERS_PER_LOOK = 10
"""For so many workers each waits one heartbeat longer before it looks at all of them."""


log = logging.getLogger("fairlead.engine")


class Sweeper:
    """Sweeps one engine's store at an interval."""

    def __init__(self, engine: AdminEngine, *, log: logging.Logger | None = None) -> None:
        """With a log, where nobody else in this process says by itself that the store fails."""
        self._engine = engine
        self._log = log
        self._failed_at: Span | None = None
        self._terms: Sequence[LeaseTerms] = [engine.worker_records.own_terms]
        self._watch = Watches.of(self._terms)
        self._curtail_at: Span = 0
        self._tidy_at: Span = 0
        self._sessions = SessionRecords(engine.records)
        self._sessions_at: Span = 0

    async def run(self) -> None:
        """Sweep, work on operations, and do the store's own duties if it has any, until cancelled."""
        store = self._engine.store
        _warn_if_open(store)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweep())
            group.create_task(self._operate())
            if isinstance(store, Upkept):
                group.create_task(store.upkeep(self._engine.settings.rules))

    async def _operate(self) -> None:
        """Work on operations once anybody has begun one: until then nothing of them is imported."""
        store = self._engine.store
        for look in itertools.count():
            with contextlib.suppress(StoreError):
                # Who began one may have died before ringing.
                if await store.scan(BELL) or (look % _OPERATIONS_EVERY == 0 and await store.scan(KIND)):
                    break
            await asyncio.sleep(self._engine.settings.sweep_interval / SECOND)
        await self._engine.operations.operator.run()

    async def _sweep(self) -> None:
        """Sweep until cancelled, or for as long as the store may be written. One that fails is tried again."""
        interval = self._engine.settings.sweep_interval / SECOND
        while True:
            try:
                await self.turn()
            except StoreError as error:
                self._tell(error)
                if isinstance(error, StoreReadOnly) and error.lasting:
                    return
            else:
                self._tell(None)
            # Sweepers do not coordinate, they spread out; within the interval, which is how late a task may be due.
            await self._rest(interval * (0.6 + 0.35 * self._engine.draw()))

    async def _rest(self, seconds: float) -> None:
        """Let time pass; where leases are shorter than the pauses between sweeps, the clock is watched all the same."""
        longest = self._watch.gap / SECOND / 2
        while seconds > longest:
            await asyncio.sleep(longest)
            seconds -= longest
            try:
                await self._look()
            except StoreError:
                self._watch = self._watch.failed()
        await asyncio.sleep(seconds)

    def _tell(self, error: StoreError | None) -> None:
        """Say once that the store fails, and once that it has been well for a while: some sweeps only look."""
        if self._log is None:
            return
        now = self._engine.clock.monotonic()
        if error is not None:
            if self._failed_at is None:
                self._log.error("cannot sweep the store, retrying until it works: %s", error)
            self._failed_at = now
        elif self._failed_at is not None and now - self._failed_at > 2 * self._engine.settings.heartbeat:
            self._failed_at = None
            self._log.warning("sweeping the store works again")

    async def turn(self) -> None:
        """Sweep, and tidy if it is time for that."""
        await self.once()
        if self._watch.is_calm and self._engine.clock.monotonic() >= self._tidy_at:
            await self.tidy()

    async def once(self) -> int:
        """Fire the schedules that are due, and answer every alarm that has come; how many alarms were looked at.

        Nothing is answered for one lease length after the clock has jumped, and no lease that has ended before the
        clock has been watched for as long: live leases look lost when it was set forward, or nobody could renew them.
        """
        seen_before = self._watch
        try:
            await self._look()
            await self._curtail()
            return await self._answer() if self._watch.is_calm else 0
        except StoreError:
            # It shows the time, and may have let nobody renew a lease: it is as if it had not been looked at.
            self._watch = seen_before.failed().over(self._terms)
            raise

    async def _answer(self) -> int:
        # Before the alarms, which may forget a task that a schedule has yet to cross off. A store that cannot take a
        # schedule's task can still forget others.
        with contextlib.suppress(StoreError):
            await self._engine.schedules.fire()
        seen = 0
        after: tuple[Instant, TaskId] | None = None
        while tasks := await self._engine.sweep(_BATCH, after, watched=self._watched):
            seen += len(tasks)
            if len(tasks) < _BATCH:
                break
            last = tasks[-1]
            after = (last.status.alarm or 0, last.id)
            # However much there is to do, nobody is to say that the clock was not watched meanwhile.
            await self._look()
        return seen

    async def tidy(self) -> None:
        """Look after what is no task: workers, counts, a feed that no one wants, sessions that are over."""
        engine = self._engine
        await engine.worker_records.report()
        await engine.share_promotions()
        await forget_feed(engine.records, engine.clock.now())
        workers = 0
        # Workers look lost for the reasons for which leases look ended.
        if self._watched_from is not None:
            workers = await engine.worker_records.sweep()
            await engine.lost_tasks.forget()
        if engine.clock.monotonic() >= self._sessions_at:
            await self._sessions.tidy(engine.clock.now())
            self._sessions_at = engine.clock.monotonic() + round(SESSION_INTERVAL * (0.75 + 0.5 * engine.draw()))
        self._tidy_at = engine.clock.monotonic() + round(self._pause(workers) * (0.75 + 0.5 * engine.draw()))

    def _pause(self, workers: int) -> Span:
        """Everyone looks at everyone, so the more there are the more seldom each should."""
        return min(self._engine.settings.heartbeat * (1 + workers // _WORKERS_PER_LOOK), MINUTE)

    async def _look(self) -> None:
        """Look at the store's clocks."""
        stepped = self._watch.stepped
        self._watch = self._watch.after(await self._engine.look_at_clocks())
        if self._watch.stepped != stepped:
            self._curtail_at = 0

    async def _watched(self) -> Instant | None:
        """Since when the clock has been watched, if it may be believed that leases have ended; else None."""
        await self._look()
        return self._watched_from

    @property
    def _watched_from(self) -> Instant | None:
        """The same, by what has been seen until now."""
        if self._engine.clock.given() is not None:
            # Nobody's clock: who gives the time says how it passes.
            return AT_ONCE if self._watch.is_calm else None
        return self._watch.from_when

    async def _curtail(self) -> None:
        """Cut leases that end too late, now and then: whoever held them must be missed in time.

        How long a lease may be is looked up just before: a worker says so before it has any.
        """
        now = self._engine.clock.monotonic()
        if now >= self._curtail_at:
            self._terms = await self._engine.worker_records.terms()
            self._watch = self._watch.over(self._terms)
            self._curtail_at = now + self._pause(len(self._terms))
            for _ in range(_PAGES):
                # A store may cut fewer at a time than it is asked for.
                if not await self._engine.curtail_leases(_BATCH, self._watch.length):
                    return


def _warn_if_open(store: Store) -> None:
    """Say in the log if every user of this host may open the store's files: once in each process that sweeps."""
    if isinstance(store, OnDisk):
        with contextlib.suppress(OSError):
            found = store.privacy()
            if found.level is Level.RED:
                log.warning("%s; %s", found.value, found.remedy)
