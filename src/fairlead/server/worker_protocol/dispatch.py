"""Dispatch: a thousand workers wait for tasks, and the store has one who waits for it.

A poll first claims for itself. If there is nothing it joins the line of its queues, where one wait on the store stands
for all. When the store rings, those who waited longest are claimed for first; as long as a claim gives all that was
asked for, the next one has its turn. Workers that can take the same tasks form a group, and a claim that comes back
short speaks for all of the group: so one submit costs a claim or two, however many wait.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Awaitable
from typing import Any, Final

from msgspec import Struct

from fairlead.admin.engine import AdminEngine
from fairlead.core.errors import StoreError
from fairlead.core.events import HandedBack
from fairlead.core.identity import WorkerId
from fairlead.core.task import Lane, State, Task
from fairlead.engine.engine import Settlement

RECHECK: Final = 1.0
"""Seconds after which a line looks for tasks that nobody rang for: signals are hints, this is the truth."""

_FEW: Final = 8
"""How many groups are simply claimed for; of more, only those for which there is something."""

_TRIES: Final = 2

_FIRST_PAUSE: Final = 0.002
_LONGEST_PAUSE: Final = 0.05
"""Seconds that a line rests after it served in vain, longer each time: a busy queue may have nothing for it."""


class PollTerms(Struct, frozen=True):
    """What a worker can take; workers with the same wish are in one group."""

    queues: tuple[str, ...]
    capabilities: frozenset[str]
    types: frozenset[str] | None
    tenant: str | None = None
    """The only tenant whose tasks it may see; None for any."""

    def admits(self, lane: Lane) -> bool:
        """Whether the worker may take tasks of this lane."""
        return (
            lane.queue in self.queues
            and (self.types is None or lane.type in self.types)
            and self.capabilities.issuperset(lane.requires)
        )


class Waiter:
    """One poll that waits."""

    def __init__(self, worker: WorkerId, limit: int, number: int, registration: str) -> None:
        self.worker = worker
        self.registration = registration
        self.limit = limit
        self.number = number
        """Its place among all that wait: the smaller number has waited longer."""
        self.tasks: asyncio.Future[list[Task]] = asyncio.get_running_loop().create_future()
        self._claiming = False
        self._over = False

    def end(self) -> None:
        """Wait no more; if a claim is under way, what it gives is still given."""
        self._over = True
        if not self._claiming:
            self._give([])

    async def serve(self, claim: Awaitable[list[Task]]) -> list[Task]:
        """Claim for this poll, which ends if that gives something."""
        self._claiming = True
        tasks: list[Task] = []
        try:
            tasks = await claim
        finally:
            self._claiming = False
            if tasks or self._over:
                self._give(tasks)
        return tasks

    def _give(self, tasks: list[Task]) -> None:
        if not self.tasks.done():
            self.tasks.set_result(tasks)


class Dispatcher:
    """The lines of one server."""

    def __init__(self, engine: AdminEngine, stopping: asyncio.Event, recheck: float = RECHECK) -> None:
        self._engine = engine
        self._stopping = stopping
        self._recheck = recheck
        self._lines: dict[tuple[str, ...], _Line] = {}
        self._numbers = itertools.count()
        self._watch: asyncio.Task[None] | None = None
        self.claims = 0
        """How many claims were made."""

    @property
    def waiting(self) -> int:
        """How many polls wait."""
        return sum(line.waiting for line in self._lines.values())

    async def poll(
        self,
        worker: WorkerId,
        wish: PollTerms,
        limit: int,
        seconds: float,
        gone: asyncio.Future[object],
        registration: str = "",
    ) -> list[Task]:
        """The best tasks for a worker, as soon as there are any; none when the time is up, or it is gone.

        A worker that is paused joins no line, where it would stand in the way of others, but looks now and then whether
        it still is.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        while (left := ends - loop.time()) > 0 and not self._stopping.is_set():
            if not self._is_paused(worker):
                tasks = await self._poll(worker, wish, limit, left, gone, registration)
                if tasks or gone.done() or not self._is_paused(worker):
                    return tasks
            await self.pass_time(min(left, self._recheck), gone)
            if gone.done():
                return []
            await self._engine.queue_cache.refresh()
        return await self.claim(worker, wish, limit, registration)

    def _is_paused(self, worker: WorkerId) -> bool:
        return worker in self._engine.queue_cache.paused_workers

    async def _poll(
        self,
        worker: WorkerId,
        wish: PollTerms,
        limit: int,
        seconds: float,
        gone: asyncio.Future[object],
        registration: str,
    ) -> list[Task]:
        """The same for a worker that is not paused; none as soon as it is."""
        with self._line(wish.queues) as line:
            for _ in range(_TRIES):
                rings = line.rings
                tasks = await self.claim(worker, wish, limit, registration)
                if tasks or gone.done() or self._is_paused(worker):
                    return tasks
                if line.rings == rings:
                    break
            waiter = Waiter(worker, limit, next(self._numbers), registration)
            return await self._wait(line, wish, waiter, seconds, gone)

    async def pass_time(self, seconds: float, gone: asyncio.Future[object]) -> None:
        """Wait like a poll for which there is nothing."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        ends: list[asyncio.Future[Any]] = [gone, stopping]
        try:
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()

    async def claim(self, worker: WorkerId, wish: PollTerms, limit: int, registration: str = "") -> list[Task]:
        """The best tasks that there are now."""
        self.claims += 1
        return await self._engine.claim(
            worker,
            wish.queues,
            limit=limit,
            capabilities=wish.capabilities,
            types=wish.types,
            tenant=wish.tenant,
            registration=registration,
        )

    async def hand_back(self, tasks: list[Task]) -> None:
        """Let tasks wait again that nobody is there to run; no retry is spent."""
        await self._engine.settle([Settlement(task, HandedBack()) for task in tasks])

    async def _wait(
        self, line: _Line, wish: PollTerms, waiter: Waiter, seconds: float, gone: asyncio.Future[object]
    ) -> list[Task]:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, waiter.end)

        def leave(_: object) -> None:
            waiter.end()

        gone.add_done_callback(leave)
        line.join(wish, waiter)
        try:
            if self._stopping.is_set():
                waiter.end()
            return await waiter.tasks
        finally:
            line.part(wish, waiter)
            gone.remove_done_callback(leave)
            timer.cancel()

    def _line(self, queues: tuple[str, ...]) -> _Line:
        if self._watch is None:
            self._watch = asyncio.create_task(self._end_all())
        line = self._lines.get(queues)
        if line is None:
            line = self._lines[queues] = _Line(self, self._engine, queues, self._recheck, self._lines)
        return line

    async def _end_all(self) -> None:
        """Have all polls answered when the server stops."""
        await self._stopping.wait()
        for line in list(self._lines.values()):
            line.end()


class _Line:
    """Those who wait for tasks of the same queues."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        engine: AdminEngine,
        queues: tuple[str, ...],
        recheck: float,
        lines: dict[tuple[str, ...], _Line],
    ) -> None:
        self._dispatcher = dispatcher
        self._engine = engine
        self._queues = queues
        self._recheck = recheck
        self._lines = lines
        self._groups: dict[PollTerms, OrderedDict[Waiter, None]] = {}
        self._pollers = 0
        self._ended = False
        self._serving = False
        self.rings = 0
        """How often the store rang: who claimed in vain, and heard it ring meanwhile, had better look again."""
        self._listening: asyncio.Task[None] | None = None

    def __enter__(self) -> _Line:
        self._pollers += 1
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._pollers -= 1

    @property
    def waiting(self) -> int:
        return sum(len(group) for group in self._groups.values())

    def join(self, wish: PollTerms, waiter: Waiter) -> None:
        self._groups.setdefault(wish, OrderedDict())[waiter] = None

    def part(self, wish: PollTerms, waiter: Waiter) -> None:
        group = self._groups.get(wish)
        if group is not None:
            group.pop(waiter, None)
            if not group:
                self._groups.pop(wish, None)

    def end(self) -> None:
        """Answer all who wait, and listen no more."""
        self._ended = True
        for group in list(self._groups.values()):
            for waiter in list(group):
                waiter.end()
        # A claim under way may have taken tasks: it is awaited, never cancelled.
        if self._listening is not None and not self._serving:
            self._listening.cancel()

    async def _listen(self) -> None:
        """Wait for the store to ring as long as there are polls, and serve them."""
        try:
            pause = _FIRST_PAUSE
            # After the last poll has gone it listens once more: most workers poll again at once.
            while self._pollers and not self._ended:
                try:
                    await self._engine.queue_cache.wait(self._queues, self._recheck)
                    self.rings += 1
                    self._serving = True
                    served = await self._serve()
                    self._serving = False
                    if served:
                        pause = _FIRST_PAUSE
                    elif self._groups:
                        await asyncio.sleep(pause)
                        pause = min(2 * pause, _LONGEST_PAUSE)
                except StoreError:
                    # Polls that wait are answered with nothing, and the next ones meet the error themselves.
                    await asyncio.sleep(self._recheck)
                finally:
                    self._serving = False
        finally:
            self._listening = None
            if self._lines.get(self._queues) is self and not self._pollers:
                del self._lines[self._queues]

    async def _serve(self) -> int:
        """Claim for those who wait; how many tasks were given."""
        given = 0
        for wish in await self._promising():
            group = self._groups.get(wish)
            while group:
                waiter = next(iter(group))
                tasks = await waiter.serve(
                    self._dispatcher.claim(waiter.worker, wish, waiter.limit, waiter.registration)
                )
                given += len(tasks)
                # By now it is known: a worker that was paused gets nothing, which says nothing of those behind it.
                paused = waiter.worker in self._engine.queue_cache.paused_workers
                if paused:
                    waiter.end()
                if waiter.tasks.done():
                    group.pop(waiter, None)
                if tasks and waiter.tasks.cancelled():
                    await self._dispatcher.hand_back(tasks)
                if len(tasks) < waiter.limit and not paused:
                    break
        return given

    async def _promising(self) -> list[PollTerms]:
        """The groups for which there may be something, the one with the longest wait first."""
        if len(self._groups) > _FEW:
            tally = await self._engine.store.tally()
            held = self._engine.queue_cache.withheld
            ready = [lane.lane for lane in tally.lanes if lane.counts.get(State.QUEUED) and not held(lane.lane)]
        else:
            ready = None
        waiting = {wish: next(iter(group)).number for wish, group in self._groups.items() if group}
        wishes = sorted(waiting, key=lambda wish: waiting[wish])
        if ready is None:
            return wishes
        return [wish for wish in wishes if any(wish.admits(lane) for lane in ready)]
