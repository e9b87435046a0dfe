"""Redis loses everything amid work; `fairlead rebuild` brings back from the journal what had not ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from fairlead.core.task import State
from fairlead.sdk.connection import Connection
from fairlead.storage.journal.address import parse_journal
from fairlead.storage.postgres.rows import CODES
from tests.e2e import fleet
from tests.e2e.processes import ROOT, Yard, eventually
from tests.servers import postgres, redis

TOTAL = 20_000


@pytest.fixture
def yard(
    redis_server: redis.RedisServer,
    postgres_server: postgres.PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Yard]:
    """An empty store that has a journal."""
    for name in [name for name in os.environ if name.startswith("FAIRLEAD_")]:
        monkeypatch.delenv(name)
    store, journal = redis_server.url(), postgres_server.url(postgres_server.create_database())
    former = fleet.app._swap(Connection(store, fleet.SETTINGS, journal=journal))
    with Yard(tmp_path, store, journal).manned() as yard:
        yield yard
    fleet.app.connection().close_inline()
    fleet.app._swap(former)
    redis_server.ask("FLUSHALL")


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
