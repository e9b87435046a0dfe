"""What callers wait to hear: events, from one reader of the feed to all listeners, and the ends of tasks (long polls).

An end in this process is heard of at once. One in another process is found by looking, at growing pauses; all that look
at the same time share one call to the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from typing import Final

from msgspec import Struct

from fairlead.admin.engine import AdminEngine
from fairlead.admin.stats import SystemMetrics, standing
from fairlead.admin.tenant_engine import TenantEngine
from fairlead.core.errors import Forbidden, StoreError, TaskNotFound
from fairlead.core.identity import TaskId
from fairlead.core.instant import Span
from fairlead.core.task import Task
from fairlead.engine.events.feed import REPLAY, Listener, Told
from fairlead.engine.events.types import Happening, Occurrence
from fairlead.engine.runtime.event_loop import Batcher
from fairlead.engine.stats import Stats
from fairlead.server.http.problems import Refusal
from fairlead.wire.events import QUEUE_DEPTH, SYSTEM_METRICS, VITALS, Wanted, message_of

BACKLOG: Final = 1_000
"""How many messages may wait for one listener."""

VITALS_INTERVAL: Final = 2.0
"""Seconds between two messages on how the queues stand."""

LAGGED: Final = f"too slow: {BACKLOG:,} events wait; take them faster, or ask for fewer"

_PAGE: Final = 1_000
_PATIENCE: Final = 2.0
_OUTAGE_PAUSE: Final = 1.0


class Message(Struct, frozen=True):
    """One message to a listener."""

    type: str
    json: bytes
    position: str | None = None
    """Where in the feed to go on behind it; None for what is not of the feed."""


class Listening:
    """One listener: what it wants, and what waits for it."""

    def __init__(self, feed: Listener, wanted: Wanted, after: str | None = None) -> None:
        self.wanted = wanted
        self._feed = feed
        self._behind = after
        """While what was told before is read again: how far that is."""
        self._floor = ""
        self._waiting: deque[Message] = deque()
        self._news = asyncio.Event()
        self.over = asyncio.Event()
        """Set when there is nothing more to come: the listener is given up, or the server stops."""
        self.lagged = False
        """Whether the listener was given up: it takes events more slowly than they happen."""
        self.refusal: Refusal | None = None
        """Why the listener may not listen any more."""

    async def end_with(self, watch: Awaitable[Refusal]) -> None:
        """Have nothing more to come once a watch tells why."""
        self.refusal = await watch
        self.over.set()

    def put(self, message: Message) -> None:
        """Have a message wait; a listener with too many of them is given up."""
        if len(self._waiting) >= BACKLOG:
            self.lagged = True
            self.over.set()
        if not self.over.is_set():
            self._waiting.append(message)
            self._news.set()

    async def take(self) -> list[Message]:
        """All that waits, once something does."""
        while True:
            messages = await (self._live() if self._behind is None else self._again(self._behind))
            if messages:
                return messages

    async def _live(self) -> list[Message]:
        await self._news.wait()
        messages = [each for each in self._waiting if each.position is None or each.position > self._floor]
        self._waiting.clear()
        self._news.clear()
        return messages

    async def _again(self, behind: str) -> list[Message]:
        """A page of what was told before; what is told meanwhile waits, and is not told twice."""
        try:
            told = await self._feed.read(behind, _PAGE)
        except StoreError:
            await asyncio.sleep(_OUTAGE_PAUSE)
            return []
        if told:
            self._behind = self._floor = told[-1].position
        if len(told) < _PAGE:
            self._behind = None
        return [_message(one) for one in told if self.wanted.admits(one.event)]


class Broadcast:
    """Tells the listeners of one server what happens anywhere."""

    def __init__(self, engine: AdminEngine, stopping: asyncio.Event) -> None:
        self._engine = engine
        self._stopping = stopping
        self._listeners: dict[Wanted, set[Listening]] = {}
        """By what they want: many want the same, and it is looked at once for all of them."""
        self._wanted: dict[frozenset[str], Span] = {}
        """The types that were wanted together, an empty set for all, and when they last were."""
        self._duties: list[asyncio.Task[None]] = []
        self._ready = asyncio.Event()

    @contextlib.asynccontextmanager
    async def listen(self, wanted: Wanted, after: str | None = None) -> AsyncIterator[Listening]:
        """Listen to what happens from now on, or since a position."""
        listening = Listening(self._engine.feed, wanted, after)
        self._join(listening)
        if not self._duties:
            duties = (self._follow(), self._tell_vitals(), self._end())
            self._duties = [asyncio.create_task(duty) for duty in duties]
        try:
            # Who is let in hears of what happens next, unless the store is out of reach.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await self._ready.wait()
            yield listening
        finally:
            self._part(listening)
            if not self._listeners:
                self._rest()

    async def change(self, listening: Listening, wanted: Wanted) -> None:
        """Have a listener hear of something else from now on."""
        self._part(listening)
        listening.wanted = wanted
        self._join(listening)
        with contextlib.suppress(StoreError):
            await self._engine.feed.want()

    def _join(self, listening: Listening) -> None:
        self._listeners.setdefault(listening.wanted, set()).add(listening)
        self._take_stock()

    def _part(self, listening: Listening) -> None:
        alike = self._listeners[listening.wanted]
        alike.discard(listening)
        if not alike:
            del self._listeners[listening.wanted]

    def _take_stock(self) -> None:
        """Have published what somebody wants, or wanted a few minutes ago and may come back for."""
        now = self._engine.clock.monotonic()
        self._wanted |= {wanted.types: now for wanted in self._listeners}
        self._wanted = {types: seen for types, seen in self._wanted.items() if now - seen < REPLAY}
        self._engine.feed.types = frozenset().union(*self._wanted) if all(self._wanted) else None

    def _rest(self) -> None:
        for duty in self._duties:
            duty.cancel()
        self._duties = []
        self._ready.clear()

    async def _end(self) -> None:
        await self._stopping.wait()
        for alike in self._listeners.values():
            for listening in alike:
                listening.over.set()

    async def _follow(self) -> None:
        feed = self._engine.feed
        position: str | None = None
        while position is None:
            try:
                await feed.want()
                position = await feed.end()
            except StoreError:
                await asyncio.sleep(_OUTAGE_PAUSE)
        self._ready.set()
        async for told in feed.follow(position):
            for one in told:
                self._tell(one)

    def _tell(self, told: Told) -> None:
        message: Message | None = None
        for wanted, alike in self._listeners.items():
            if wanted.admits(told.event):
                message = message or _message(told)
                for listening in alike:
                    listening.put(message)

    async def _tell_vitals(self) -> None:
        while True:
            if any(map(_wants_vitals, self._listeners)):
                with contextlib.suppress(StoreError):
                    await self._tell_vitals_once()
            self._take_stock()
            await asyncio.sleep(VITALS_INTERVAL)

    async def _tell_vitals_once(self) -> None:
        stats = await self._engine.stats()
        tenants = {wanted.tenant for wanted in self._listeners if _wants_vitals(wanted)}
        for tenant in tenants:
            # To a tenant without a queue of its own nothing can be told.
            with contextlib.suppress(Forbidden):
                narrowed = await TenantEngine(self._engine, tenant).narrowed(stats)
                for message in self._vitals(narrowed):
                    self._tell_vital(message, tenant)

    def _tell_vital(self, message: Message, tenant: str | None) -> None:
        for wanted, alike in self._listeners.items():
            if wanted.tenant == tenant and wanted.admits_vitals(message.type):
                for listening in alike:
                    listening.put(message)

    def _vitals(self, counted: Stats) -> list[Message]:
        stats = standing(counted)
        now = self._engine.clock.now()
        depths = {
            name: {priority: line.depth for priority, line in queue.priorities.items()}
            for name, queue in stats.by_queue.items()
        }
        metrics = SystemMetrics(workers=stats.workers, throughput=stats.throughput, states=stats.states)
        return [
            Message(QUEUE_DEPTH, message_of(QUEUE_DEPTH, now, {"queues": depths})),
            Message(SYSTEM_METRICS, message_of(SYSTEM_METRICS, now, metrics)),
        ]


def _message(told: Told) -> Message:
    event = told.event
    return Message(event.type, message_of(event.type, event.at, event.data), told.position)


def _wants_vitals(wanted: Wanted) -> bool:
    return any(map(wanted.admits_vitals, VITALS))


_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_GROWTH: Final = 1.5
_LOOKS_PER_SECOND: Final = 500
"""With very many waiting, the longest pause grows so that they do not look more often than this together."""


class Endings:
    """Waits for tasks to end, on behalf of any number of callers."""

    def __init__(self, engine: AdminEngine, stopping: asyncio.Event) -> None:
        self._engine = engine
        self._get = Batcher(engine.store.get).answers
        self._stopping = stopping
        self._waiting: dict[TaskId, set[asyncio.Future[None]]] = {}
        self._count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._watch: asyncio.Task[None] | None = None

    async def wait(self, task_id: TaskId, seconds: float) -> Task:
        """The task when it has ended, the time is up, or the server stops; raises TaskNotFound when it is not there."""
        loop = self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        deadline = loop.time() + seconds
        pause = _FIRST_PAUSE
        woken = loop.create_future()
        self._join(task_id, woken)
        try:
            while True:
                (task,) = await self._get([task_id])
                if task is None:
                    raise TaskNotFound(task_id)
                left = deadline - loop.time()
                if task.state.ended or left <= 0 or self._stopping.is_set():
                    return task
                if woken.done():
                    # It ended, and was queued again before it could be seen: go on waiting.
                    self._leave(task_id, woken)
                    woken = loop.create_future()
                    self._join(task_id, woken)
                await asyncio.wait([woken], timeout=min(pause, left))
                pause = min(pause * _GROWTH, max(_LONGEST_PAUSE, self._count / _LOOKS_PER_SECOND))
        finally:
            self._leave(task_id, woken)

    def _join(self, task_id: TaskId, woken: asyncio.Future[None]) -> None:
        self._waiting.setdefault(task_id, set()).add(woken)
        self._count += 1
        if self._watch is None:
            self._engine.observe(self._hear)
            self._watch = asyncio.get_running_loop().create_task(self._watch_stopping())

    def _leave(self, task_id: TaskId, woken: asyncio.Future[None]) -> None:
        waiting = self._waiting[task_id]
        waiting.discard(woken)
        self._count -= 1
        if not waiting:
            del self._waiting[task_id]
        if not self._waiting and self._watch is not None:
            self._engine.unobserve(self._hear)
            self._watch.cancel()
            self._watch = None

    async def _watch_stopping(self) -> None:
        await self._stopping.wait()
        for task_id in list(self._waiting):
            self._wake(task_id)

    def _hear(self, occurrence: Occurrence) -> None:
        task = occurrence.task
        if not task.state.ended and occurrence.happening is not Happening.REMOVED:
            return
        if threading.get_ident() == self._thread:
            self._wake(task.id)
        elif self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake, task.id)

    def _wake(self, task_id: TaskId) -> None:
        for woken in self._waiting.get(task_id, ()):
            if not woken.done():
                woken.set_result(None)
