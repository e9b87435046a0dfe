"""What the store makes on disk is private, whatever the umask says; what is open to others is told."""

from __future__ import annotations

import asyncio
import logging
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.admin.sweeper import Sweeper
from fairlead.core.health.diagnosis import Finding, Level
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.testing.builders import a_task

MAKER = """
import os, sys
from pathlib import Path
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.testing.builders import a_task
os.umask(int(sys.argv[1], 8))
store = SqliteStore(Path(sys.argv[2]), blocking=True)
run_inline(store.add([a_task()], now=0, bounds={}))
run_inline(store.wait(["default"], 0.001))
for part in (Path(sys.argv[2]).parent.rglob("*")):
    print(part.name, oct(part.stat().st_mode & 0o7777))
run_inline(store.close())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


def made_under(umask: int, path: Path) -> dict[str, str]:
    """The modes of all that a store makes, by a process with this umask."""
    ran = subprocess.run(
        [sys.executable, "-c", MAKER, f"{umask:o}", str(path)], capture_output=True, text=True, timeout=120, check=True
    )
    return {name: mode for name, _, mode in (line.rpartition(" ") for line in ran.stdout.splitlines())}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777], ids=oct)
def test_all_that_is_made_is_private_whatever_the_umask(umask: int, path: Path) -> None:
    assert made_under(umask, path) == {
        "tasks.db": "0o600",
        "tasks.db-wal": "0o600",
        "tasks.db-shm": "0o600",
        "tasks.db-bells": "0o700",
        "default.bell": "0o600",
    }


def privacy_of(path: Path) -> Finding:
    store = SqliteStore(path, blocking=True)
    run_inline(store.wait(["default"], 0.001))
    examined = run_inline(store.examine())
    (finding,) = [each for each in examined.findings if each.what == "permissions"]
    assert finding == store.privacy()
    run_inline(store.close())
    return finding


def test_what_nobody_else_may_open_is_green(path: Path) -> None:
    finding = privacy_of(path)
    assert (finding.level, finding.remedy) == (Level.GREEN, "")


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o666, 0o601])
def test_a_file_that_others_may_open_is_red_and_the_remedy_ends_it(path: Path, mode: int) -> None:
    SqliteStore(path, blocking=True)
    path.chmod(mode)
    finding = privacy_of(path)
    assert finding.level is Level.RED and str(path) in finding.value
    subprocess.run(["/bin/sh", "-c", finding.remedy.partition(": ")[2]], check=True, timeout=60)
    assert privacy_of(path).level is Level.GREEN


@pytest.mark.parametrize("part", ["tasks.db-wal", "tasks.db-shm", "tasks.db-bells", "tasks.db-bells/default.bell"])
def test_so_is_all_that_belongs_to_it(path: Path, part: str) -> None:
    store = SqliteStore(path, blocking=True)
    run_inline(store.add([a_task()], now=0, bounds={}))
    run_inline(store.wait(["default"], 0.001))
    found = path.parent / part
    found.chmod(stat.S_IMODE(found.stat().st_mode) | stat.S_IROTH)
    finding = store.privacy()
    assert finding.level is Level.RED and str(found) in finding.value
    run_inline(store.close())


def test_a_folder_in_which_everybody_may_replace_the_file_is_red(path: Path) -> None:
    path.parent.chmod(0o777)
    finding = privacy_of(path)
    assert finding.level is Level.RED and "chmod o-w" in finding.remedy
    path.parent.chmod(0o1777)
    assert privacy_of(path).level is Level.GREEN, "as in /tmp: each may replace his own"


def test_nothing_is_written_through_what_somebody_put_in_the_place_of_a_pipe(path: Path) -> None:
    other, target = path.parent / "other", path.parent / "target"
    bells = path.parent / "tasks.db-bells"
    bells.mkdir()
    target.write_text("mine")
    other.write_text("mine, too")
    (bells / "default.bell").symlink_to(target)
    other.rename(bells / "mail.bell")
    store = SqliteStore(path, blocking=True)
    for queue in ("default", "mail"):
        run_inline(store.wait([queue], 0.001))
        run_inline(store.add([a_task(queue=queue)], now=0, bounds={}))
    run_inline(store.close())
    assert target.read_text() == "mine" and (bells / "mail.bell").read_text() == "mine, too"


def test_a_file_that_its_group_may_open_is_yellow(path: Path) -> None:
    SqliteStore(path, blocking=True)
    path.chmod(0o660)
    finding = privacy_of(path)
    assert finding.level is Level.YELLOW and "chmod -R g=" in finding.remedy


def test_a_file_that_is_there_keeps_its_permissions(path: Path) -> None:
    path.touch(0o640)
    path.chmod(0o640)
    run_inline(SqliteStore(path, blocking=True).close())
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


async def test_whoever_sweeps_says_once_in_the_log_that_a_file_is_open(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(path)
    for mode, said in ((0o600, 0), (0o644, 1)):
        await asyncio.to_thread(path.chmod, mode)
        caplog.clear()
        async with asyncio.timeout(60):
            sweeping = asyncio.create_task(Sweeper(AdminEngine(store)).run())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            sweeping.cancel()
            await asyncio.gather(sweeping, return_exceptions=True)
        told = [each for each in caplog.records if each.levelno >= logging.WARNING]
        assert len(told) == said
        assert all("every user of this host may open" in each.message and "chmod" in each.message for each in told)
    await store.close()


def test_making_the_file_at_once_in_many_threads_ends_nobodys_locks(path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(lambda _: SqliteStore(path, blocking=True), range(8)))
    for store in stores:
        run_inline(store.add([a_task()], now=0, bounds={}))
    assert sum(sum(lane.counts.values()) for lane in run_inline(stores[0].tally()).lanes) == 8
    for store in stores:
        run_inline(store.close())
