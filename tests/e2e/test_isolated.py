"""Isolated handlers of an application that must be set up before its tasks are imported, as Django's must."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.app.connection import Connection
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission
from fairlead.core.task import State, Task
from tests.e2e.processes import PATIENCE

SETUP = """
import settled

settled.ready = True

from duties import app
"""

DUTIES = """
from fairlead import Fairlead
import settled

if not settled.ready:
    raise RuntimeError("the settings are not configured")

app = Fairlead("memory://")

@app.task(isolate=True)
def work() -> str:
    return "well"
"""


@pytest.mark.slow
async def test_an_isolated_process_imports_first_what_the_worker_was_started_with(tmp_path: Path) -> None:
    for name, text in (("settled", "ready = False"), ("setup_first", SETUP), ("duties", DUTIES)):
        (tmp_path / f"{name}.py").write_text(text)
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    connection = Connection(store, Settings())
    engine = await connection.engine()
    submitted = (await engine.submit(Submission(type="work", max_retries=0))).task
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")}
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fairlead", "worker", "setup_first:app", "--store", store,
        cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    async def ended() -> Task:
        while True:
            task = await engine.get(submitted.id)
            if task.state.ended:
                return task
            await asyncio.sleep(0.05)

    try:
        task = await asyncio.wait_for(ended(), PATIENCE)
        assert (task.state, task.status.result) == (State.COMPLETED, b'"well"'), task.status.failure
    finally:
        worker.terminate()
        assert await asyncio.wait_for(worker.wait(), PATIENCE) == 0
        await connection.close()
