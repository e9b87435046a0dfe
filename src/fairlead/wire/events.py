"""Events, as the WebSocket and the event stream tell them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict, replace

from fairlead.core.errors import InvalidTask
from fairlead.core.identity import TaskId, check_name, parse_task_id
from fairlead.core.instant import Instant
from fairlead.engine.events.types import (
    EventType,
    FeedEvent,
    QueueEvent,
    TaskData,
    TaskEvent,
)
from fairlead.wire.text import iso

QUEUE_DEPTH: Final = "queue.depth"
SYSTEM_METRICS: Final = "system.metrics"
VITALS: Final = (QUEUE_DEPTH, SYSTEM_METRICS)
"""What a server tells of by itself, every few seconds."""

ALL_TYPES: Final = (*(str(each) for each in EventType), *VITALS)


class EventMessage(Struct, frozen=True):
    """Something that happened. The fields of `data` depend on the type."""

    type: str
    """Such as `task.completed`."""
    timestamp: str
    data: Raw


class TaskEventData(TaskData, frozen=True, kw_only=True, omit_defaults=True):
    """A task as it stands after the event."""

    type: str
    """The same as `task_type`."""


class Wanted(Struct, frozen=True):
    """Which events a listener wants; an empty field asks for nothing in particular."""

    types: frozenset[str] = frozenset()
    queue: str | None = None
    task_id: TaskId | None = None
    tenant: str | None = None
    """The only tenant whose tasks, workers and queues it may hear of; None for any."""

    def of(self, tenant: str | None) -> Wanted:
        """The same, from a listener who is bound to a tenant, or to none."""
        return replace(self, tenant=tenant)

    def admits(self, event: FeedEvent) -> bool:
        """Whether the listener wants this event. That something is missing concerns everybody."""
        if event.type is EventType.SKIPPED:
            return True
        if self.tenant is not None and getattr(event.data, "tenant", None) != self.tenant:
            return False
        if self.types and event.type not in self.types:
            return False
        if self.queue is None and self.task_id is None:
            return True
        if isinstance(event, QueueEvent):
            return self.task_id is None and event.data.queue == self.queue
        return (
            isinstance(event, TaskEvent)
            and (self.queue is None or event.data.queue == self.queue)
            and (self.task_id is None or event.data.task_id == self.task_id)
        )

    def admits_vitals(self, event_type: str) -> bool:
        """Whether the listener wants what a server tells of by itself: not if it asks for one task."""
        return self.task_id is None and (not self.types or event_type in self.types)


def wanted_of(types: Iterable[str] = (), queue: str | None = None, task_id: str | None = None) -> Wanted:
    """What a listener asks for in words; `task.*` means all types that begin so."""
    chosen: set[str] = set()
    for word in types:
        found = [each for each in ALL_TYPES if each == word or (word.endswith(".*") and each.startswith(word[:-1]))]
        if not found:
            raise InvalidTask(
                "types",
                f"there are no events of type {word[:64]!r}; use {', '.join(ALL_TYPES)}, or task.* for all such",
            )
        chosen.update(found)
    return Wanted(
        types=frozenset(chosen),
        queue=None if queue is None else check_name("queue", queue),
        task_id=None if task_id is None else parse_task_id(task_id),
    )


def message_of(event_type: str, at: Instant, data: Any) -> bytes:
    """An event in JSON."""
    if isinstance(data, TaskData):
        data = TaskEventData(**asdict(data), type=data.task_type)
    return _ENCODE(EventMessage(str(event_type), iso(at), Raw(_ENCODE(data))))


_ENCODE: Final = msgspec.json.Encoder().encode
