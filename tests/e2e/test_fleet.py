"""Many tasks, several worker processes, of which one is killed and one sleeps through its leases."""

from __future__ import annotations

import signal
import time
from collections import Counter
from itertools import combinations

import pytest

from fairlead.core.task import Priority, Reason, State
from tests.e2e import fleet
from tests.e2e.processes import WorkerProcess, Yard, eventually

CONCURRENCY = 50


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("store_url", ["sqlite", "redis", "postgresql"], indirect=True)
def test_three_workers_one_killed_and_one_stopped_complete_every_task_once_and_in_order(yard: Yard) -> None:
    total = 10_000
    began = time.monotonic()
    submit(total)
    submitted = time.monotonic()
    steady, doomed, zombie = (yard.hire("--concurrency", str(CONCURRENCY)) for _ in range(3))
    eventually(lambda: {worker.pid for worker in (steady, doomed, zombie)} <= workers_seen(yard), "work of all three")

    stop_amid_work(yard, zombie)
    held = yard.running_in(zombie.pid)
    eventually(lambda: bool(yard.running_in(doomed.pid)), "work of the doomed")
    doomed.send(signal.SIGKILL)
    doomed.wait()
    lost = yard.running_in(doomed.pid)
    # Past its leases: others have what the zombie held.
    eventually(lambda: held <= taken_by_others(yard, zombie), "the takeover of the zombie's tasks")
    zombie.send(signal.SIGCONT)
    yard.until_all_ended()
    eventually(lambda: refusals(zombie) >= len(held), "the refusal of the zombie's outcomes")
    ended = time.monotonic()

    tasks = yard.tasks()
    assert len(tasks) == total
    assert {task.state for task in tasks} == {State.COMPLETED}
    assert [
        task.id for task in tasks if [entry.reason for entry in task.status.history].count(Reason.COMPLETED) != 1
    ] == []
    # What counts is what the attempt said that the store believed: no other attempt's word.
    assert [task.id for task in tasks if task.status.result != b"%d" % task.status.history[-1].attempt] == []
    starts = Counter((line.number, line.attempt) for line in yard.starts())
    assert [start for start, times in starts.items() if times > 1] == []
    assert {number for number, _ in starts} == set(range(total))
    assert_order(yard, total)
    again = [task for task in tasks if task.status.crashes]
    assert len(again) >= len(held)
    assert all(task.status.retries == 0 for task in tasks)
    print(
        f"\n{total} tasks submitted in {submitted - began:.1f} s, completed in {ended - submitted:.1f} s; the killed "
        f"worker held {len(lost)}, the zombie {len(held)}; {len(again)} tasks were run again, "
        f"{refusals(zombie)} outcomes of the zombie refused, {len(starts)} attempts in all"
    )


def submit(total: int) -> None:
    """The least urgent first: the order of submitting must not be what orders them."""
    for priority in reversed(Priority):
        numbers = range(priority.value, total, len(Priority))
        calls = [fleet.work.options(priority=priority).call(number, seconds=0.1) for number in numbers]
        assert len(fleet.work.submit_many_sync(calls)) == len(numbers)


def priority_of(number: int) -> Priority:
    return Priority(number % len(Priority))


def stop_amid_work(yard: Yard, worker: WorkerProcess) -> None:
    """Stop a worker that has tasks running and holds no lock that nobody could take from it, as on a file."""
    for _ in range(50):
        eventually(lambda: bool(yard.running_in(worker.pid)), "work of the zombie")
        worker.send(signal.SIGSTOP)
        before = starts_of_others(yard, worker)
        deadline = time.monotonic() + 3.0
        while yard.running_in(worker.pid) and time.monotonic() < deadline:
            # More than the others can have claimed by now: they have claimed since, so the store is free.
            if starts_of_others(yard, worker) > before + 2 * CONCURRENCY:
                return
            time.sleep(0.02)
        worker.send(signal.SIGCONT)
    raise AssertionError("the worker was never caught amid work")


def starts_of_others(yard: Yard, worker: WorkerProcess) -> int:
    return sum(line.process != worker.pid for line in yard.starts())


def workers_seen(yard: Yard) -> set[int]:
    return {line.process for line in yard.starts()}


def taken_by_others(yard: Yard, worker: WorkerProcess) -> set[int]:
    return {line.number for line in yard.starts() if line.process != worker.pid}


def refusals(worker: WorkerProcess) -> int:
    return sum(
        "lease lost before its outcome was stored" in line or "lease lost; stopping" in line
        for line in worker.log.splitlines()
    )


def assert_order(yard: Yard, total: int) -> None:
    """Nothing waits while something less urgent is taken.

    Handlers write down their start a moment after the claim, so at a border as many as run at once may be out of order.
    """
    first = {line.number: line.moment for line in yard.starts() if line.attempt == 1}
    by_priority = {priority: sorted(first[n] for n in first if priority_of(n) is priority) for priority in Priority}
    assert sum(map(len, by_priority.values())) > 0.9 * total
    for higher, lower in combinations(Priority, 2):
        late = [moment for moment in by_priority[higher] if moment > by_priority[lower][0]]
        assert len(late) <= 3 * CONCURRENCY, f"{len(late)} {higher.word} tasks started after the first {lower.word} one"
