"""How many more tasks the limits of a queue let start: the arithmetic of a claim, asked without claiming."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msgspec import Struct

from fairlead.core.instant import Instant, Span
from fairlead.core.queues.limits import NO_LIMITS, Limit, Limits, Meter
from fairlead.core.task import Task
from fairlead.storage.protocol import Store
from fairlead.storage.values import Used

_COUNTED: Final = 1_000
"""A rate that lets more than this start at once is as good as none to who asks for a place in line."""
_MOST_TYPES: Final = 100
"""How many limited types are looked at."""


class LimitLeft(Struct, frozen=True):
    """What one limit leaves."""

    left: int | None = None
    """How many more may start now if nothing ends; None for as many as come."""
    most: int | None = None
    """How many may run at once."""
    interval: Span = 0
    """How far apart starts are, of a rate."""

    def within(self, count: int) -> int:
        """How many of so many may start now."""
        return count if self.left is None else min(count, self.left)

    def start_of(self, ahead: int, mean: Span | None) -> Span:
        """How long until one with so many ahead may start, if those that run take this long."""
        if self.left is None or ahead < self.left:
            return 0
        waits = ahead - self.left + 1
        by_ends = 0 if self.most is None or mean is None else waits * mean // max(1, self.most)
        return max(by_ends, waits * self.interval)


OPEN: Final = LimitLeft()
"""Nothing is limited."""


class LimitsLeft(Struct, frozen=True):
    """What the limits of a queue leave."""

    queue: LimitLeft = OPEN
    types: dict[str, LimitLeft] = {}
    key: LimitLeft = OPEN
    """Of the task's own concurrency key."""

    def of_type(self, task_type: str) -> LimitLeft:
        return self.types.get(task_type, OPEN)


async def limits_left(
    store: Store, limits: Limits | None, task: Task, types: Collection[str], now: Instant
) -> LimitsLeft:
    """What is left of the limits that a task, and those of these types ahead of it in its queue, come under."""
    spec, known = task.spec, NO_LIMITS if limits is None else limits
    if limits is None and spec.concurrency_key is None:
        return LimitsLeft()
    used = await store.usage(spec.queue, spec.type, spec.concurrency_key)
    limited = {spec.type: used.type} if spec.type in known.types else {}
    for task_type in sorted(known.types.keys() & set(types) - {spec.type})[:_MOST_TYPES]:
        limited[task_type] = (await store.usage(spec.queue, task_type, None)).type
    return LimitsLeft(
        _allowance(known.queue, used.queue, now),
        {task_type: _allowance(known.types[task_type], each, now) for task_type, each in limited.items()},
        OPEN if spec.concurrency_key is None else _allowance(known.key, used.key, now),
    )


def _allowance(limit: Limit, used: Used, now: Instant) -> LimitLeft:
    if limit == Limit():
        return OPEN
    meter = Meter(limit, used.running, used.due)
    left = 0
    while left < _COUNTED and meter.opens_at(now) <= now:
        meter.start(now)
        left += 1
    if left == _COUNTED and limit.pace is None:
        left = max(0, (limit.running or 0) - used.running)
    return LimitLeft(left, limit.running, 0 if limit.pace is None else limit.pace.interval)
