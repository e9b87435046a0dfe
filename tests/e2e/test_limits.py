"""Limits and a worker that is killed: its places come free with its leases, and no more run at once than may."""

from __future__ import annotations

import asyncio
import signal

import pytest

from fairlead.core.task import State
from tests.e2e import fleet
from tests.e2e.processes import Line, Yard, eventually

MOST = 3


def at_once(ledger: list[Line], doomed: int) -> int:
    """How many tasks ran at once, at most; those of the one that was killed end when it does."""
    changes = sorted((line.moment, 1 if line.event == "start" else -1) for line in ledger if line.process != doomed)
    running = most = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("store_url", ["sqlite", "redis", "postgresql"], indirect=True)
def test_a_killed_worker_leaks_no_place(yard: Yard) -> None:
    async def limit() -> None:
        async with yard.engine() as engine:
            await engine.queues.change("default", running=MOST)

    asyncio.run(limit())
    fleet.work.submit_many_sync([fleet.work.call(number, 60.0) for number in range(MOST)])
    doomed = yard.hire("--concurrency", "10")
    eventually(lambda: len(yard.starts()) == MOST, "all places to be taken")
    keyed = fleet.work.options(concurrency_key="one")
    keyed.submit_many_sync([keyed.call(100 + number, 0.02) for number in range(20)])
    fleet.work.submit_many_sync([fleet.work.call(200 + number, 0.02) for number in range(40)])
    doomed.send(signal.SIGKILL)
    doomed.wait()

    async def shorten() -> None:
        async with yard.engine() as engine:
            for task in await engine.find(limit=1_000):
                if task.state is State.EXECUTING:
                    await engine.cancel(task.id)

    asyncio.run(shorten())
    yard.hire("--concurrency", "10")
    yard.hire("--concurrency", "10")
    yard.until_all_ended()
    states = [task.state for task in yard.tasks()]
    assert (states.count(State.CANCELLED), states.count(State.COMPLETED)) == (MOST, 60)
    assert at_once(yard.ledger(), doomed.pid) <= MOST
    assert at_once([line for line in yard.ledger() if 100 <= line.number < 200], doomed.pid) == 1
