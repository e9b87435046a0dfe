"""An environment for each peer: what it needs, apart from all others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from msgspec import Struct

ADAPTERS: Final = Path(__file__).with_name("adapters")
ROOT: Final = Path(__file__).parents[2]


class Contestant(Struct, frozen=True):
    """A queue on a kind of server."""

    name: str
    adapter: str
    server: str
    """redis, postgresql or sqlite."""
    packages: tuple[str, ...] = ()
    settings: str = ""
    """How it is set up, in a few words for the report."""

    @property
    def label(self) -> str:
        return f"{self.name} ({self.server})"


OURS: Final = tuple(
    Contestant("fairlead", "on_fairlead.py", server, settings="defaults: results, history and fencing on")
    for server in ("redis", "postgresql", "sqlite")
)
PEERS: Final = (
    Contestant("Celery", "on_celery.py", "redis", ("celery[redis]",), "8 threads, prefetch 16, no gossip"),
    Contestant("RQ", "on_rq.py", "redis", ("rq",), "SimpleWorker, which does not fork"),
    Contestant("Dramatiq", "on_dramatiq.py", "redis", ("dramatiq[redis]",), "8 threads, prefetch 500"),
    Contestant("Huey", "on_huey.py", "redis", ("huey", "redis"), "4 threads"),
    Contestant("Huey", "on_huey.py", "sqlite", ("huey",), "4 threads, fsync"),
    Contestant("arq", "on_arq.py", "redis", ("arq", "uvloop"), "100 jobs, poll delay 10 ms"),
    Contestant("Taskiq", "on_taskiq.py", "redis", ("taskiq", "taskiq-redis", "uvloop"), "streams of 100, 200 tasks"),
    Contestant("SAQ", "on_saq.py", "redis", ("saq[redis]", "typing_extensions", "uvloop"), "concurrency 100"),
    Contestant("streaQ", "on_streaq.py", "redis", ("streaq", "uvloop"), "concurrency 100"),
    Contestant("BullMQ", "on_bullmq.mjs", "redis", ("bullmq", "ioredis"), "Node, concurrency 100"),
    Contestant("Procrastinate", "on_procrastinate.py", "postgresql", ("procrastinate",), "concurrency 100"),
    Contestant("PgQueuer", "on_pgqueuer.py", "postgresql", ("pgqueuer[asyncpg]", "uvloop"), "batches of 100"),
)


class Missing(Exception):
    """A peer that cannot be had here, and why."""


class Environment:
    """Where a contestant's adapter runs."""

    def __init__(self, contestant: Contestant, folder: Path) -> None:
        self.contestant = contestant
        self._folder = folder / contestant.adapter.partition(".")[0]
        if contestant.adapter.endswith(".mjs"):
            self._program = [_prepare_node(contestant, self._folder)]
            self._adapter = self._folder / contestant.adapter
        else:
            self._program = [_prepare_python(contestant, self._folder)]
            self._adapter = ADAPTERS / contestant.adapter

    def command(self, *arguments: object) -> list[str]:
        """The command line that has the adapter do something."""
        return [*self._program, str(self._adapter), *map(str, arguments)]


def _prepare_python(contestant: Contestant, folder: Path) -> str:
    if not contestant.packages:
        return sys.executable
    python = folder / "bin" / "python"
    if not python.exists():
        uv = str(ROOT / "scripts" / "uv")
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
        try:
            _run([uv, "pip", "install", "--quiet", "--python", str(python), *contestant.packages])
        except Missing:
            shutil.rmtree(folder)
            raise
    return str(python)


def _prepare_node(contestant: Contestant, folder: Path) -> str:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise Missing("node and npm are not on PATH")
    folder.mkdir(parents=True, exist_ok=True)
    # Node looks for packages beside the program.
    shutil.copy(ADAPTERS / contestant.adapter, folder)
    if not (folder / "node_modules").exists():
        _run([npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), *contestant.packages])
    return node


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"VIRTUAL_ENV": ""})
    if done.returncode != 0:
        raise Missing((done.stderr.strip() or done.stdout.strip() or "it cannot be installed").splitlines()[-1])
