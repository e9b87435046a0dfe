"""Low tasks in a flood of urgent ones, in virtual time."""

from __future__ import annotations

from bench.starving import LOW_AT_FIRST, flooded
from fairlead.core.instant import MINUTE
from fairlead.core.queues.order import Promote
from fairlead.core.task import Priority


async def test_a_flood_of_high_delays_low_tasks_until_they_are_treated_alike() -> None:
    order = Promote()
    waits = await flooded("memory://", Priority.HIGH, minutes=32)
    alike = order.low + order.medium
    assert alike - MINUTE < waits.passed < alike
    assert alike <= waits.longest < alike + MINUTE
    assert (waits.ran, waits.left) == (LOW_AT_FIRST + 2, 30)


async def test_a_wait_counts_although_it_is_not_over() -> None:
    waits = await flooded("memory://", Priority.CRITICAL, minutes=5)
    assert (waits.ran, waits.left) == (0, LOW_AT_FIRST + 5)
    assert waits.longest == 5 * MINUTE
