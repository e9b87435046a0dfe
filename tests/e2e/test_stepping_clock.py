"""The clock of a Redis or PostgreSQL server is set forward or back under processes at their default settings.

A server that had begun before and a worker that began after used to disagree by the step: the one gave up what the
other held, again and again, until every task was a dead letter though nobody had died.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead.core.instant import DAY, HOUR, MINUTE, Span
from fairlead.storage.steps import host_time
from tests.e2e.processes import PATIENCE, ROOT, eventually
from tests.servers import postgres, redis
from tests.servers.clock_steps import SteppingPostgres, SteppingRedis, SteppingStore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

TASKS = 10
SECONDS = 5.0
"""How long each takes: long enough for a sweep to find it executing, several times."""


@pytest.fixture(params=["redis", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SteppingStore]:
    if request.param == "redis":
        server: redis.RedisServer = request.getfixturevalue("redis_server")
        server.ask("FLUSHALL")
        yield SteppingRedis(server, tmp_path)
        server.ask("FLUSHALL")
    else:
        databases: postgres.PostgresServer = request.getfixturevalue("postgres_server")
        stepping = SteppingPostgres(databases)
        yield stepping
        databases.drop_database(stepping.database)


class Fleet:
    """Processes over one store, started as users start them."""

    def __init__(self, store: SteppingStore, folder: Path, closing: ExitStack) -> None:
        self._store = store
        self._folder = folder
        self._closing = closing
        self._url = ""

    def serve(self) -> None:
        process = self._start("serve", "--json", "--port=0", "--rate-limit=0")
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, self.logs()
        self._url = json.loads(first)["url"]

    def work(self) -> None:
        self._start("worker", "tests.e2e.naps:app", "--concurrency=20")

    def submit(self, count: int, seconds: float) -> list[str]:
        wish = {"task_type": "nap", "parameters": {"seconds": seconds}, "max_crashes": 0}
        return [self.ask("/api/v1/tasks", wish)["task_id"] for _ in range(count)]

    def tasks(self, ids: list[str]) -> list[dict[str, Any]]:
        return [self.ask(f"/api/v1/tasks/{task_id}") for task_id in ids]

    def ask(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def logs(self) -> str:
        return "\n".join(file.read_text() for file in sorted(self._folder.glob("*.log")))

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        log = self._closing.enter_context((self._folder / f"{arguments[0]}.log").open("ab"))
        process = subprocess.Popen(
            [sys.executable, "-m", "fairlead", *arguments, "--store", self._store.url],
            cwd=ROOT,
            env=os.environ | self._store.environment,
            stdout=subprocess.PIPE,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
        self._closing.callback(_end, process)
        return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(PATIENCE)
    if process.stdout is not None:
        process.stdout.close()


def set_clock(store: SteppingStore, by: Span) -> None:
    """Set the store's clock, and see that it is."""
    store.step(by)
    assert abs(store.now() - host_time() - by) < MINUTE


@contextmanager
def fleet_of(store: SteppingStore, folder: Path) -> Iterator[Fleet]:
    with ExitStack() as closing:
        yield Fleet(store, folder, closing)


STEPS = {"2-min-back": -2 * MINUTE, "2-min-ahead": 2 * MINUTE, "1-h-back": -HOUR, "1-h-ahead": HOUR, "1-day-ahead": DAY}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_no_task_is_a_dead_letter_because_a_clock_was_set(store: SteppingStore, tmp_path: Path, step: Span) -> None:
    """A server runs, the clock is set, a worker starts, and ten tasks are submitted that may not crash even once."""
    with fleet_of(store, tmp_path) as fleet:
        fleet.serve()
        set_clock(store, step)
        fleet.work()
        ids = fleet.submit(TASKS, SECONDS)
        tasks: list[dict[str, Any]] = []

        def ended() -> bool:
            tasks[:] = fleet.tasks(ids)
            return all(task["status"] in ("completed", "failed", "dead_letter") for task in tasks)

        eventually(ended, "the end of all tasks")
        assert [(task["status"], task["attempts"]) for task in tasks] == [("completed", 1)] * TASKS, fleet.logs()


def test_tasks_that_execute_while_a_clock_is_set_are_not_disturbed(store: SteppingStore, tmp_path: Path) -> None:
    """Both were there before: their leases go on by the clock as it is then."""
    with fleet_of(store, tmp_path) as fleet:
        fleet.serve()
        fleet.work()
        ids = fleet.submit(TASKS, 2 * SECONDS)
        eventually(lambda: all(task["status"] == "executing" for task in fleet.tasks(ids)), "all tasks executing")
        set_clock(store, -2 * MINUTE)
        eventually(lambda: all(task["status"] == "completed" for task in fleet.tasks(ids)), "the end of all tasks")
        assert [task["attempts"] for task in fleet.tasks(ids)] == [1] * TASKS, fleet.logs()
