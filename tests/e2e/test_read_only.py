"""A SQLite file that may not be written: people look at it, servers show it, and nobody hammers at it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.storage.sqlite.store import SqliteStore
from fairlead.testing.builders import NOW, a_claim, some_tasks
from fairlead.testing.steps import add, claim_one
from tests.e2e.harbour import ServerProcess
from tests.e2e.processes import ROOT
from tests.e2e.test_lost_file import ask
from tests.storage.sqlite.processes import renounce_rights

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

REFUSED = "cannot be written (it, or its folder, is read-only for this user); nothing was stored. Make the file"


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Five tasks, one of which was executing when everybody left: its lease has ended long ago."""
    path = tmp_path / "protected" / "tasks.db"
    path.parent.mkdir()

    async def keep() -> None:
        store = SqliteStore(path)
        await add(store, *some_tasks(5))
        await claim_one(store, a_claim(limit=1, now=NOW))
        await store.close()

    asyncio.run(keep())
    path.chmod(0o444)
    path.parent.chmod(0o555)
    yield path
    path.parent.chmod(0o755)


def fairlead(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fairlead", *words, "--store", f"sqlite:///{path}"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, preexec_fn=renounce_rights,
    )  # fmt: skip


def test_people_look_at_it_and_are_told_that_they_cannot_change_it(path: Path) -> None:
    listed = fairlead(path, "list", "--json")
    (task_id, *_) = [json.loads(line)["task_id"] for line in listed.stdout.splitlines()]
    for look in (["show", task_id], ["explain", task_id], ["stats"], ["list", "--query", "state:queued"],
                 ["queues", "list"], ["doctor"], ["top", "--once"]):  # fmt: skip
        shown = fairlead(path, *look)
        assert shown.returncode == 0 or look == ["doctor"], (look, shown)
        assert shown.stdout and "Traceback" not in shown.stderr, (look, shown)
    assert "read-only for this user" in fairlead(path, "doctor").stdout
    for change in (["submit", "work"], ["cancel", task_id], ["queues", "pause", "default"]):
        refused = fairlead(path, *change)
        assert refused.returncode == 1, (change, refused)
        assert f"{path} {REFUSED}" in refused.stderr, (change, refused)


def test_a_worker_says_so_and_leaves(path: Path) -> None:
    left = fairlead(path, "worker", "tests.e2e.fleet:app", "--log-level", "warning")
    assert left.returncode == 1
    assert left.stderr.count(REFUSED) == 1, left.stderr
    assert "Traceback" not in left.stderr


def test_a_server_shows_it_and_does_not_hammer_at_it(path: Path, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, f"sqlite:///{path}", before=renounce_rights)
    try:
        began, looks = time.monotonic(), 0
        # So long that a sweep, at its interval of a quarter of a second, comes by the lease that has ended.
        while time.monotonic() - began < 6:
            for page in ("/readyz", "/api/v1/tasks", "/api/v1/queues", "/api/v1/workers", "/api/v1/doctor", "/metrics"):
                assert ask(server, page)[0] == 200, page
            looks += 1
            time.sleep(0.2)
        assert looks > 5
        status, answer = ask(server, "/api/v1/tasks", {"task_type": "work"})
        assert (status, REFUSED in answer) == (507, True), answer
        log = server.log_file.read_text()
        # Once that it cannot be written, and once that every user may read it.
        assert log.count("every user of this host may open") == 1, log
        assert log.count(REFUSED) <= 1 and len(log.splitlines()) <= 2, log
        assert sorted(part.name for part in path.parent.iterdir()) == [path.name]
    finally:
        server.end()
