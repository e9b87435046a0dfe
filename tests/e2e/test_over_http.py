"""Worker processes that know nothing but the URL of a server: killed, blocked and asked to leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.app.connection import connect
from fairlead.core.task import Reason, State
from tests.e2e import fleet
from tests.e2e.harbour import Harbour, opened
from tests.e2e.processes import ROOT, Gate, eventually


@pytest.fixture
def harbour(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harbour]:
    """An empty store behind a server; the fleet's tasks are submitted through it."""
    for name in [name for name in os.environ if name.startswith("FAIRLEAD_")]:
        monkeypatch.delenv(name)
    with opened(tmp_path, store_url) as harbour:
        former = fleet.app._swap(connect(harbour.server.url, fleet.SETTINGS))
        yield harbour
        fleet.app.connection().close_inline()
        fleet.app._swap(former)


@pytest.mark.slow
@pytest.mark.parametrize("store_url", ["sqlite", "redis"], indirect=True)
def test_what_a_killed_worker_ran_runs_again_elsewhere(harbour: Harbour) -> None:
    doomed = harbour.hire("--concurrency", "3")
    fleet.work.submit_many_sync([fleet.work.call(number, seconds=1.0) for number in range(3)])
    eventually(lambda: len(harbour.running_in(doomed.pid)) == 3, "work of the doomed")
    heir = harbour.hire("--concurrency", "3")
    doomed.send(signal.SIGKILL)
    doomed.wait()
    held = harbour.running_in(doomed.pid)
    assert held
    harbour.until_all_ended()
    tasks = harbour.tasks()
    assert {task.state for task in tasks} == {State.COMPLETED}
    for task in tasks:
        reasons = [entry.reason for entry in task.status.history]
        assert task.status.retries == 0
        assert reasons[-1] is Reason.COMPLETED
    assert {line.number for line in harbour.starts() if line.process == heir.pid} >= held
    assert sum(task.status.crashes for task in tasks) == len(held)


@pytest.mark.slow
@pytest.mark.parametrize("handler", [fleet.block_loop, fleet.hold_lock])
def test_leases_are_kept_while_a_handler_blocks_all_else(harbour: Harbour, handler: object) -> None:
    harbour.hire()
    handle = handler.submit_sync(1, 2 * fleet.LEASE)  # type: ignore[attr-defined]
    assert handle.result_sync(60) == 1


@pytest.mark.slow
def test_a_handler_that_blocks_past_its_timeout_has_timed_out_and_spends_a_retry(harbour: Harbour) -> None:
    harbour.hire()
    gate = Gate(harbour.folder)
    handle = fleet.block_loop.options(timeout=1, max_retries=0, max_crashes=0).submit_sync(1, gate=gate.path)
    eventually(lambda: handle.refresh_sync().snapshot.state.ended, "the end")
    gate.open()
    (task,) = harbour.tasks()
    assert (task.status.reason, task.status.crashes) == (Reason.RETRIES_USED_UP, 0)
    assert task.status.failure is not None
    assert task.status.failure.type == "Timeout"


@pytest.mark.slow
def test_a_worker_that_is_asked_to_leave_hands_back_what_it_runs(harbour: Harbour) -> None:
    worker = harbour.hire("--drain-seconds", "0")
    handle = fleet.work.submit_sync(1, seconds=600.0)
    eventually(lambda: bool(harbour.running_in(worker.pid)), "work")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    task = handle.refresh_sync().snapshot
    assert (task.state, task.status.reason) == (State.QUEUED, Reason.HANDED_BACK)


@pytest.mark.slow
def test_the_commands_work_on_a_server_too(harbour: Harbour) -> None:
    def fairlead(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fairlead", *arguments, "--store", harbour.server.url]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    submitted = fairlead("submit", "work", "number=1")
    assert submitted.returncode == 0, submitted.stderr
    task_id = submitted.stdout.strip()
    assert "work" in fairlead("show", task_id).stdout
    assert task_id in fairlead("list").stdout
    assert "default" in fairlead("stats").stdout
    assert "cancelled" in fairlead("cancel", task_id).stdout
    assert "queued" in fairlead("replay", task_id).stdout
    assert fairlead("cancel", task_id).returncode == 0
    assert "discarded" in fairlead("discard", task_id).stdout
    gone = fairlead("show", task_id)
    assert gone.returncode == 1 and task_id in gone.stderr
    refused = fairlead("keys", "list")
    assert refused.returncode == 2 and "needs the store itself" in refused.stderr
