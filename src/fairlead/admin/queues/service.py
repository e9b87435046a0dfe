"""Queues as people change them while everything runs: paused, bounded, ordered, with defaults of their own.

What is said of a queue is one record, and that a task type is paused another. How the engines learn of it is in `book`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypedDict, TypeVar, Unpack

import msgspec
from msgspec.structs import replace

from fairlead.core.errors import StoreMismatch, StoreUnavailable
from fairlead.core.identity import check_name
from fairlead.core.instant import Span
from fairlead.core.limits import Rate
from fairlead.core.order import Policy
from fairlead.core.queue import QueueSettings
from fairlead.core.retry import Backoff
from fairlead.core.task import Priority
from fairlead.engine.book import BELL, KIND, TYPE_KIND, settings_in
from fairlead.engine.feed import EventType, QueueData, QueueEvent
from fairlead.engine.ledger import Ledger
from fairlead.engine.purging import PurgeCount, purge

T = TypeVar("T")

_TRIES: Final = 100
_encode: Final = msgspec.msgpack.Encoder().encode


class QueueChanges(TypedDict, total=False):
    """What can be changed of a queue; None goes back to what the settings of all say."""

    bound: int | None
    order: Policy | None
    priority: Priority | None
    timeout: Span | None
    max_retries: int | None
    max_crashes: int | None
    backoff: Backoff | None
    running: int | None
    rate: Rate | None
    type_running: Mapping[str, int | None] | None
    """What is said of some types, the others stay; None for a type has none of its own, and None for all likewise."""
    type_rate: Mapping[str, Rate | None] | None
    key_running: int | None
    key_rate: Rate | None


class Queues:
    """What people do with the queues of one store."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._store = ledger.store
        self._clock = ledger.clock

    async def all(self) -> dict[str, QueueSettings]:
        """The settings of the queues that have any of their own, by name."""
        found = [(record.name, settings_in(record)) for record in await self._store.scan(KIND)]
        return {name: own for name, own in found if own is not None}

    async def get(self, queue: str) -> QueueSettings:
        """The settings of one queue; one that nobody has changed has none of its own."""
        return (await self._find(check_name("queue", queue)))[0]

    async def paused_types(self) -> list[str]:
        """The task types that are paused, by name."""
        return [record.name for record in await self._store.scan(TYPE_KIND)]

    async def pause(self, queue: str) -> QueueSettings:
        """Have a queue's tasks wait until it is resumed; it still takes tasks, and what runs goes on."""
        return await self._change(queue, lambda own: replace(own, paused=True))

    async def resume(self, queue: str) -> QueueSettings:
        """Let a paused queue's tasks be claimed again."""
        return await self._change(queue, lambda own: replace(own, paused=False))

    async def change(self, queue: str, **changes: Unpack[QueueChanges]) -> QueueSettings:
        """Change some settings of a queue and leave the others; raises InvalidSettings if one makes no sense."""
        return await self._change(queue, lambda own: changed(own, changes))

    async def reset(self, queue: str) -> QueueSettings:
        """Go back to the settings of all, but for whether the queue is paused."""
        return await self._change(queue, lambda own: QueueSettings(paused=own.paused))

    async def pause_type(self, task_type: str) -> None:
        """Have the tasks of a type wait, in whatever queue, until it is resumed; what runs goes on."""
        check_name("task_type", task_type)
        now = self._clock.now()
        if await self._store.put(TYPE_KIND, task_type, _encode(now), expected=0) is not None:
            await self._changed(EventType.TYPE_PAUSED, QueueData(task_type=task_type))

    async def resume_type(self, task_type: str) -> None:
        """Let the tasks of a paused type be claimed again."""
        if await self._store.drop(TYPE_KIND, check_name("task_type", task_type)):
            await self._changed(EventType.TYPE_RESUMED, QueueData(task_type=task_type))

    async def purge(self, queue: str, limit: int | None = None) -> PurgeCount:
        """Remove the tasks that wait in a queue, if there is a limit no more than that; what runs goes on."""
        return await purge(self._ledger, queue, limit)

    async def _change(self, queue: str, change: Callable[[QueueSettings], QueueSettings]) -> QueueSettings:
        check_name("queue", queue)
        for _ in range(_TRIES):
            before, version = await self._find(queue)
            after = change(before)
            if after == before:
                return after
            if after == QueueSettings():
                stored = await self._store.drop(KIND, queue, expected=version)
            else:
                stored = await self._store.put(KIND, queue, _encode(after), expected=version) is not None
            if stored:
                await self._changed(_event(before, after), QueueData(queue=queue))
                return after
        raise StoreUnavailable(f"queue {queue!r} was changed {_TRIES} times meanwhile; try again when it is calmer")

    async def _find(self, queue: str) -> tuple[QueueSettings, int]:
        for record in await self._store.scan(KIND):
            if record.name == queue:
                own = settings_in(record)
                if own is None:
                    raise StoreMismatch(f"the settings of queue {queue!r} are damaged, or of another version; reset it")
                return own, record.version
        return QueueSettings(), 0

    async def _changed(self, event_type: EventType, data: QueueData) -> None:
        await self._store.put(BELL, BELL, b"")
        self._ledger.book.expire()
        self._ledger.publisher.tell(QueueEvent(event_type, self._clock.now(), data))
        await self._ledger.finish()


def changed(own: QueueSettings, changes: QueueChanges) -> QueueSettings:
    """The settings of a queue after these changes."""
    plain: dict[str, Any] = {
        name: value for name, value in changes.items() if name not in ("type_running", "type_rate")
    }
    if "type_running" in changes:
        plain["type_running"] = _merged(own.type_running, changes["type_running"])
    if "type_rate" in changes:
        plain["type_rate"] = _merged(own.type_rate, changes["type_rate"])
    return replace(own, **plain)


def _merged(own: Mapping[str, T], changes: Mapping[str, T | None] | None) -> dict[str, T]:
    merged = {**own, **changes} if changes is not None else {}
    return {name: value for name, value in merged.items() if value is not None}


def _event(before: QueueSettings, after: QueueSettings) -> EventType:
    if before.paused == after.paused:
        return EventType.QUEUE_CHANGED
    return EventType.QUEUE_PAUSED if after.paused else EventType.QUEUE_RESUMED
