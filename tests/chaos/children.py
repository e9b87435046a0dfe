"""Real processes that can really be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[2]
PATIENCE = 90.0
"""How long a child may take to do what is waited for, in seconds."""


class Child:
    """A Python module running in a process of its own."""

    def __init__(self, module: str, *arguments: object) -> None:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE)

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.running:
            self.kill()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End it as the power switch would: nothing is flushed, nothing is cleaned up."""
        assert self.running, f"the child ended by itself with {self._process.returncode}, before it was to be killed"
        self._process.kill()
        assert self._ended() == -signal.SIGKILL

    def stop(self) -> None:
        """Ask it to end and wait until it has."""
        self._process.terminate()
        code = self._ended()
        # One that has only just begun does not know yet how to end well.
        assert code in (0, -signal.SIGTERM), f"the child was asked to end and did so with {code}"

    def wait_until(self, reached: Callable[[], bool]) -> None:
        """Look again and again, as long as the child lives, until something is so."""
        deadline = time.monotonic() + PATIENCE
        while not reached():
            assert self.running, f"the child ended by itself with {self._process.returncode}"
            assert time.monotonic() < deadline, f"the child did not get there within {PATIENCE:g} s"
            time.sleep(0.001)

    def _ended(self) -> int:
        assert self._process.stdin is not None
        code = self._process.wait(PATIENCE)
        self._process.stdin.close()
        return code


def end_with_parent() -> None:
    """Called by a child: whatever becomes of the tests, it does not go on without them."""

    def watch() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
