"""Tasks at risk of starving: those that have waited for more than half of what their queue's order allows."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from fairlead.core.errors import StoreError
from fairlead.core.instant import SECOND, Instant, Span
from fairlead.core.queues.order import Policy
from fairlead.core.queues.promotion import BEFORE_ALL, FIRST_ID, Place, starvation_bound, steady_table
from fairlead.core.task import Priority
from fairlead.engine.runtime.clock import Clock
from fairlead.storage.protocol import Store
from fairlead.storage.values import LaneTally, Stretch

AtRisk: TypeAlias = Mapping[tuple[str, Priority], int]
"""How many tasks are at risk, by queue and priority; what is not there has none."""

MOST_LANES: Final = 1_000
"""In how many lanes tasks are counted at once; beyond that, those whose first task has waited longest."""
INTERVAL: Final[Span] = 10 * SECOND
"""How long a count is used before it is made anew."""
_SHARE: Final = 20
"""The time that counting may take, as a part of all time: where counting is slow, it is done more seldom."""


class StarvationCount:
    """The tasks of one store that are at risk, counted when somebody asks, and seldom."""

    def __init__(self, store: Store, clock: Clock, policy_of: Callable[[str], Policy]) -> None:
        """`policy_of` tells the order of service of a queue."""
        self._store = store
        self._clock = clock
        self._policy_of = policy_of
        self._counted: AtRisk = {}
        self._next: Span = 0

    async def count(self, oldest: Mapping[tuple[str, Priority], Span]) -> AtRisk:
        """How many tasks are at risk, given the longest wait by queue and priority: mostly that shows it to be none."""
        if not any(age > half for (queue, priority), age in oldest.items() if (half := self._half(queue, priority))):
            return {}
        start = self._clock.monotonic()
        if start >= self._next:
            # What takes too long for the store is not counted, and costs nobody the rest of the page.
            with contextlib.suppress(StoreError):
                self._counted = await self._look()
            end = self._clock.monotonic()
            self._next = end + max(INTERVAL, _SHARE * (end - start))
        return self._counted

    async def _look(self) -> AtRisk:
        tally, now = await self._store.tally(), self._clock.now()
        lanes = [(half, each) for each in tally.lanes if (half := self._half_passed(each, now))]
        lanes.sort(key=lambda found: found[1].oldest_ready or 0)
        chosen = lanes[:MOST_LANES]
        counts = await self._store.count(
            [Stretch(each.lane, BEFORE_ALL, Place(now - half, FIRST_ID)) for half, each in chosen]
        )
        at_risk: Counter[tuple[str, Priority]] = Counter()
        for (_, each), count in zip(chosen, counts, strict=True):
            at_risk[each.lane.queue, each.lane.priority] += count
        return at_risk

    def _half_passed(self, line: LaneTally, now: Instant) -> Span | None:
        """Half of the bound of a lane, if its first task has waited for longer."""
        half = self._half(line.lane.queue, line.lane.priority)
        return half if half and line.oldest_ready is not None and now - line.oldest_ready > half else None

    def _half(self, queue: str, priority: Priority) -> Span | None:
        """Half of what a task may wait; None where the order says nothing of it, or does not let it wait."""
        return _halves(self._policy_of(queue))[priority]


@functools.lru_cache(256)
def _halves(policy: Policy) -> list[Span | None]:
    table = steady_table(policy)
    bounds = [None if table is None else starvation_bound(table, priority) for priority in Priority]
    return [bound // 2 if bound else None for bound in bounds]
