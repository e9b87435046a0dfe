"""Nothing that tests start outlives their run, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.servers.watcher import TOKEN

ROOT: Final = Path(__file__).parents[2]
PATIENCE: Final = 60.0

RUN: Final = """
import multiprocessing, os, subprocess, sys, tempfile, time
from pathlib import Path
from tests.dashboard import chromium
from tests.servers import postgres, redis

def test_that_is_cut_off(request):
    starting = redis.started_single(), postgres.started()
    redis_server, postgres_server = map(next, starting)
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    member = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,), daemon=True)
    member.start()
    pids = [os.getpid(), redis_server.pid, *postgres_server._pids(), program.pid, member.pid]
    folders = [redis_server.folder, postgres_server.data, tempfile.gettempdir()]
    if binary := chromium.found():
        from playwright.sync_api import sync_playwright
        playwright = sync_playwright().start()
        browser = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        browser.new_page()
    told = Path({told!r})
    told.with_suffix(".part").write_text("\\n".join(map(str, [*pids, "", *folders])))
    told.with_suffix(".part").rename(told)
    time.sleep(600)
"""


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come about within {PATIENCE:g} s"
        time.sleep(0.02)


def is_gone(process: int) -> bool:
    """Whether a process is no more, or only waits to be noticed by whoever started it."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


def descendants(process: int) -> set[int]:
    """The processes that a process has started, and that those have."""
    found: set[int] = set()
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, file.read_text().split()):
            found |= {child, *descendants(child)}
    return found


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux tells reliably that a process has ended")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "terminated"])
@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "distributed"])
def test_a_run_that_is_cut_off_leaves_no_process_and_no_folder(
    how: signal.Signals, options: tuple[str, ...], tmp_path: Path
) -> None:
    told, log, file = tmp_path / "told", tmp_path / "log", tmp_path / "test_cut_off.py"
    file.write_text(RUN.format(told=str(told)))
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", TOKEN))}
    # The file is not under tests/, whose conftest is a plugin to it.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        "pyproject.toml",
        "-p",
        "tests.conftest",
        str(file),
        *options,
    ]
    with (
        log.open("wb") as output,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output) as run,
    ):
        try:
            until(lambda: told.exists() or run.poll() is not None, "the start of everything")
            assert run.poll() is None, log.read_text()
            pids, folders = (part.split() for part in told.read_text().split("\n\n"))
            started = {*map(int, pids), *descendants(run.pid)}
            assert len(started) > 10 and all(Path(folder).is_dir() for folder in folders)
            run.send_signal(how)
            run.wait(PATIENCE)
        finally:
            run.kill()
    until(lambda: all(map(is_gone, started)), "the end of everything")
    until(lambda: not any(Path(folder).exists() for folder in folders), "the end of the folders")
