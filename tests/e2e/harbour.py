"""A server process in front of a store, whose workers reach it over HTTP only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.processes import PATIENCE, ROOT, WorkerProcess, Yard


class ServerProcess:
    """`fairlead serve`, started as a user starts it."""

    def __init__(
        self, folder: Path, store: str, port: int = 0, *, before: Callable[[], None] | None = None, **settings: object
    ) -> None:
        """With what the process is to do before it is `fairlead serve`."""
        self.log_file = folder / "server.log"
        given = {"lease_seconds": 3, "heartbeat_seconds": 0.5, "grace_seconds": 1, "sweep_interval_seconds": 0.25,
                 "max_crashes": 20, "backoff_initial_seconds": 0.1, "rate_limit": 0, **settings}  # fmt: skip
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fairlead", "serve", "--json", "--store", store, f"--port={port}", *flags],
                cwd=ROOT,
                env=os.environ | {"FAIRLEAD_LOG_LEVEL": "warning"},
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                preexec_fn=before,
            )
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        assert first, self.log_file.read_text()
        self.url: str = json.loads(first)["url"]

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()


class Harbour(Yard):
    """A yard whose workers come over HTTP."""

    def __init__(self, folder: Path, store: str, server: ServerProcess) -> None:
        super().__init__(folder, store)
        self.server = server

    def hire(self, *arguments: str) -> WorkerProcess:
        name = f"worker-{len(self.workers) + 1}"
        worker = WorkerProcess(self.folder, self.server.url, name, *arguments, lease=self.lease)
        self.workers.append(worker)
        return worker


@contextmanager
def opened(folder: Path, store: str) -> Iterator[Harbour]:
    """A harbour with a server; no process outlives it."""
    server = ServerProcess(folder, store)
    try:
        with Harbour(folder, store, server).manned() as harbour:
            assert isinstance(harbour, Harbour)
            yield harbour
    finally:
        server.end()
