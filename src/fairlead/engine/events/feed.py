"""The feed: a process tells in it what it did, if anyone listens, and reads in it what all processes told.

The feed is a view. Whoever must know how a task stands asks the store.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from fairlead.core.errors import StoreError
from fairlead.core.identity import TaskId
from fairlead.core.instant import HOUR, MINUTE, SECOND, Instant, Span
from fairlead.core.task import Progress
from fairlead.engine.events.types import (
    TYPES,
    CircuitEvent,
    EventType,
    FeedEvent,
    Occurrence,
    QueueEvent,
    SkippedData,
    SkippedEvent,
    WorkerEvent,
    decode_event,
    encode_event,
    task_event,
)
from fairlead.engine.records import Form, Records, decoder
from fairlead.engine.runtime.clock import Clock
from fairlead.storage.protocol import Store
from fairlead.storage.values import FeedEntry

KEEP: Final = 10_000
"""How many entries of the feed are kept."""

BUFFER: Final = 1_000
"""How many events a process holds back between two calls to the store; what is more is skipped."""

_LOOK_INTERVAL: Final[Span] = SECOND
_FLUSH_INTERVAL: Final = 0.1

KIND: Final = "feed"
"""The kind of the records that say what is wanted in the feed, each by the name of who wants it."""
NEVER: Final[Instant] = -HOUR


class _Reported(Struct, frozen=True):
    """A progress report that a store has taken."""

    id: TaskId
    progress: Progress
    at: Instant


_Pending: TypeAlias = Occurrence | WorkerEvent | QueueEvent | CircuitEvent | _Reported


class Want(Struct, frozen=True):
    """What is wanted in the feed, and until when."""

    until: Instant
    types: frozenset[str] | None = None
    """The types of events; None for all."""

    def admits(self, event_type: str) -> bool:
        """Whether events of this type are wanted, or all are because it is not known yet."""
        return self.types is None or event_type in self.types

    def joined(self, other: Want) -> Want:
        """What either wants."""
        if self is _NOTHING:
            return other
        types = None if self.types is None or other.types is None else self.types | other.types
        return Want(max(self.until, other.until), types)


_NOTHING: Final = Want(NEVER)


FORM: Final = Form(kind=KIND, decode=decoder(Want))


class Publisher:
    """Puts what one engine does into the feed while someone listens; costs next to nothing while no one does.

    That someone listens is a record in the store, at which it looks about once a second, when there is something to
    tell: the first events after a listener came may be missing. Events go out in batches: by a task of the event loop,
    or `inline`, when the engine flushes them at the end of an operation. Losing some is no harm, so no error is raised.
    """

    def __init__(self, records: Records, clock: Clock, *, inline: bool = False, buffer: int = BUFFER) -> None:
        self._records = records
        self._store = records.store
        self._clock = clock
        self._inline = inline
        self._buffer = buffer
        self._lock = threading.Lock()
        self._pending: deque[_Pending] = deque()
        self._skipped = 0
        self._looked_at: Instant = NEVER
        self._want = _NOTHING
        self._loop: asyncio.AbstractEventLoop | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._closed = False

    def wanted(self, at: Instant) -> bool:
        """Whether to tell what happens at this moment: someone listens, or it is time to look whether someone does."""
        return self._want.until > at or self._must_look(at)

    def want(self, want: Want) -> None:
        """Take note that someone listens."""
        self._want = self._want.joined(want)

    @property
    def due(self) -> bool:
        """Whether the operation under way should end with a flush."""
        return self._inline and bool(self._pending)

    def __call__(self, occurrence: Occurrence) -> None:
        """Tell of an occurrence: this is an observer."""
        event_type = TYPES.get(occurrence.happening)
        if event_type is not None and self._tells(event_type, occurrence.at):
            self._put(occurrence)

    def report(self, task_id: TaskId, progress: Progress, at: Instant) -> None:
        """Tell of progress."""
        if self._tells(EventType.PROGRESS, at):
            self._put(_Reported(task_id, progress, at))

    def tell(self, event: WorkerEvent | QueueEvent | CircuitEvent) -> None:
        """Tell of a worker, a queue or a circuit."""
        if self._tells(event.type, event.at):
            self._put(event)

    async def flush(self) -> None:
        """Publish what is pending, if anyone listens."""
        now = self._clock.now()
        with self._lock:
            pending, self._pending = self._pending, deque()
            skipped, self._skipped = self._skipped, 0
        try:
            if self._must_look(now):
                await self._look(now)
            if self._want.until <= now:
                return
            events = [event for event in await self._events(pending) if self._want.admits(event.type)]
            if skipped:
                events.insert(0, SkippedEvent(EventType.SKIPPED, now, SkippedData(skipped)))
            if events:
                await self._store.publish([encode_event(event) for event in events], now=now, keep=KEEP)
        except StoreError:
            # Whoever submits or settles meets the same error and reports it. Nothing is tried again for a while.
            self._looked_at, self._want = now, _NOTHING
            self._skipped += skipped + len(pending)

    async def close(self) -> None:
        """Publish what is pending, and nothing more."""
        self._closed = True
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            # Left behind by an event loop that has ended: there is nobody to publish it.
            return
        if self._pause is not None:
            self._pause.cancel()
        if self._flushing is not None:
            await asyncio.wait([self._flushing])
        if self._pending:
            await self.flush()

    def _tells(self, event_type: EventType, at: Instant) -> bool:
        return self._must_look(at) or (self._want.until > at and self._want.admits(event_type))

    def _must_look(self, at: Instant) -> bool:
        return not 0 <= at - self._looked_at < _LOOK_INTERVAL

    def _put(self, pending: _Pending) -> None:
        with self._lock:
            self._pending.append(pending)
            if len(self._pending) > self._buffer:
                self._pending.popleft()
                self._skipped += 1
        if not self._inline:
            self._wake()

    def _wake(self) -> None:
        if self._flushing is None and self._pause is None and not self._closed:
            self._loop = asyncio.get_running_loop()
            self._flushing = self._loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            await self.flush()
        finally:
            self._flushing = None
            if not self._closed:
                self._pause = asyncio.get_running_loop().call_later(_FLUSH_INTERVAL, self._resume)

    def _resume(self) -> None:
        self._pause = None
        if self._pending:
            self._wake()

    async def _look(self, now: Instant) -> None:
        wants = (await self._records.read(FORM)).values
        self._want = functools.reduce(Want.joined, (want for want in wants if want.until > now), _NOTHING)
        self._looked_at = now

    async def _events(self, pending: Sequence[_Pending]) -> list[FeedEvent]:
        """The events to publish; a progress report is told with the task as it stands now, or not at all."""
        reported = list(dict.fromkeys(one.id for one in pending if isinstance(one, _Reported)))
        tasks = dict(zip(reported, await self._store.get(reported), strict=True)) if reported else {}
        events: list[FeedEvent] = []
        for one in pending:
            if isinstance(one, Occurrence):
                events.append(task_event(TYPES[one.happening], one.at, one.task))
            elif isinstance(one, WorkerEvent | QueueEvent | CircuitEvent):
                events.append(one)
            elif (task := tasks[one.id]) is not None:
                events.append(task_event(EventType.PROGRESS, one.at, task, one.progress))
        return events


_PAGE: Final = 1_000
_OUTAGE_PAUSE: Final = 1.0
_RENEW_INTERVAL: Final[Span] = 30 * SECOND
POLL_INTERVAL: Final = 0.1
"""Seconds between two looks of a listener at a feed that is quiet."""

REPLAY: Final[Span] = 5 * MINUTE
"""How long events are published after the last listener was seen, so that one who comes back has missed none."""


class Told(Struct, frozen=True):
    """An event, and the position behind which to go on reading."""

    position: str
    event: FeedEvent


class Listener:
    """Reads the feed, and has all processes publish into it while it does and for a while afterwards."""

    def __init__(self, store: Store, clock: Clock, publisher: Publisher, name: Callable[[], str]) -> None:
        """`name` makes the name of the record that says what is wanted here."""
        self._store = store
        self._clock = clock
        self._publisher = publisher
        self._make_name = name
        self._name: str | None = None
        self._wanted_at: Instant = NEVER
        self._wanted: frozenset[str] | None = frozenset()
        self.types: frozenset[str] | None = None
        """The types of events to have published; None for all."""

    async def want(self) -> None:
        """Have events published for the next minutes; called again and again, it writes a record now and then."""
        now = self._clock.now()
        if self.types != self._wanted or not 0 <= now - self._wanted_at < _RENEW_INTERVAL:
            want = Want(now + REPLAY, self.types)
            self._name = self._name or self._make_name()
            await self._store.put(KIND, self._name, FORM.write(want))
            self._wanted_at, self._wanted = now, want.types
            self._publisher.want(want)

    async def end(self) -> str:
        """The position from which on to read what will be told."""
        return await self._store.feed_end()

    async def read(self, after: str | None, limit: int = _PAGE) -> list[Told]:
        """The events beyond a position; without one, from the oldest that is kept on.

        Those of a later version, which this one does not know, are left out.
        """
        return _told(await self._store.feed(after, limit))

    async def follow(self, after: str | None = None, *, interval: float = POLL_INTERVAL) -> AsyncIterator[list[Told]]:
        """The events beyond a position, batch by batch, as they are told; without a position, from now on.

        Goes on for ever, also when the store is out of reach for a while.
        """
        position = after
        while True:
            try:
                await self.want()
                if position is None:
                    position = await self.end()
                entries = await self._store.feed(position, _PAGE)
            except StoreError:
                await asyncio.sleep(_OUTAGE_PAUSE)
                continue
            if entries:
                position = entries[-1].position
            if told := _told(entries):
                yield told
            if len(entries) < _PAGE:
                await asyncio.sleep(interval)


async def forget_feed(records: Records, now: Instant) -> None:
    """Forget who has wanted nothing for an hour; a feed that no one has wanted for so long is emptied."""
    store, read = records.store, await records.read(FORM)
    old = [each for each in read.kept if now - each.value.until > HOUR]
    dropped = [await store.drop(KIND, each.name, expected=each.version) for each in old]
    if any(dropped) and len(old) == len(read.kept) and not read.unread:
        await store.publish([], now=now, keep=0)


def _told(entries: Sequence[FeedEntry]) -> list[Told]:
    events = ((entry.position, decode_event(entry.value)) for entry in entries)
    return [Told(position, event) for position, event in events if event is not None]
