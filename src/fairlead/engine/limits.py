"""Which limit keeps a task waiting, for people who ask."""

from __future__ import annotations

import enum

from msgspec import Struct

from fairlead.core.instant import Instant
from fairlead.core.limits import NEVER, NO_LIMITS, Limit, Meter
from fairlead.core.task import State, Task
from fairlead.engine.book import QueueBook
from fairlead.engine.clock import Clock
from fairlead.storage.protocol import Store
from fairlead.storage.values import Used


class LimitOf(enum.StrEnum):
    """What a limit is of."""

    QUEUE = "queue"
    TYPE = "type"
    KEY = "key"


class LimitReached(Struct, frozen=True, kw_only=True):
    """A limit that lets no more tasks start for now."""

    of: LimitOf
    name: str
    """The queue, the task type or the concurrency key."""
    running: int
    """How many tasks that count towards it are executing."""
    most: int | None
    """How many may be at once; None if it is the rate that is reached."""
    opens_at: Instant | None
    """From when on a rate lets the next one start; None if one that runs must end first."""


async def blocking(store: Store, book: QueueBook, clock: Clock, task: Task) -> LimitReached | None:
    """The limit that keeps a queued task from being claimed now; None if no limit does."""
    spec = task.spec
    if task.state is not State.QUEUED:
        return None
    await book.refresh()
    limits = book.limits.get(spec.queue, NO_LIMITS)
    used = await store.usage(spec.queue, spec.type, spec.concurrency_key)
    candidates = [
        (LimitOf.QUEUE, spec.queue, limits.queue, used.queue),
        (LimitOf.TYPE, spec.type, limits.types.get(spec.type, Limit()), used.type),
    ]
    if spec.concurrency_key is not None:
        candidates.append((LimitOf.KEY, spec.concurrency_key, limits.key, used.key))
    now = clock.now()
    found = (_reached(of, name, limit, each, now) for of, name, limit, each in candidates)
    return next((reached for reached in found if reached is not None), None)


def _reached(of: LimitOf, name: str, limit: Limit, used: Used, now: Instant) -> LimitReached | None:
    opens_at = Meter(limit, used.running, used.due).opens_at(now)
    if opens_at <= now:
        return None
    full = opens_at == NEVER
    return LimitReached(
        of=of,
        name=name,
        running=used.running,
        most=limit.running if full else None,
        opens_at=None if full else opens_at,
    )
