"""What a backlog is when it is measured."""

from __future__ import annotations

from contextlib import aclosing

from bench.queueing import BATCH, TURN_OF, Backlog, backlog_rates, claim
from fairlead.core.task import Priority


async def test_a_turn_takes_the_critical_ones_alone_so_that_no_lane_runs_dry() -> None:
    async with aclosing(Backlog("memory", TURN_OF)) as backlog:
        await backlog.renew()
        await backlog.turn()
        held = await claim(backlog.engine)
    assert [task.status.priority for task in held] == [Priority.CRITICAL] * BATCH


async def test_a_backlog_that_is_too_small_for_another_turn_is_filled_anew() -> None:
    async with aclosing(Backlog("memory", TURN_OF)) as small, aclosing(Backlog("memory", 2 * TURN_OF)) as larger:
        for backlog in (small, larger):
            await backlog.renew()
        filled = small.engine, larger.engine
        for backlog in (small, larger):
            await backlog.turn()
            await backlog.renew()
        assert small.engine is not filled[0]
        assert larger.engine is filled[1]
        await larger.turn()
        await larger.renew()
        assert larger.engine is not filled[1]


async def test_every_backlog_gives_a_rate_for_every_repeat() -> None:
    rates = await backlog_rates("memory", 2, (TURN_OF, 2 * TURN_OF))
    assert {size: len(found) for size, found in rates.items()} == {TURN_OF: 2, 2 * TURN_OF: 2}
    assert all(rate > 0 for found in rates.values() for rate in found)
