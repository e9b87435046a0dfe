"""Workers that are asked to leave under load: nothing is done twice, nothing is lost, no retry is spent."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter

import pytest

from fairlead.core.task import Reason, State
from tests.e2e import fleet
from tests.e2e.processes import Yard, eventually, is_gone


@pytest.mark.slow
def test_sigterm_under_load_duplicates_nothing_and_spends_no_retry(yard: Yard) -> None:
    total, drain = 900, 30.0
    yard.lease = 60
    for task in (fleet.work, fleet.work_in_thread, fleet.work_isolated):
        offset = (fleet.work, fleet.work_in_thread, fleet.work_isolated).index(task)
        numbers = range(offset, 60 if task is fleet.work_isolated else total, 3)
        task.submit_many_sync([task.call(number, seconds=0.05) for number in numbers])
    submitted = len(yard.tasks())
    workers = [yard.hire("--concurrency", "20", "--drain-seconds", str(drain)) for _ in range(2)]
    eventually(lambda: {worker.pid for worker in workers} <= {line.process for line in yard.starts()}, "work of both")
    eventually(lambda: len(yard.starts()) >= 100, "a hundred starts")

    asked = time.monotonic()
    for worker in workers:
        worker.send(signal.SIGTERM)
    codes = [worker.wait() for worker in workers]
    took = time.monotonic() - asked

    assert codes == [0, 0], [worker.log for worker in workers]
    assert took < drain
    left = yard.tasks()
    assert {task.state for task in left} == {State.QUEUED, State.COMPLETED}
    assert_nothing_spent(yard)

    yard.hire("--concurrency", "50")
    yard.until_all_ended()
    assert {task.state for task in yard.tasks()} == {State.COMPLETED}
    assert_nothing_spent(yard)
    ends = Counter(line.number for line in yard.ledger() if line.event == "end")
    assert len(ends) == submitted
    assert set(ends.values()) == {1}


@pytest.mark.slow
def test_what_does_not_end_within_the_grace_is_handed_back_and_run_elsewhere(yard: Yard) -> None:
    yard.lease = 60
    tasks = [fleet.work, fleet.work_in_thread, fleet.work_isolated]
    for number, task in enumerate(tasks):
        task.options(max_retries=0, max_crashes=0).submit_sync(number, seconds=3_600)
    worker = yard.hire("--drain-seconds", "0.5")
    eventually(lambda: len(yard.starts()) == 3, "the start of all three")

    # A service manager sends SIGTERM to every process of a service.
    os.killpg(worker.pid, signal.SIGTERM)
    assert worker.wait() == 0, worker.log

    for back in yard.tasks():
        assert (back.spec.type, back.state, back.status.attempts) == (back.spec.type, State.QUEUED, 1), worker.log
        assert [entry.reason for entry in back.status.history] == [Reason.HANDED_BACK]
    assert_nothing_spent(yard)


@pytest.mark.slow
def test_a_second_ctrl_c_hands_back_at_once(yard: Yard) -> None:
    fleet.work.submit_sync(1, seconds=3_600)
    worker = yard.hire("--drain-seconds", "3600", "--log-level", "info")
    eventually(lambda: len(yard.starts()) == 1, "the start")

    # As a terminal does it: every process of the group is sent the signal.
    os.killpg(worker.pid, signal.SIGINT)
    eventually(lambda: "up to 3600 s" in worker.log, "the first word")
    assert worker.running
    os.killpg(worker.pid, signal.SIGINT)
    assert worker.wait() == 0, worker.log

    (task,) = yard.tasks()
    assert (task.state, task.status.reason) == (State.QUEUED, Reason.HANDED_BACK)
    assert_nothing_spent(yard)


@pytest.mark.slow
def test_a_handler_that_heeds_no_cancel_does_not_keep_the_worker_from_leaving(yard: Yard) -> None:
    fleet.stubborn.submit_sync(1)
    fleet.delegate.submit_sync(2, seconds=3_600)
    worker = yard.hire("--drain-seconds", "0.5")
    eventually(lambda: len(yard.starts()) == 2, "the start of both")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0, worker.log


@pytest.mark.slow
def test_the_children_of_a_killed_worker_die_with_it(yard: Yard) -> None:
    fleet.work_isolated.submit_sync(1, seconds=3_600)
    worker = yard.hire()
    eventually(lambda: len(yard.starts()) == 1, "the start")
    (cell,) = {line.process for line in yard.starts()}
    children = {cell, worker.keeper()}
    assert set(worker.children()) == children

    worker.send(signal.SIGKILL)
    worker.wait()

    eventually(lambda: all(map(is_gone, children)), "the end of the children")
    yard.hire()
    eventually(lambda: len(yard.starts()) == 2, "the second attempt")
    (task,) = yard.tasks()
    assert (task.status.crashes, task.status.retries) == (1, 0)


def assert_nothing_spent(yard: Yard) -> None:
    spent = [task for task in yard.tasks() if task.status.retries or task.status.crashes]
    assert [(task.spec.type, task.status.history) for task in spent] == [], [worker.log for worker in yard.workers]
