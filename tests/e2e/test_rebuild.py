"""Redis loses everything amid work; `fairlead rebuild` brings back from the journal what had not ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from fairlead.app.connection import Connection
from fairlead.core.task import Reason, State, Task
from fairlead.storage.journal.url import parse_journal
from fairlead.storage.postgres.rows import CODES
from tests.e2e import fleet
from tests.e2e.harbour import ServerProcess
from tests.e2e.processes import ROOT, Gate, Yard, eventually
from tests.servers import postgres, redis

TOTAL = 20_000

by_hand = pytest.mark.parametrize("yard", ["?rebuild=off"], indirect=True, ids=["by hand"])


@pytest.fixture
def yard(
    redis_server: redis.RedisServer,
    postgres_server: postgres.PostgresServer,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Yard]:
    """An empty store that has a journal."""
    for name in [name for name in os.environ if name.startswith("FAIRLEAD_")]:
        monkeypatch.delenv(name)
    store, journal = (
        redis_server.url(),
        postgres_server.url(postgres_server.create_database()) + getattr(request, "param", ""),
    )
    former = fleet.app._swap(Connection(store, fleet.SETTINGS, journal=journal))
    with Yard(tmp_path, store, journal).manned() as yard:
        yield yard
    fleet.app.connection().close_inline()
    fleet.app._swap(former)
    redis_server.ask("FLUSHALL")


@by_hand
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_everything_completes_though_redis_is_emptied_in_the_middle(
    yard: Yard, redis_server: redis.RedisServer
) -> None:
    for first in range(0, TOTAL, 1_000):
        calls = [fleet.work.call(number, seconds=0.01) for number in range(first, first + 1_000)]
        assert len(fleet.work.submit_many_sync(calls)) == 1_000
    workers = [yard.hire("--concurrency", "50") for _ in range(2)]
    eventually(lambda: completed(yard) >= TOTAL // 3, "a third of the work")
    redis_server.ask("FLUSHALL")
    began = time.monotonic()
    report = rebuild(yard)
    took = time.monotonic() - began
    eventually(lambda: completed(yard) == TOTAL, "the end of all work", patience=200)

    assert all(worker.running for worker in workers)
    tasks = yard.tasks()
    assert Counter(task.state for task in tasks) == {State.COMPLETED: TOTAL}
    # What counts is what the attempt said that the store believed: no other attempt's word.
    assert [task.id for task in tasks if task.status.result != b"%d" % task.status.history[-1].attempt] == []
    ends = Counter(line.number for line in yard.ledger() if line.event == "end")
    assert set(ends) == set(range(TOTAL))
    print(
        f"\n{TOTAL} tasks; {report['put_back']} of {report['looked_at']} were put back in {took:.1f} s, "
        f"and {sum(times > 1 for times in ends.values())} were run again"
    )
    assert report["put_back"] > TOTAL // 3
    eventually(lambda: journal_is_level(yard), "a journal that knows all")


def rebuild(yard: Yard) -> dict[str, int]:
    return says(yard, "rebuild")


def journal_is_level(yard: Yard) -> bool:
    return says(yard, "stats")["journal_behind"] == 0


def says(yard: Yard, command: str) -> dict[str, int]:
    """What a command says, run as a user runs it."""
    assert yard.journal is not None
    words = [sys.executable, "-m", "fairlead", command, "--json", "--store", yard.store, "--journal", yard.journal]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert ran.returncode == 0, ran.stderr
    said: dict[str, int] = json.loads(ran.stdout)
    return said


def completed(yard: Yard) -> int:
    """How many tasks are completed, as the journal knows it."""
    assert yard.journal is not None
    database = parse_journal(yard.journal).database
    with psycopg.connect(database.conninfo) as connection:
        count = f'SELECT count(*) FROM "{database.schema}".status WHERE state = {CODES[State.COMPLETED]}'
        row = connection.execute(count.encode()).fetchone()
        return int(row[0]) if row else 0


@pytest.mark.slow
def test_a_journal_learns_of_a_timeout_that_a_keeper_settled(yard: Yard) -> None:
    gate = Gate(yard.folder)
    handle = fleet.block_loop.options(timeout=1, max_retries=0, max_crashes=0).submit_sync(1, gate=gate.path)
    yard.hire()
    eventually(lambda: handle.refresh_sync().snapshot.state.ended, "the end")
    gate.open()
    assert handle.snapshot.status.reason is Reason.RETRIES_USED_UP
    # A listing is the journal's.
    eventually(lambda: [task.status for task in yard.tasks()] == [handle.snapshot.status], "the journal's word")


@pytest.fixture
def server(yard: Yard, tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path, yard.store, journal=yard.journal)
    try:
        yield process
    finally:
        process.end()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_what_was_executing_comes_back_by_itself_and_its_key_makes_no_second_task(
    yard: Yard, redis_server: redis.RedisServer, server: ServerProcess
) -> None:
    worker = yard.hire("--concurrency", "6")
    ids = [created(server, number)["task_id"] for number in range(6)]
    eventually(lambda: len(yard.running_in(worker.pid)) == 6, "six tasks under way")
    eventually(lambda: journal_is_level(yard), "a journal that knows all")
    redis_server.ask("FLUSHALL")
    eventually(lambda: {task.id for task in executing(yard) if task.status.attempts == 2} == set(ids), "all six again")
    eventually(lambda: status(server, "/readyz")[0] == 200, "a store that is whole")
    again = [created(server, number) for number in range(6)]
    assert [(answer["task_id"], answer["existing"]) for answer in again] == [(task_id, True) for task_id in ids]
    assert worker.running
    logs = worker.log + server.log_file.read_text()
    assert "has lost everything that the journal at" in logs
    assert "the Redis store was rebuilt: 6 of 6 tasks put back" in logs


@by_hand
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_what_is_lost_is_known_within_seconds(
    yard: Yard, redis_server: redis.RedisServer, server: ServerProcess
) -> None:
    created(server, 1)
    assert status(server, "/readyz")[0] == 200
    assert "fairlead_store_intact 1" in status(server, "/metrics")[1]
    redis_server.ask("FLUSHALL")
    began = time.monotonic()
    eventually(lambda: status(server, "/readyz")[0] == 503, "a server that is not ready")
    eventually(lambda: "fairlead_store_intact 0" in status(server, "/metrics")[1], "the metric")
    assert time.monotonic() - began < 10
    assert "has lost everything" in json.loads(status(server, "/readyz")[1])["detail"]
    findings = json.loads(status(server, "/api/v1/doctor")[1])["findings"]
    assert [found["level"] for found in findings if found["what"] == "incarnation"] == ["red"]
    assert "has lost everything that the journal at" in server.log_file.read_text()
    code, text = status(server, "/api/v1/tasks", task(1))
    assert (code, json.loads(text)["type"]) == (503, "/docs#store-unavailable")
    rebuild(yard)
    eventually(lambda: status(server, "/readyz")[0] == 200, "a server that is ready")
    assert created(server, 1)["existing"] is True


def task(number: int) -> dict[str, object]:
    return {"task_type": "work", "parameters": {"number": number, "seconds": 600}, "idempotency_key": f"once-{number}"}


def created(server: ServerProcess, number: int) -> dict[str, Any]:
    code, text = status(server, "/api/v1/tasks", task(number))
    assert code in (200, 201), text
    answer: dict[str, Any] = json.loads(text)
    return answer


def status(server: ServerProcess, path: str, body: object = None) -> tuple[int, str]:
    connection = HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    method, sent = ("GET", None) if body is None else ("POST", json.dumps(body))
    connection.request(method, path, sent, {"content-type": "application/json"})
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def executing(yard: Yard) -> list[Task]:
    return [task for task in yard.tasks() if task.state is State.EXECUTING]
