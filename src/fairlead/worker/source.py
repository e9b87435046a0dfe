"""Where a worker gets its tasks from, settles them and is registered: the engine here, a server elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from fairlead._version import __version__
from fairlead.admin.engine import AdminEngine
from fairlead.admin.sweeper import Sweeper
from fairlead.core.errors import LeaseLost, StoreError, StoreReadOnly, WorkerNotFound
from fairlead.core.identity import WorkerId
from fairlead.core.instant import SECOND
from fairlead.core.queues.shares import WorkerShares
from fairlead.core.task import State, Task
from fairlead.engine.engine import Settlement
from fairlead.engine.runtime.telemetry import Logger
from fairlead.engine.worker_records import KindSlots
from fairlead.storage.values import Beat, Pulse
from fairlead.worker.slots import WorkerSlots

log = Logger("fairlead.worker")

_HEAD_START: Final = 2
"""So many turns of the event loop pass from a slot's coming free until the claim for it is sent."""


class Source(Protocol):
    """The other side of a worker."""

    @property
    def paused(self) -> bool:
        """Whether the worker was paused by the time of its last claim, and got nothing for that."""
        ...

    @property
    def interval(self) -> float:
        """How often, in seconds, to look for tasks of one kind of handler while another kind is at work."""
        ...

    async def claim(self, limit: int, types: frozenset[str] | None = None) -> list[Task]:
        """The best tasks of the worker's types, or of some of these."""
        ...

    async def report(self, beats: Sequence[Beat]) -> list[Pulse]: ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[Task | LeaseLost]: ...

    async def wait(self, limit: int, timeout: float) -> list[Task] | None:
        """Sleep until there may be work; what was claimed of it, or None if it is yet to be claimed.

        Cancelled when it has claimed tasks, it returns them; when the store does not say whether it has, it raises
        StoreUnavailable.
        """
        ...

    async def unserved(self) -> dict[str, int]:
        """The ready tasks in the worker's queues whose types neither it nor another live worker can run, by type."""
        ...

    async def join(self, slots: Sequence[KindSlots]) -> float:
        """Make the worker known; how many seconds to leave between two beats."""
        ...

    async def beat(self, running: int, slots: Sequence[KindSlots], *, draining: bool) -> bool:
        """Say that the worker lives and what it runs; whether it is asked to drain.

        Raises WorkerNotFound when it must join again.
        """
        ...

    async def leave(self) -> None:
        """Say that the worker is no more."""
        ...

    async def upkeep(self) -> None:
        """The duties that go with working, until cancelled."""
        ...


