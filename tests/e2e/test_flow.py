"""A group with a callback, run by several worker processes of which one is killed."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

import pytest

from fairlead import chain, group
from fairlead.core.task import State
from tests.e2e import fleet
from tests.e2e.processes import PATIENCE, ROOT, Yard, eventually

CALLBACK = 1_000_000

stores = pytest.mark.parametrize("store_url", ["sqlite", "redis", "postgresql"], indirect=True)


@pytest.mark.slow
@pytest.mark.timeout(300)
@stores
def test_the_callback_of_a_thousand_tasks_runs_once_when_all_have_ended(yard: Yard) -> None:
    calls = [fleet.work.call(number, 0.1) for number in range(1_000)]
    flow = group(calls, callback=fleet.add_up.call(CALLBACK)).submit_sync()
    assert flow.last.snapshot.status.pending == 1_000
    doomed = yard.hire("--concurrency", "50")
    eventually(lambda: bool(yard.starts()), "work of the doomed")
    doomed.send(signal.SIGKILL)
    doomed.wait()
    yard.hire("--concurrency", "50")
    yard.until_all_ended()
    assert {task.state for task in yard.tasks()} == {State.COMPLETED}
    # Each returned its attempt, and some were tried again.
    attempts = sum(task.status.attempts for task in yard.tasks() if task.id != flow.last.id)
    assert flow.last.result_sync(PATIENCE) == attempts
    ledger = yard.ledger()
    (began,) = [line.moment for line in ledger if line.event == "start" and line.number == CALLBACK]
    assert all(line.moment < began for line in ledger if line.number != CALLBACK)


@stores
def test_who_is_killed_between_the_end_and_the_release_leaves_it_to_any_sweep(yard: Yard) -> None:
    flow = chain(fleet.work.call(1), fleet.add_up.call(2)).submit_sync()
    command = [sys.executable, "-m", "tests.e2e.last_breath", yard.store]
    assert subprocess.run(command, cwd=ROOT, timeout=PATIENCE).returncode == -signal.SIGKILL
    first, last = (task.refresh_sync() for task in flow.tasks)
    assert (first.status, last.status) == (State.COMPLETED, State.SCHEDULED)

    async def sweep() -> None:
        async with yard.engine() as engine:
            await engine.sweep()

    asyncio.run(sweep())
    assert last.refresh_sync().status is State.QUEUED
