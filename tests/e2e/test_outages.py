"""The store goes away under a worker that runs: the worker says so once, and goes on by itself when it is back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import pytest

from fairlead.core.errors import StoreError
from fairlead.core.task import State
from tests.e2e import fleet
from tests.e2e.processes import WorkerProcess, Yard, eventually
from tests.servers import postgres, redis

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class Backend(Protocol):
    """A server that is taken away and given back."""

    def halt(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Outages:
    """What is done to one server."""

    def __init__(self, server: Backend, start: Callable[[], object], url: str) -> None:
        self.server = server
        self.start = start
        self.url = url


@pytest.fixture(params=["redis", "postgresql"])
def outages(request: pytest.FixtureRequest) -> Iterator[Outages]:
    """A server of this test's own, which forgets nothing."""
    if request.param == "redis":
        server = redis.RedisServer("--appendonly", "yes", "--appendfsync", "always")
        try:
            yield Outages(server.start(), server.start, server.url(timeout=1))
        finally:
            server.stop()
    else:
        for databases in postgres.started():
            url = f"{databases.url(databases.copy_of_template())}?timeout=1"
            yield Outages(databases, databases.launch, url)


class Submitter:
    """Submits task after task in a thread, and remembers which were acknowledged. An error is no acknowledgement."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []
        self.refused = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def submitting(self) -> Iterator[Submitter]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            self._thread.join(60)

    def more(self, count: int) -> None:
        """Wait for so many more acknowledgements."""
        enough = len(self.acknowledged) + count
        eventually(lambda: len(self.acknowledged) >= enough, f"{count} more submits")

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            try:
                fleet.work.submit_sync(number)
            except StoreError:
                self.refused += 1
            else:
                self.acknowledged.append(number)
            number += 1
            self._stopping.wait(0.005)


def ended(yard: Yard) -> set[int]:
    return {line.number for line in yard.ledger() if line.event == "end"}


def assert_all_done(yard: Yard, worker: WorkerProcess, submitter: Submitter) -> list[int]:
    """What was acknowledged is done, by the worker that was there from the start; of how many outages it spoke."""
    acknowledged = set(submitter.acknowledged)
    eventually(lambda: acknowledged <= ended(yard), "the end of all that was acknowledged")
    yard.until_all_ended()
    assert {task.state for task in yard.tasks()} == {State.COMPLETED}
    assert worker.running
    # A worker all of whose slots are taken has nothing to claim, so it may only meet the outage when it settles.
    outages = [worker.log.count(f"cannot {what} tasks, retrying until it works") for what in ("claim", "settle")]
    recoveries = [worker.log.count(f"can {what} tasks again after") for what in ("claim", "settle")]
    assert recoveries == outages, worker.log
    assert "Traceback" not in worker.log
    again = sum(task.status.attempts > 1 for task in yard.tasks())
    print(f"\n{len(acknowledged)} acknowledged, {submitter.refused} refused, {again} run again\n{worker.log}")
    return outages


class TestOneServer:
    @pytest.fixture
    def store_url(self, outages: Outages) -> str:
        return outages.url

    def test_a_worker_goes_on_when_its_server_was_restarted(self, yard: Yard, outages: Outages) -> None:
        worker = yard.hire("--concurrency", "20")
        with Submitter().submitting() as submitter:
            eventually(lambda: len(ended(yard)) > 50, "work before the outage")
            outages.server.halt()
            eventually(lambda: "cannot claim tasks" in worker.log, "a word on the outage")
            eventually(lambda: submitter.refused > 0, "a refused submit")
            outages.start()
            submitter.more(100)
        assert max(assert_all_done(yard, worker, submitter)) == 1, worker.log

    def test_a_worker_goes_on_when_its_server_hung(self, yard: Yard, outages: Outages) -> None:
        """For longer than a call may take."""
        worker = yard.hire("--concurrency", "20")
        with Submitter().submitting() as submitter:
            eventually(lambda: len(ended(yard)) > 50, "work before the outage")
            outages.server.pause()
            try:
                eventually(lambda: "cannot claim tasks" in worker.log, "a word on the outage")
                eventually(lambda: submitter.refused > 0, "a refused submit")
            finally:
                outages.server.resume()
            submitter.more(100)
        assert max(assert_all_done(yard, worker, submitter)) == 1, worker.log

    def test_a_worker_that_leaves_while_its_server_hangs_says_what_it_does_not_know(
        self, yard: Yard, outages: Outages
    ) -> None:
        handle = fleet.work.submit_sync(1)
        worker = yard.hire()
        # Settled, and not only done: else the worker leaves with that unanswered.
        assert handle.result_sync(timeout=60) == 1
        outages.server.pause()
        try:
            # The wait of an idle worker on Redis claims as well; on PostgreSQL the claim comes after it.
            if "postgresql" in outages.url:
                eventually(lambda: "cannot claim tasks" in worker.log, "a word on the outage")
            worker.send(signal.SIGTERM)
            assert worker.wait() == 1, worker.log
        finally:
            outages.server.resume()
        assert "tasks may have been granted to the worker by its last claim" in worker.log
        assert "they run again when their leases have ended" in worker.log


class TestSentinel:
    @pytest.fixture
    def watched(self) -> Iterator[redis.Watched]:
        yield from redis.started_watched()

    @pytest.fixture
    def store_url(self, watched: redis.Watched) -> str:
        return watched.url(replicas=1, timeout=2)

    def test_a_worker_goes_on_after_a_failover_and_nothing_acknowledged_is_lost(
        self, yard: Yard, watched: redis.Watched
    ) -> None:
        worker = yard.hire("--concurrency", "20")
        master = watched.master()
        with Submitter().submitting() as submitter:
            eventually(lambda: len(ended(yard)) > 50, "work before the failover")
            master.halt()
            eventually(lambda: watched.master() is not master, "a failover")
            submitter.more(100)
        # Calls are tried again for a while, so a short failover is no outage to the worker.
        assert_all_done(yard, worker, submitter)