class EngineSource:
    """Tasks straight from an engine."""

    interval: Final = 0.05

    def __init__(
        self,
        engine: AdminEngine,
        worker: WorkerId,
        queues: Sequence[str],
        capabilities: Collection[str],
        types: Collection[str],
        shares: WorkerShares | None = None,
    ) -> None:
        """`shares` says how the queues share the worker, if they do."""
        self._engine = engine
        self._worker = worker
        self._queues = queues
        self._shares = shares
        self._capabilities = frozenset(capabilities)
        self._types = frozenset(types)

        self._freed = asyncio.Event()
        """Set when a task has ended that may have kept another one waiting."""
        self._limited = False
        """Whether a task was claimed that may keep another one waiting."""

    @property
    def paused(self) -> bool:
        return self._worker in self._engine.queue_cache.paused_workers

    async def claim(self, limit: int, types: frozenset[str] | None = None) -> list[Task]:
        self._freed.clear()
        wanted = self._types if types is None else types
        tasks = await self._engine.claim(
            self._worker,
            self._queues,
            limit=limit,
            capabilities=self._capabilities,
            types=wanted,
            shares=self._shares,
        )
        self._limited = self._limited or self._hold_back(tasks)
        return tasks

    async def report(self, beats: Sequence[Beat]) -> list[Pulse]:
        return await self._engine.heartbeat(beats)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Task | LeaseLost]:
        if self._engine.is_served:
            # The claim for the slots that these tasks have left goes first: a server answers it while they are
            # decided, and settles them while what it gave runs. One that finds both at once does both, then answers.
            for _ in range(_HEAD_START):
                await asyncio.sleep(0)
        answers = await self._engine.settle(settlements)
        if self._limited and self._hold_back([settlement.task for settlement in settlements]):
            self._freed.set()
        return answers

    async def wait(self, limit: int, timeout: float) -> list[Task] | None:
        if not self._limited:
            return await self._engine.wait(
                self._worker,
                self._queues,
                timeout,
                limit=limit,
                capabilities=self._capabilities,
                types=self._types,
                shares=self._shares,
            )
        # No bell rings for a place that is free again: who has freed it looks who was waiting for it.
        ring = self._engine.queue_cache.wait(self._queues, timeout, self._worker)
        waits = [asyncio.ensure_future(ring), asyncio.ensure_future(self._freed.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if waits[0].done():
                waits[0].result()
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        return None

    def _hold_back(self, tasks: Sequence[Task]) -> bool:
        """Whether others may wait for one of these tasks to end."""
        limits = self._engine.queue_cache.limits
        return any(task.spec.concurrency_key is not None or task.spec.queue in limits for task in tasks)

    async def unserved(self) -> dict[str, int]:
        # Mostly there are none: only then it is looked what the other workers can run.
        lanes = [
            each
            for each in (await self._engine.store.tally()).lanes
            if each.counts.get(State.QUEUED) and each.lane.queue in self._queues and each.lane.type not in self._types
        ]
        found = await self._engine.unserved(lanes) if lanes else {}
        counts: Counter[str] = Counter()
        for each in lanes:
            if each.lane.queue in found:
                named = {kind.type for kind in found[each.lane.queue].first}
                # Without a type it is all of the queue: the record of this worker itself is yet to be written.
                if each.lane.type in named or None in named:
                    counts[each.lane.type] += each.counts[State.QUEUED]
        return dict(counts)

    async def join(self, slots: Sequence[KindSlots]) -> float:
        await self._engine.worker_records.register(
            self._worker,
            queues=self._queues,
            capacity=sum(each.capacity for each in slots),
            slots=slots,
            capabilities=self._capabilities,
            types=self._types,
            host=platform.node(),
            pid=os.getpid(),
            version=__version__,
        )
        return self._engine.settings.heartbeat / SECOND

    async def beat(self, running: int, slots: Sequence[KindSlots], *, draining: bool) -> bool:
        by_kind: dict[str, int] = {each.kind: each.running for each in slots}
        return await self._engine.worker_records.beat(self._worker, running=running, draining=draining, by_kind=by_kind)

    async def leave(self) -> None:
        await self._engine.worker_records.leave(self._worker)

    async def upkeep(self) -> None:
        await Sweeper(self._engine).run()


_RETRY_FIRST: Final = 0.1
_RETRY_MOST: Final = 5.0


class Outage:
    """A store that fails: said once, waited out with growing pauses, said when it is over."""

    def __init__(self, intent: str) -> None:
        self._intent = intent
        self._pause = _RETRY_FIRST
        self._began: float | None = None

    async def wait(self, error: StoreError) -> None:
        """Let some time pass; raises what will never pass."""
        if isinstance(error, StoreReadOnly) and error.lasting:
            raise error
        if self._began is None:
            self._began = time.monotonic()
            log.warning("cannot %s, retrying until it works: %s", self._intent, error)
        await asyncio.sleep(self._pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads retries, guards nothing
        self._pause = min(self._pause * 2, _RETRY_MOST)

    def end(self) -> None:
        if self._began is not None:
            log.warning("can %s again after %.1f s", self._intent, time.monotonic() - self._began)
            self._began = None
            self._pause = _RETRY_FIRST


_JOIN_INTERVAL: Final = 1.0
"""Seconds after which a worker that could not join tries again."""

_LAST_WORDS: Final = 5.0


class Registration:
    """Joins, beats while the worker works or drains, and leaves."""

    def __init__(
        self, source: Source, slots: WorkerSlots, running: Callable[[], int], failed: Callable[[int], None]
    ) -> None:
        """`failed` is told how many beats did not arrive."""
        self._failed = failed
        self._source = source
        self._slots = slots
        self._running = running

    async def keep(self, leaving: asyncio.Event, leave: Callable[[], None]) -> None:
        """Beat until cancelled; call `leave` when the worker is asked to drain, and say so when it is leaving."""
        interval: float | None = None
        while True:
            asked = False
            try:
                if interval is None:
                    interval = await self._source.join(self._slots.counts)
                asked = await self._source.beat(self._running(), self._slots.counts, draining=leaving.is_set())
            except WorkerNotFound:
                interval = None
            except StoreError:
                # A worker that cannot say so lives all the same.
                self._failed(1)
            if asked and not leaving.is_set():
                log.info("drain requested for this worker")
                leave()
            pause = _JOIN_INTERVAL if interval is None else interval
            if leaving.is_set():
                await asyncio.sleep(pause)
            else:
                # That it drains is said at once.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(leaving.wait(), pause)

    async def end(self) -> None:
        """Say that the worker is no more, if the store can be reached."""
        with contextlib.suppress(StoreError, TimeoutError):
            await asyncio.wait_for(self._source.leave(), _LAST_WORDS)
