"""Tasks for a worker, from a server."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import time
from collections.abc import Collection, Sequence
from typing import Final

from msgspec.structs import replace

from fairlead._version import __version__
from fairlead.client.http.transport import Transport
from fairlead.client.worker_protocol import WorkerCalls, register, said
from fairlead.core.errors import LeaseLost, WorkerNotFound
from fairlead.core.events import Completed
from fairlead.core.identity import WorkerId
from fairlead.core.instant import MILLISECOND, Instant, span
from fairlead.core.lifecycle import decide
from fairlead.core.settings import Rules, Settings
from fairlead.core.task import State, Task
from fairlead.engine.engine import Settlement
from fairlead.engine.events.types import Watcher
from fairlead.engine.worker_records import KindSlots
from fairlead.storage.values import Beat, Pulse
from fairlead.wire.worker_protocol import Registered, RegisterRequest, WorkerStatus

_INTERVAL: Final = 0.25

POLL_SECONDS: Final = 20.0
"""How long a poll waits for tasks: less than proxies let a request take."""

_AT_ONCE: Final = 8
"""How many progress reports are under way at once."""


class RemoteSource:
    """A `fairlead.worker.source.Source` over the worker protocol.

    An idle worker waits in one long poll.
    """

    interval: Final = _INTERVAL

    def __init__(
        self,
        transport: Transport,
        queues: Sequence[str],
        capabilities: Collection[str],
        types: Collection[str],
        *,
        watchers: Sequence[Watcher] = (),
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """`watchers` are told what becomes of the tasks that come from here."""
        self._transport = transport
        self._queues = tuple(queues)
        self._capabilities = tuple(sorted(capabilities))
        self._types = tuple(sorted(types))
        self._watchers = watchers
        self._poll_seconds = poll_seconds
        self._slots: tuple[KindSlots, ...] = ()
        self._worker: WorkerId | None = None
        self._registered: Registered | None = None
        self._registering = asyncio.Lock()
        self.paused = False
        """Whether the worker was paused at its last poll, as far as the server says so."""

    @property
    def worker(self) -> WorkerId:
        """The worker's id; known once it has joined."""
        if self._worker is None:
            raise RuntimeError("the worker has no id before it has joined")
        return self._worker

    def settings(self, settings: Settings) -> Settings:
        """These settings with the server's lease, heartbeat and grace, which are the ones that count."""
        if self._registered is None:
            return settings
        heartbeat = self._registered.heartbeat_interval_ms * MILLISECOND
        lease, grace = span(self._registered.lease_seconds), self._registered.grace_seconds
        usual = Settings().grace
        return replace(settings, lease=lease, heartbeat=heartbeat, grace=usual if grace is None else span(grace))

    async def join(self, slots: Sequence[KindSlots]) -> float:
        self._slots = tuple(slots)
        registered = await self._register()
        return registered.heartbeat_interval_ms / 1_000

    async def claim(self, limit: int, types: frozenset[str] | None = None) -> list[Task]:
        return await self._poll(limit, 0.0, types)

    async def wait(self, limit: int, timeout: float) -> list[Task] | None:
        """Wait in a long poll, however short a time another source would have been waited for."""
        polling = asyncio.create_task(self._poll(limit, self._poll_seconds))
        try:
            return await asyncio.shield(polling)
        except asyncio.CancelledError:
            # Hanging up has the server hand back what it was about to give. What is here already is the worker's.
            polling.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                if tasks := await polling:
                    return tasks
            raise

    async def report(self, beats: Sequence[Beat]) -> list[Pulse]:
        room = asyncio.Semaphore(_AT_ONCE)

        async def one(beat: Beat) -> Pulse:
            async with room:
                return await self._calls.progress(beat)

        return list(await asyncio.gather(*(one(beat) for beat in beats)))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Task | LeaseLost]:
        answers = await self._calls.settle([said(one.task, one.outcome) for one in settlements])
        now = time.time_ns() // 1_000
        tasks = [
            answer if isinstance(answer, LeaseLost) else _settled(one, answer, now, whole=bool(self._watchers))
            for one, answer in zip(settlements, answers, strict=True)
        ]
        self._tell([task for task in tasks if isinstance(task, Task)], now)
        return tasks

    def _tell(self, tasks: list[Task], at: Instant) -> None:
        """Tell the watchers that tasks have come to their states."""
        for watcher in self._watchers:
            watcher.moved(tasks, at)

    async def unserved(self) -> dict[str, int]:
        """Not known here: how the queues stand is for those to see whose key allows it."""
        return {}

    async def beat(self, running: int, slots: Sequence[KindSlots], *, draining: bool) -> bool:
        status: WorkerStatus = "draining" if draining else "active"
        by_kind: dict[str, int] = {each.kind: each.running for each in slots}
        try:
            _, should_drain = await self._calls.heartbeat(load=running, by_kind=by_kind, status=status)
        except WorkerNotFound:
            self._registered = None
            raise
        return should_drain

    async def leave(self) -> None:
        if self._worker is not None:
            with contextlib.suppress(WorkerNotFound):
                await self._calls.deregister()
        await self._transport.close()

    async def upkeep(self) -> None:
        """The server has the duties."""
        await asyncio.get_running_loop().create_future()

    @property
    def _calls(self) -> WorkerCalls:
        return WorkerCalls(self._transport, self.worker)

    async def _poll(self, limit: int, wait: float, types: frozenset[str] | None = None) -> list[Task]:
        wanted = None if types is None else tuple(sorted(types))
        await self._register()
        try:
            tasks, self.paused = await self._calls.poll(self._capabilities, limit, wait, wanted)
        except WorkerNotFound:
            self._registered = None
            await self._register()
            tasks, self.paused = await self._calls.poll(self._capabilities, limit, wait, wanted)
        self._tell(tasks, time.time_ns() // 1_000)
        return tasks

    async def _register(self) -> Registered:
        """Register, unless that is done; under the same id as before, so that its leases stay its own."""
        async with self._registering:
            if self._registered is None:
                request = RegisterRequest(
                    capabilities=self._capabilities,
                    capacity=max(1, sum(each.capacity for each in self._slots)),
                    slots=self._slots,
                    task_types=self._types,
                    queues=self._queues,
                    version=__version__,
                    host=platform.node(),
                    worker_id=self._worker,
                )
                self._registered = await register(self._transport, request)
                self._worker = WorkerId(self._registered.worker_id)
            return self._registered


def _settled(settlement: Settlement, state: State, now: Instant, *, whole: bool) -> Task:
    """How a task stands whose state a server has answered: the rest is what it decides by the same rules.

    Nobody asks for the rest of what has completed unless it is to be `whole`.
    """
    task = settlement.task
    asked = whole or not isinstance(settlement.outcome, Completed)
    status = decide(task, settlement.outcome, now, rules=Rules()) if asked else None
    if status is None or status.state is not state:
        status = replace(task.status, state=state, lease=None)
    return Task(task.spec, status)
