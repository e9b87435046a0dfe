"""Leases are kept for the living, whatever their handlers do, and for nobody else."""

from __future__ import annotations

import os
import signal
import time

import pytest

from fairlead.app.task_type import TaskDefinition
from fairlead.core.task import Reason, State
from tests.e2e import fleet
from tests.e2e.processes import Gate, Yard, eventually, is_gone

LONG = 4 * fleet.LEASE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store_url", "task"),
    [("sqlite", fleet.block_loop), ("redis", fleet.hold_lock)],
    ids=["the loop", "the interpreter's lock"],
    indirect=["store_url"],
)
def test_a_handler_that_blocks_for_four_leases_runs_once(yard: Yard, task: TaskDefinition[..., int]) -> None:
    """On SQLite a handler that holds the interpreter's lock may happen to hold the file, too."""
    handle = task.submit_sync(1, seconds=LONG)
    yard.hire("--concurrency", "1")
    eventually(lambda: len(yard.starts()) == 1, "the start")
    # A rival that sweeps all the while, and would take the task as soon as its lease ended.
    rival = yard.hire()
    fleet.work.submit_sync(2)
    assert fleet.work.submit_sync(3).result_sync(timeout=60) == 1

    assert handle.result_sync(timeout=60) == 1

    assert [(line.number, line.attempt) for line in yard.starts() if line.number == 1] == [(1, 1)]
    assert [entry.reason for entry in handle.snapshot.status.history] == [Reason.COMPLETED]
    assert rival.running


@pytest.mark.slow
def test_a_keeper_that_is_killed_is_replaced_and_leases_are_kept(yard: Yard) -> None:
    handle = fleet.work.submit_sync(1, seconds=3 * fleet.LEASE)
    worker = yard.hire()
    eventually(lambda: len(yard.starts()) == 1, "the start")
    former = worker.keeper()
    os.kill(former, signal.SIGKILL)
    eventually(lambda: worker.keeper() != former, "another keeper")

    assert handle.result_sync(timeout=60) == 1
    assert [entry.reason for entry in handle.snapshot.status.history] == [Reason.COMPLETED]
    assert "the lease keeper process ended with -9; starting another one" in worker.log


@pytest.mark.slow
def test_a_stopped_worker_loses_its_task_and_its_word_is_refused(yard: Yard) -> None:
    handle = fleet.work.submit_sync(1, seconds=1.5 * fleet.LEASE)
    zombie = yard.hire()
    eventually(lambda: len(yard.starts()) == 1, "the start")
    eventually(lambda: handle.refresh_sync().snapshot.status.beats > 0, "a heartbeat")
    zombie.send(signal.SIGSTOP)
    yard.hire()
    eventually(lambda: len(yard.starts()) == 2, "the takeover")
    zombie.send(signal.SIGCONT)

    assert handle.result_sync(timeout=60) == 2
    eventually(lambda: "lease" in zombie.log, "the zombie's refusal")
    task = handle.snapshot
    assert [entry.reason for entry in task.status.history] == [Reason.WORKER_LOST, Reason.DUE, Reason.COMPLETED]
    assert (task.status.crashes, task.status.retries) == (1, 0)


@pytest.mark.slow
def test_a_keeper_does_not_outlive_a_worker_whose_handlers_left_children_behind(yard: Yard) -> None:
    """The child has the worker's end of the keeper's stdin: the keeper must not take it for the worker."""
    handle = fleet.fork_and_wait.submit_sync(1, seconds=60.0)
    worker = yard.hire()
    eventually(lambda: len(yard.starts()) == 1, "the start")
    keeper = worker.keeper()
    (child,) = (int(line.event.removeprefix("child-")) for line in yard.ledger() if line.event.startswith("child"))
    worker.send(signal.SIGKILL)
    worker.wait()
    try:
        eventually(lambda: is_gone(keeper), "the keeper's end", patience=30)
        assert not is_gone(child)
        until = handle.refresh_sync().snapshot.status.lease
        assert until is not None
        eventually(lambda: time.time() * 1e6 > until.until, "the end of the lease")
        assert handle.refresh_sync().snapshot.status.lease == until
        assert handle.status is State.EXECUTING
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store_url", "task"),
    [
        pytest.param(store, task, id=f"{what}-{store}")
        for task, what in ((fleet.block_loop, "the loop"), (fleet.hold_lock, "the interpreter's lock"))
        for store in ("sqlite", "redis", "postgresql")
        if (task, store) != (fleet.hold_lock, "sqlite")
    ],
    indirect=["store_url"],
)
def test_a_handler_that_blocks_past_its_timeout_has_timed_out_and_spends_a_retry(
    yard: Yard, task: TaskDefinition[..., int]
) -> None:
    """Its worker cannot say so; the keeper does, and nobody takes the worker for lost."""
    gate = Gate(yard.folder)
    handle = task.options(timeout=1, max_retries=0, max_crashes=0).submit_sync(1, gate=gate.path)
    worker = yard.hire("--log-level", "warning")
    eventually(lambda: handle.refresh_sync().snapshot.state.ended, "the end")
    gate.open()
    status = handle.snapshot.status
    assert (status.reason, status.retries, status.crashes) == (Reason.RETRIES_USED_UP, 0, 0)
    assert status.failure is not None
    assert (status.failure.type, status.attempts) == ("Timeout", 1)
    assert fleet.work.submit_sync(2).result_sync(timeout=60) == 1
    eventually(lambda: "blocked past the timeout; the lease keeper recorded the timeout" in worker.log, "a word of it")


@pytest.mark.slow
def test_a_worker_that_locks_the_file_while_its_handler_holds_the_interpreter_is_ended(yard: Yard) -> None:
    """Nobody could write to the file any more, and so nobody could settle the task either."""
    gate = Gate(yard.folder)
    file = yard.store.removeprefix("sqlite:///")
    options = fleet.hold_lock_amid_a_write.options(timeout=1, max_retries=0, max_crashes=0)
    handle = options.submit_sync(1, file=file, gate=gate.path)
    worker = yard.hire("--log-level", "warning")
    eventually(lambda: handle.refresh_sync().snapshot.state.ended, "the end")

    status = handle.snapshot.status
    assert (status.reason, status.retries, status.crashes) == (Reason.RETRIES_USED_UP, 0, 0)
    assert status.failure is not None
    assert (status.failure.type, status.attempts) == ("Timeout", 1)
    assert worker.wait() == -signal.SIGKILL
    assert "the lease keeper killed the worker" in worker.log
    yard.hire()
    assert fleet.work.submit_sync(2).result_sync(timeout=60) == 1
