"""`fairlead watch` beside a real worker: why the task waits, how far it is, its end; and through an outage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.app.connection import Connection
from fairlead.core.events import Completed
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.settings import Settings
from fairlead.engine.engine import Settlement
from fairlead.engine.runtime.inline import run_inline
from tests.cli.running import Folder
from tests.cli.test_terminal import ESCAPE, on_terminal
from tests.servers import redis

pytestmark = pytest.mark.timeout(240)

APP = """
import time
from pathlib import Path
from fairlead import Fairlead, Reject, current_task

app = Fairlead()

@app.task
def copy(file: str) -> str:
    current_task().progress(40, f"waiting for {file}")
    while not Path(file).exists():
        time.sleep(0.01)
    if file == "bad":
        raise Reject("not this one")
    return file
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    for name in [name for name in os.environ if name.startswith("FAIRLEAD_")]:
        monkeypatch.delenv(name)
    folder = Folder(tmp_path)
    folder.write("tasks.py", APP)
    yield folder
    folder.close()


def test_a_task_is_watched_from_its_wait_to_its_end(folder: Folder) -> None:
    task_id = folder.submit("copy", "file=go")
    with folder.start("watch", task_id) as watch:
        watch.find("queued: no worker is running")
        with folder.start("worker", "tasks:app"):
            watch.find("executing, attempt 1 at")
            watch.find(": 40 % waiting for go")
            folder.write("go", "")
            assert watch.wait() == 0
            watch.find("completed")


def test_a_task_that_fails_ends_the_watch_with_exit_code_1(folder: Folder) -> None:
    task_id = folder.submit("copy", "file=bad")
    folder.write("bad", "")
    with folder.start("worker", "tasks:app"), folder.start("watch", task_id) as watch:
        assert watch.wait() == 1
        watch.find("failed")
        watch.find("not this one")


def test_on_a_terminal_a_submit_that_waits_shows_its_progress_and_then_the_result(folder: Folder) -> None:
    folder.submit("copy", "file=go")
    folder.write("go", "")
    with folder.start("worker", "tasks:app"):
        said = ESCAPE.sub("", on_terminal(folder, "submit", "copy", "file=go", "--wait", columns=200))
    assert said.rstrip().endswith('"go"')
    assert "completed" in said


def test_a_watch_outlives_an_outage_of_the_store(folder: Folder) -> None:
    server = redis.RedisServer("--appendonly", "yes", "--appendfsync", "always")
    server.start()
    store = ("--store", server.url(timeout=1))
    try:
        task_id = folder.submit("copy", "file=go", *store)
        with folder.start("watch", task_id, *store) as watch:
            watch.find("queued: no worker is running")
            server.halt()
            watch.find("trying again until Ctrl-C")
            server.start()
            watch.find("the store can be reached again")
            complete(server.url(), TaskId(task_id))
            assert watch.wait() == 0
            watch.find("completed")
    finally:
        server.stop()


def complete(url: str, task_id: TaskId) -> None:
    """Run a task, as a worker would."""
    connection = Connection(url, Settings())
    engine: AdminEngine = connection.inline()
    (task,) = run_inline(engine.claim(WorkerId("w"), ["default"], limit=1))
    assert task.id == task_id
    run_inline(engine.settle([Settlement(task, Completed(None))]))
    connection.close_inline()
