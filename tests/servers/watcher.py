"""Nothing that tests start outlives their run, however that ends: with a word, at a timeout, or killed without one.

A run has a token, which every process that it starts has in its environment, and a folder, in which all its temporary
files are. A watcher, a process of its own that nobody waits for, waits for the run's process to end. What then still
has the token or works in the folder is asked to end and then killed, and the folder is removed. (Servers that write
their title over their environment, as Redis does, work in the folder.)
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

TOKEN = "TEST_RUN"
"""The variable that has the token."""
_TEMPORARY = "PYTEST_DEBUG_TEMPROOT"
"""Where pytest makes its own folders, which it keeps for whoever looks into a failure."""
_ASKED = 3.0
"""How long what is asked to end may take, in seconds."""
_KILLED = 20.0


def watch() -> Path | None:
    """From here on nothing that this process starts outlives it; the folder of the run.

    Only Linux tells one process reliably that another has ended; elsewhere nothing is watched.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    token = uuid.uuid4().hex
    outer = os.environ.setdefault(_TEMPORARY, tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix="fl-tests-", dir=outer))
    # PostgreSQL runs as another user when the tests are root's.
    folder.chmod(0o711)
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), token, str(folder)]
    subprocess.run(command, check=True, cwd="/", env={}, stdin=subprocess.DEVNULL, start_new_session=True)
    os.environ[TOKEN] = token
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    return folder


def of_the_run(token: str, folder: str) -> Iterator[int]:
    """The processes that bear the token or work in the folder."""
    sign = f"{TOKEN}={token}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            # Not ours to look into, or gone in the meantime.
            with contextlib.suppress(OSError):
                if sign in (entry / "environ").read_bytes().split(b"\0") or _is_inside(entry, folder):
                    yield int(entry.name)


def _is_inside(process: Path, folder: str) -> bool:
    return f"{(process / 'cwd').readlink()}/".startswith(f"{folder}/")


def _wait_for_end(process: int) -> None:
    try:
        select.select([os.pidfd_open(process)], [], [])
    except ProcessLookupError:
        return
    except OSError:
        # A sandbox may not have it.
        while Path(f"/proc/{process}").exists():
            time.sleep(0.5)


def _end(number: signal.Signals, within: float, running: Callable[[], list[int]]) -> None:
    deadline = time.monotonic() + within
    told: set[int] = set()
    while (found := running()) and time.monotonic() < deadline:
        for process in found:
            if process not in told or number is signal.SIGKILL:
                told.add(process)
                with contextlib.suppress(OSError):
                    os.kill(process, number)
        time.sleep(0.05)


def main(parent: int, token: str, folder: str) -> None:
    # The run would otherwise have a child that it did not start.
    if os.fork():
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _wait_for_end(parent)

    def running() -> list[int]:
        return list(of_the_run(token, folder))

    # PostgreSQL gives back its shared memory when it is asked.
    _end(signal.SIGTERM, _ASKED, running)
    _end(signal.SIGKILL, _KILLED, running)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
